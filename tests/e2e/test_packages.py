"""The built packages in fresh environments, installed as README.md says: make test-packages."""

import json
import os
import re
import subprocess
import sys
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mnemon_server.embedding.built_in import MINILM

from tests.repo.test_readme import PRINTED_ADDRESS, README
from tests.support.documents import blocks
from tests.support.repository import ROOT
from tests.support.server import clean_environment

pytestmark = [pytest.mark.packages, pytest.mark.timeout(1800)]

WHEELS = {file.name.partition("-")[0].replace("_", "-"): file for file in (ROOT / "dist").glob("*.whl")}
SERVER_LINE, CLIENT_LINE = re.findall(r"^pip install .*", README.read_text(), re.MULTILINE)
EMBEDDED, OVER_THE_NETWORK = blocks(README, ["python"])[:2]
OURS = {"mnemon-client": "mnemon", "mnemon-minilm": "mnemon_minilm", "mnemon-server": "mnemon_server"}
NEIGHBOURS = {
    "chromadb": "chromadb",
    "google-ai-generativelanguage": "google.ai.generativelanguage",
    "google-api-core": "google.api_core.exceptions",
    "google-cloud-pubsub": "google.cloud.pubsub_v1",
    "google-genai": "google.genai",
    "langchain": "langchain.agents",
    "langgraph": "langgraph.graph",
}

_IMPORT = """
import importlib, sys, warnings
warnings.filterwarnings("error", message="Protobuf gencode")
for name in sys.argv[1:]:
    importlib.import_module(name)
"""
_FILES = """
import json
from importlib.metadata import distributions
print(json.dumps({each.name: [str(file) for file in each.files or ()] for each in distributions()}))
"""


def _hashes(record: str) -> set[str]:
    return {line for line in record.splitlines() if "sha256=" in line and ".dist-info/" not in line}


