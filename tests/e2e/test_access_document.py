"""The page about access control, walked as an operator would: its commands as they are printed, in an empty folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import blocks
from tests.support.ports import HeldPort
from tests.support.repository import ROOT

DOCUMENT = ROOT / "server" / "ACCESS.md"
PRINTED_PORT = "50051"
WALK_S = 1_200
BEGIN = "set -e -o pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"


def environment(folder: Path, port: HeldPort) -> dict[str, str]:
    """That of a person who has installed the server and the client, and set nothing."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("MNEMON_")}
    return own | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        # In the place of the port that servers and clients have by default, which may be taken here.
        "MNEMON_LISTEN": port.address,
        "MNEMON_ADDRESS": port.address,
        "MNEMON_EMBEDDING_MODEL": "hashing",
    }


@pytest.mark.slow
@pytest.mark.timeout(WALK_S + 60)
def test_every_command_of_the_page_succeeds_and_prints_what_it_shows(tmp_path: Path) -> None:
    walk, said = tmp_path / "walk", tmp_path / "said"
    walk.mkdir()
    said.mkdir()
    port = HeldPort()
    found = blocks(DOCUMENT, ["sh"])
    assert len(found) > 15
    # One shell for all blocks, as for a person who pastes them; what each prints goes to files of its own.
    script = BEGIN + "".join(
        f"exec >'{said}/{i}.out' 2>'{said}/{i}.err'\n{block.text.replace(PRINTED_PORT, str(port.number))}"
        for i, block in enumerate(found)
    )
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=walk,
        env=environment(walk, port),
        timeout=WALK_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    last = len(list(said.glob("*.out"))) - 1
    problems = (said / f"{last}.err").read_text(encoding="utf-8")
    assert done.returncode == 0, f"{found[last].text}\nfailed with\n{problems}"
    for i, block in enumerate(found):
        printed = (said / f"{i}.out").read_text(encoding="utf-8")
        assert block.printed is None or block.is_printed_by(printed), f"{block.text}\nprinted\n{printed}"
