"""Nothing leaves the machine, and nothing is written outside of the folders that the documents name.

A program starts a server, stores and searches with the command and the client, then does the same in an embedded vault:
with the default model and the default index, which bring native code of others.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.server import START_S, clean_environment

PROGRAM = """
import re, subprocess, sys
from mnemon import Client, Mnemon

data, vault = sys.argv[1:]
command = [sys.executable, "-m", "mnemon_server", "serve", "--data-dir", data, "--listen", "127.0.0.1:0"]
server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
try:
    address = next(found[1] for line in server.stderr if (found := re.search(r"serving on (\\S+):", line)))
    with Client(address) as client:
        client.documents.put("note", "The lamp was sold.")
        assert client.documents.search("Who sold the lamp?").results
    for words in (["remember", "Ada lives in Turin."], ["recall", "Where does Ada live?"]):
        subprocess.run([sys.executable, "-m", "mnemon", "--address", address, *words], check=True)
finally:
    server.terminate()
    server.communicate()
assert server.returncode == 0
with Mnemon(vault) as memory:
    memory.remember("Ada lives in Turin.", user="ada")
    assert memory.recall("Where does Ada live?", user="ada").results
"""

STRACE = shutil.which("strace")
_CALLS = (
    "connect,sendto,sendmsg,sendmmsg,open,openat,creat,mkdir,mkdirat,rename,renameat,renameat2,link,linkat,symlink,"
    "symlinkat"
)
_ADDRESS = re.compile(r'inet_addr\("([^"]+)"\)|inet_pton\(AF_INET6, "([^"]+)"')
_WRITTEN = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|(creat|mkdir|mkdirat|rename|link|symlink)\w*\(")
_PATH = re.compile(r'"(/[^"]*)"|\d+<(/[^>]*)>, "([^"/][^"]*)"')


@dataclass(frozen=True)
class Run:
    """A run of the program, in a home of its own."""

    folder: Path
    home: Path
    calls: list[str] | None
    """Its system calls that succeeded, and those of its children; None if they cannot be traced."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("outgoing")
    home, temporary, trace = folder / "home", folder / "tmp", tmp_path_factory.mktemp("trace") / "calls"
    home.mkdir()
    temporary.mkdir()
    unset = ("XDG_", "ORT_", "PYTHONPYCACHEPREFIX")
    environment = {name: value for name, value in clean_environment().items() if not name.startswith(unset)}
    environment |= {"HOME": str(home), "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", PROGRAM, str(folder / "data"), str(folder / "vault")]
    traced = STRACE and _may_trace(STRACE)
    if traced:
        command = [
            STRACE,
            "-f",
            "-y",
            "-s",
            "4096",
            "--seccomp-bpf",
            "-e",
            f"trace={_CALLS}",
            "-o",
            str(trace),
            *command,
        ]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=START_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Run(folder, home, trace.read_text().splitlines() if traced else None)


def _may_trace(strace: str) -> bool:
    done = subprocess.run([strace, "-f", "-o", os.devnull, sys.executable, "-c", ""], capture_output=True, check=False)
    return done.returncode == 0


def test_the_home_gets_the_built_model_alone(run: Run) -> None:
    files = {str(file.relative_to(run.home)) for file in run.home.rglob("*") if file.is_file()}
    assert {Path(file).parent for file in files} == {Path(".cache/mnemon")}
    assert list((run.folder / "tmp").iterdir()) == []


def test_nothing_is_sent_to_another_machine_and_no_name_is_looked_up(run: Run) -> None:
    if run.calls is None:
        pytest.skip("strace is missing, or may not trace")
    asked = [line for line in run.calls if {*_addresses(line)} - {"127.0.0.1", "::1", "::ffff:127.0.0.1"}]
    assert asked == []
    # A resolver on loopback would pass names on. That its configuration is read is the habit of gRPC.
    assert [line for line in run.calls if "htons(53)" in line] == []


def test_nothing_is_written_outside_of_its_folders(run: Run) -> None:
    if run.calls is None:
        pytest.skip("strace is missing, or may not trace")
    written = {path for line in run.calls if _WRITTEN.search(line) and " = -1 E" not in line for path in _paths(line)}
    assert str(run.folder / "data") in written, "the trace shows no writing at all"
    own = (str(run.folder), "/dev/null", "/proc/self/")
    # Python's own caches of modules are beside those, and may not be there yet.
    assert sorted(path for path in written if not path.startswith(own) and "/__pycache__" not in path) == []


def _addresses(line: str) -> list[str]:
    return [four or six for four, six in _ADDRESS.findall(line)]


def _paths(line: str) -> list[str]:
    return [path or f"{folder}/{name}" for path, folder, name in _PATH.findall(line)]
