"""The pinned versions are complete, plain, and agree with each other."""

import re
import tomllib

import pytest

from tests.support.repository import ROOT

PIN = re.compile(r"([A-Za-z0-9._-]+)==([0-9][A-Za-z0-9.]*)")


def _pins(name: str) -> dict[str, str]:
    lines = (ROOT / f"requirements/{name}.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    matches = [PIN.fullmatch(pin) for pin in pins]
    assert [pin for pin, match in zip(pins, matches, strict=True) if match is None] == []
    return {_normalised(match[1]): match[2] for match in matches if match}


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _names(requirements: list[object]) -> set[str]:
    texts = (requirement for requirement in requirements if isinstance(requirement, str))
    return {_normalised(re.split(r"[<>=!~;\[ ]", text)[0]) for text in texts}


@pytest.fixture
def project() -> dict[str, dict[str, object]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize("name", ["server", "dev", "generate", "fuzz", "weights"])
def test_every_line_is_one_exact_version_from_no_particular_place(name: str) -> None:
    assert _pins(name)


def test_what_the_server_asks_for_is_pinned_and_torch_is_not_among_it(project: dict[str, dict[str, object]]) -> None:
    asked = project["project"]["dependencies"] + project["project"]["optional-dependencies"]["server"]
    assert _names(asked) - _pins("server").keys() == set()
    assert "torch" not in _pins("server")
    assert [name for name in _pins("server") if name.startswith(("nvidia-", "cuda-"))] == []


def test_what_the_tests_ask_for_is_pinned(project: dict[str, dict[str, object]]) -> None:
    groups = project["dependency-groups"]
    asked = _names(groups["dev"] + groups["test"] + groups["lint"] + groups["buf"])
    assert asked - _pins("dev").keys() == set()
    assert _names(groups["generate"] + groups["buf"]) - _pins("generate").keys() == set()
    assert _names(groups["fuzz"]) - _pins("fuzz").keys() == set()


def test_the_tests_run_the_versions_that_are_served() -> None:
    server, dev = _pins("server"), _pins("dev")
    assert {name: version for name, version in server.items() if dev.get(name) != version} == {}
    assert _pins("fuzz")["json-repair"] == server["json-repair"]


def test_torch_is_the_version_that_the_makefile_asks_for() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert f"\nTORCH := {_pins('dev')['torch']}\n" in makefile
