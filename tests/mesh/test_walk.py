"""The page about Envoy, walked as an operator would: its commands as they are printed, in an empty folder."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import blocks
from tests.support.ports import HeldPort
from tests.support.repository import ROOT

pytestmark = [pytest.mark.mesh, pytest.mark.timeout(400)]

PORTS = ("50060", "50061", "8060", "8061", "8443", "9901", "9902")
BEGIN = "set -e -o pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"


def test_every_command_of_the_page_succeeds_and_prints_what_it_shows(tmp_path: Path) -> None:
    held = {printed: HeldPort() for printed in PORTS}

    def on_free_ports(text: str) -> str:
        for printed, port in held.items():
            text = text.replace(printed, str(port.number))
        return text

    checkout, walk, said = tmp_path / "checkout", tmp_path / "walk", tmp_path / "said"
    shutil.copytree(ROOT / "docker", checkout / "docker")
    configuration = checkout / "docker/envoy/envoy.yaml"
    configuration.write_text(on_free_ports(configuration.read_text()))
    walk.mkdir()
    said.mkdir()
    found = blocks(ROOT / "docker/envoy/README.md", ["sh"])
    assert len(found) >= 3
    script = BEGIN + "".join(
        f"exec >'{said}/{i}.out' 2>'{said}/{i}.err'\n{on_free_ports(block.text)}" for i, block in enumerate(found)
    )
    own = {name: value for name, value in os.environ.items() if not name.startswith("MNEMON_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), str(ROOT / ".venv/mesh/bin"), os.environ["PATH"]])
    settings = {"HOME": str(walk), "PATH": path, "CHECKOUT": str(checkout), "MNEMON_EMBEDDING_MODEL": "hashing"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=walk, env={**own, **settings}, check=False, stdin=subprocess.DEVNULL
    )
    last = len(list(said.glob("*.out"))) - 1
    assert done.returncode == 0, f"{found[last].text}\nfailed with\n{(said / f'{last}.err').read_text()}"
    for i, block in enumerate(found):
        printed = (said / f"{i}.out").read_text(encoding="utf-8")
        assert block.printed is None or block.is_printed_by(printed), f"{block.text}\nprinted\n{printed}"
