"""The commands of the reference do what it says, over HTTP and over gRPC, on a server with the default settings."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.access import make_key
from tests.support.api.examples import EXAMPLES, GRPC, HTTP, Example
from tests.support.repository import ROOT
from tests.support.rpcs import SERVED_BY_OTHERS
from tests.support.server import ServerProcess, server_process

FLAGS = ("--knowledge-store-backend", "local", "--http-listen", "127.0.0.1:0")
REFERENCE = ROOT / "protos/reference"
Served = tuple[ServerProcess, dict[str, str]]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with server_process(tmp_path_factory.mktemp("data"), *FLAGS) as server:
        yield server, {}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("guarded")
    keys = {f"MNEMON_{role.upper()}_KEY": make_key(folder, role) for role in ("admin", "operator")}
    with server_process(folder, *FLAGS, "--authentication", "api_key") as server:
        yield server, keys


def run(command: str, served: Served) -> str:
    """The output of a command of the reference."""
    server, keys = served
    command = command.replace(HTTP, server.http_address()).replace(GRPC, server.address()).replace("\\\n", "")
    for name, key in keys.items():
        command = command.replace(f"${name}", key)
    program, *words = shlex.split(command)
    found = shutil.which(program, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert found, f"{program} is not installed"
    done = subprocess.run([found, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def same_spacing(text: str) -> str:
    """JSON without the spaces that only `buf` writes."""
    return text.replace('": ', '":')


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.method)
def test_both_commands_show_what_they_should(example: Example, plain: Served, guarded: Served) -> None:
    served = guarded if example.credential else plain
    for command in (example.curl(), example.buf_curl()):
        output = run(command, served)
        assert example.shows in same_spacing(output), output
    assert json.loads(run(example.curl(), served).splitlines()[0])


def test_the_command_of_the_page_for_clients_watches_until_its_deadline(plain: Served) -> None:
    [command] = re.findall(r"```sh\n(.*?)\n```", (ROOT / "protos/CLIENTS.md").read_text("utf-8"), re.DOTALL)
    *events, last = run(command, plain).strip().split("\n\n")
    assert events and all(re.fullmatch(r"id: \S+\ndata: \{.*\}", event) for event in events)
    assert last.startswith("event: error\ndata: ") and '"deadline_exceeded"' in last


def test_the_reference_shows_commands_for_every_service_and_no_others() -> None:
    shown = "".join(page.read_text("utf-8") for page in sorted(REFERENCE.glob("*.md")))
    commands = [line for line in shown.splitlines() if line.startswith(("curl ", "buf curl "))]
    assert len(commands) == 2 * len(EXAMPLES)
    for example in EXAMPLES:
        assert example.curl() in shown and example.buf_curl() in shown
    services = {example.method.partition("/")[0] for example in EXAMPLES}
    pages = [page for page in REFERENCE.glob("*.md") if "\n## Methods" in page.read_text("utf-8")]
    titles = {page.read_text("utf-8").splitlines()[0].removeprefix("# ") for page in pages}
    assert titles - services == SERVED_BY_OTHERS
