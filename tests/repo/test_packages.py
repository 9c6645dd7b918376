"""What the packages that are published contain and say of themselves; tests/e2e/test_packages.py installs them."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import mnemon
import mnemon_server
import pytest
from mnemon_server.embedding.built_in import MINILM
from packaging.metadata import Metadata
from packaging.requirements import Requirement

from tests.support.repository import ROOT

HEAVY = {"numpy", "chromadb", "onnxruntime", "mnemon-server", "torch"}
FOLDERS = {"mnemon_client": "clients/python", "mnemon_server": "server"}
PACKAGES = {"mnemon_client": "mnemon", "mnemon_server": "mnemon_server"}


class Built:
    """A distribution: its source archive, and the wheel that was built from that."""

    def __init__(self, name: str, output: Path) -> None:
        self.package, self.folder = PACKAGES[name], ROOT / FOLDERS[name]
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(output), str(self.folder)]
        subprocess.run(command, check=True, capture_output=True)
        [wheel], [source] = output.glob(f"{name}-*.whl"), output.glob(f"{name}-*.tar.gz")
        with zipfile.ZipFile(wheel) as archive:
            self.files = {file: archive.read(file) for file in archive.namelist()}
        with tarfile.open(source) as archive:
            self.sources = {name.partition("/")[2] for name in archive.getnames()}
        self.info = f"{name}-{mnemon.__version__}.dist-info"
        self.metadata = Metadata.from_email(self.files[f"{self.info}/METADATA"], validate=True)

    def requirements(self, extra: str = "") -> set[str]:
        """The names of what it requires, without extras or for one."""
        required = [each for each in self.metadata.requires_dist or [] if not each.marker or extra]
        return {each.name for each in required if not each.marker or each.marker.evaluate({"extra": extra})}


@pytest.fixture(scope="module", params=PACKAGES)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(request.param, tmp_path_factory.mktemp("dist"))


def test_a_wheel_holds_the_files_of_its_package_and_no_others(built: Built) -> None:
    packaged = {file for file in built.files if not file.startswith(f"{built.info}/")}
    written = {file for file in (built.folder / built.package).rglob("*.*") if "__pycache__" not in file.parts}
    assert packaged == {str(file.relative_to(built.folder)) for file in written}
    assert f"{built.package}/py.typed" in packaged
    for stubs in ("memory_pb2.py", "memory_pb2.pyi", "memory_pb2_grpc.py", "service_config.json"):
        assert (f"mnemon/v1/{stubs}" in packaged) == (built.package == "mnemon")


def test_a_source_archive_holds_the_package_and_what_describes_it(built: Built) -> None:
    beside = {file for file in built.sources if not file.startswith(f"{built.package}/")}
    documents = {"ARCHIVES.md"} if built.package == "mnemon" else {"CONFIGURATION.md", "EMBEDDING.md"}
    assert beside == {"LICENSE", "PKG-INFO", "README.md", "pyproject.toml", ".gitignore"} | documents


def test_a_package_describes_itself(built: Built) -> None:
    told = built.metadata
    assert told.description == (built.folder / "README.md").read_text()
    assert (told.description_content_type, told.license_expression) == ("text/markdown", "Apache-2.0")
    assert {*(told.project_urls or {})} == {"Repository", "Changelog", "Issues"}
    assert built.files[f"{built.info}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    assert "Typing :: Typed" in (told.classifiers or [])


def test_a_description_has_no_link_that_works_only_in_this_repository(built: Built) -> None:
    links = re.findall(r"\]\(([^)#]+)", built.metadata.description or "")
    assert [link for link in links if not link.startswith("https://")] == []


def test_client_and_server_have_one_version(built: Built) -> None:
    assert str(built.metadata.version) == mnemon.__version__ == mnemon_server.__version__
    if built.package == "mnemon_server":
        assert Requirement(f"mnemon-client=={mnemon.__version__}") in (built.metadata.requires_dist or [])


def test_the_server_requires_the_model_that_its_builder_makes(built: Built) -> None:
    if built.package == "mnemon_server":
        assert Requirement(f"mnemon-minilm=={MINILM.builder_version}.*") in (built.metadata.requires_dist or [])
        model = (ROOT / "server/model/mnemon_minilm/__init__.py").read_text()
        assert f'__version__ = "{MINILM.builder_version}.' in model
        assert (ROOT / "server/model/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_the_client_requires_nothing_heavy(built: Built) -> None:
    if built.package == "mnemon":
        assert built.requirements() == {"grpcio", "grpcio-status", "googleapis-common-protos", "protobuf"}
        for extra in ("cli", "langgraph", "mcp"):
            assert not built.requirements(extra) & HEAVY


def test_each_package_has_its_command(built: Built) -> None:
    [line] = built.files[f"{built.info}/entry_points.txt"].decode().split("\n")[1:2]
    module = built.package
    assert line == f"{module.replace('_', '-')} = {module}.__main__:main"


def test_the_root_is_no_package() -> None:
    """Its pyproject.toml configures tools; `pip install .` there would install nothing useful."""
    assert not {"project", "build-system"} & tomllib.loads((ROOT / "pyproject.toml").read_text()).keys()
