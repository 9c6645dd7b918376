"""The pinned versions are complete, agree with each other, and have the hashes of their files."""

import re
import tomllib
from typing import Any

import pytest

from tests.support.repository import ROOT

NAMES = [
    *("build", "charts", "compile", "dev", "fuzz", "generate", "lock", "mesh", "neighbours", "openapi", "reference"),
    *("server", "vectors", "weights"),
]
# A version, perhaps only for some platforms, and the hashes of all its files, but no location.
PIN = re.compile(r"([a-z0-9.-]+)==([0-9][A-Za-z0-9.!]*)(?: ; [^\n\\]+)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n")


def _pins(name: str) -> dict[str, str]:
    text = re.sub(r"^ *#.*\n", "", (ROOT / f"requirements/{name}.txt").read_text(), flags=re.MULTILINE)
    assert PIN.sub("", text) == ""
    return {match[1]: match[2] for match in PIN.finditer(text)}


def _names(requirements: list[object]) -> set[str]:
    texts = (requirement for requirement in requirements if isinstance(requirement, str))
    return {re.sub(r"[-_.]+", "-", re.split(r"[<>=!~;\[ ]", text)[0]).lower() for text in texts}


def _project(folder: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text())


CLIENT, SERVER = (_project(folder)["project"] for folder in ("clients/python", "server"))
GROUPS = _project(".")["dependency-groups"]
OURS = {"mnemon-client", "mnemon-minilm"}
"""Published from this repository."""


@pytest.mark.parametrize("name", NAMES)
def test_every_line_is_one_exact_version_with_its_hashes_and_no_location(name: str) -> None:
    assert _pins(name)


def test_no_other_file_pins_anything() -> None:
    assert sorted(file.stem for file in (ROOT / "requirements").iterdir()) == NAMES


def test_the_servers_dependencies_are_pinned() -> None:
    assert _names(CLIENT["dependencies"] + SERVER["dependencies"]) - _pins("server").keys() == OURS


@pytest.mark.parametrize("name", NAMES)
def test_torch_and_its_drivers_are_pinned_nowhere(name: str) -> None:
    """Neither the server nor `make test` downloads them."""
    assert [pin for pin in _pins(name) if re.match(r"torch$|triton$|nvidia-|cuda-", pin)] == []
    assert name == "reference" or not {"sentence-transformers", "transformers"} & _pins(name).keys()


def test_the_dependencies_of_the_make_targets_are_pinned() -> None:
    extras = [each for extra in CLIENT["optional-dependencies"].values() for each in extra]
    dev = GROUPS["dev"] + GROUPS["test"] + GROUPS["lint"] + GROUPS["buf"] + extras
    dev += SERVER["optional-dependencies"]["hnswlib"] + SERVER["optional-dependencies"]["tokenizers"]
    assert _names(dev) - _pins("dev").keys() == set()
    transformers = SERVER["optional-dependencies"]["sentence-transformers"]
    assert _names(GROUPS["test"] + transformers) - _pins("reference").keys() == set()
    assert _names(GROUPS["generate"] + GROUPS["buf"]) - _pins("generate").keys() == set()
    assert _names(GROUPS["neighbours"] + extras) - _pins("neighbours").keys() == set()
    for name in ("build", "charts", "compile", "fuzz", "lock", "mesh", "vectors", "weights"):
        assert _names(GROUPS[name]) - _pins(name).keys() == set()


@pytest.mark.parametrize("name", ["dev", "reference"])
def test_the_tests_run_the_shipped_versions(name: str) -> None:
    server, tested = _pins("server"), _pins(name)
    assert {name: version for name, version in server.items() if tested.get(name) != version} == {}


def test_packages_installed_first_are_not_replaced_afterwards() -> None:
    build = _pins("build") | _pins("compile")
    for name in ("server", "dev", "reference"):
        pins = _pins(name)
        assert {name: version for name, version in build.items() if pins.get(name, version) != version} == {}
    assert _pins("fuzz")["json-repair"] == _pins("server")["json-repair"]