class Environment:
    """A virtual environment with its own home and an empty working folder. Nothing of this checkout is importable."""

    def __init__(self, folder: Path, **installing: str) -> None:
        self._venv = folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", str(self._venv)], check=True)
        self.home, self.working = folder / "home", folder / "working"
        self.working.mkdir()
        outside = {
            name: value for name, value in clean_environment().items() if not name.startswith(("PYTHON", "XDG_"))
        }
        path = os.pathsep.join([str(self._venv / "bin"), os.environ["PATH"]])
        self._installing = {**outside, "PATH": path, **installing}
        self.environ = {**outside, "PATH": path, "HOME": str(self.home), "HF_HUB_OFFLINE": "1"}

    def install(self, line: str) -> None:
        """Runs a line that begins with `pip install`; then all packages must fit each other."""
        for command in (line, "pip check"):
            done = subprocess.run(
                ["sh", "-c", command],
                cwd=self.working,
                env=self._installing,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
        for wheel in WHEELS.values():
            [information] = [each for each in zipfile.Path(wheel).iterdir() if each.name.endswith(".dist-info")]
            for installed in self._venv.glob(f"lib/python*/site-packages/{information.name}/RECORD"):
                # Not what an index has under the same name and version.
                assert _hashes((information / "RECORD").read_text()) <= _hashes(installed.read_text())

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Runs a program of the environment until it ends."""
        return subprocess.run(
            command, cwd=self.working, env=self.environ, capture_output=True, text=True, timeout=300, check=False
        )

    def python(self, program: str, *arguments: str) -> str:
        """Runs a Python program that must succeed, and returns what it prints."""
        done = self.run("python", "-c", program, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def serving(self) -> Iterator[tuple[str, Path]]:
        """The address and the data folder of a server in the empty working folder."""
        command = ["mnemon-server", "serve", "--listen", "127.0.0.1:0"]
        with subprocess.Popen(
            command, cwd=self.working, env=self.environ, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            said = ""
            for line in process.stderr:
                said += line
                if found := re.search(r"serving on (\S+): .*, data in (.*)", line):
                    break
            else:
                raise AssertionError(said)
            try:
                yield found[1], Path(found[2])
            finally:
                process.terminate()
                process.communicate()


def pins(name: str) -> list[str]:
    return re.findall(r"^[\w.-]+==[^\n\\]*[^\s\\]", (ROOT / f"requirements/{name}.txt").read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Environment]:
    """Makes environments in which pip takes the built wheels, and all else, wheels alone, as a lock file pins it."""

    def make(lock: str) -> Environment:
        folder = tmp_path_factory.mktemp(lock)
        versions = [f"{name}=={wheel.name.split('-')[1]}" for name, wheel in WHEELS.items()]
        (folder / "constraints.txt").write_text("\n".join([*pins(lock), *versions]))
        return Environment(
            folder,
            PIP_CONSTRAINT=str(folder / "constraints.txt"),
            PIP_FIND_LINKS=" ".join([str(ROOT / "dist"), os.environ.get("PIP_FIND_LINKS", "")]),
            PIP_ONLY_BINARY=":all:",
        )

    return make


@pytest.fixture(scope="module")
def server(fresh: Callable[[str], Environment]) -> Environment:
    environment = fresh("server")
    environment.install(SERVER_LINE)
    return environment


def test_the_wheel_of_the_model_holds_what_the_server_looks_for() -> None:
    graph = f"{MINILM.weights.sha256[:16]}-v{MINILM.builder_version}-int8"
    with zipfile.ZipFile(WHEELS["mnemon-minilm"]) as archive:
        packaged = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {"__init__.py", f"{graph}.onnx", f"{graph}.sha256", MINILM.cached_tokenizer.name}
    assert packaged == {f"mnemon_minilm/{name}" for name in expected}


def test_an_installed_server_serves_out_of_an_empty_folder(server: Environment) -> None:
    with server.serving() as (address, data):
        assert (data / "tenants").is_dir()
        assert data.is_relative_to(server.home)
        program = OVER_THE_NETWORK.text.replace(PRINTED_ADDRESS, address)
        assert server.python(program) == OVER_THE_NETWORK.printed
        assert "absolute scores" in server.run("mnemon", "--address", address, "info").stdout
    assert list(server.working.iterdir()) == []


def test_an_installed_server_runs_inside_a_program(server: Environment) -> None:
    assert EMBEDDED.is_printed_by(server.python(EMBEDDED.text))


def test_the_client_alone_talks_to_a_server(fresh: Callable[[str], Environment], server: Environment) -> None:
    client = fresh("server")
    client.install("pip install mnemon-client")
    told = client.run("mnemon", "info")
    assert told.stderr.strip().endswith("pip install 'mnemon-client[cli]'")
    assert client.run("python", "-c", "import mnemon_server").returncode == 1
    told = client.run("python", "-c", EMBEDDED.text)
    assert told.stderr.strip().endswith("pip install mnemon-server")
    with server.serving() as (address, _):
        program = OVER_THE_NETWORK.text.replace(PRINTED_ADDRESS, address)
        assert client.python(program) == OVER_THE_NETWORK.printed
        client.install(CLIENT_LINE)
        assert "absolute scores" in client.run("mnemon", "--address", address, "info").stdout


def test_client_and_server_live_beside_packages_that_share_their_dependencies(
    fresh: Callable[[str], Environment],
) -> None:
    environment = fresh("neighbours")
    environment.install(f"pip install mnemon-server 'mnemon-client[langgraph,mcp]' {' '.join(NEIGHBOURS)}")
    ours = ["mnemon", "mnemon.v1.memory_pb2_grpc", "mnemon.langgraph", "mnemon_server.embedded"]
    for order in ([*ours, *NEIGHBOURS.values()], [*NEIGHBOURS.values(), *ours]):
        environment.python(_IMPORT, *order)
    assert EMBEDDED.is_printed_by(environment.python(EMBEDDED.text))

    owners: dict[str, list[str]] = defaultdict(list)
    installed: dict[str, list[str]] = json.loads(environment.python(_FILES))
    for name, files in installed.items():
        for file in files:
            owners[file].append(name)
    shared = {file: names for file, names in owners.items() if len(names) > 1}
    assert {file: names for file, names in shared.items() if OURS.keys() & {*names}} == {}
    for name, package in OURS.items():
        folders = {file.partition("/")[0] for file in installed[name] if not file.startswith("../")}
        assert {folder for folder in folders if not folder.endswith(".dist-info")} == {package}
