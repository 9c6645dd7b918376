"""`mnemon-server verify-isolation`: tries to reach what belongs to others, on this server and on some with a hole."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mnemon_server.transport.server import DESCRIPTORS

from tests.support.access import make_key
from tests.support.cases import ordinary
from tests.support.mutation import Mutant, environment_of, mutants_of, write_package
from tests.support.server import run_command, server_process

HOLES = (
    ("domain/access/__init__.py", "Permission.allows: self.role <= role -> True"),
    ("domain/access/bounds.py", "Bounds.restricted: self.users is None -> True"),
)
"""Checks, each of which one build of the server lacks."""


@contextmanager
def serving(folder: Path, mutant: Mutant | None = None) -> Iterator[str]:
    """The address of a server that wants keys. With a mutant, the server has that change."""
    environment, flags = {}, ("--authentication", "api_key", "--knowledge-store-backend", "local")
    if mutant is not None:
        write_package(folder / "build", mutant)
        environment = environment_of(folder / "build")
    with server_process(folder / "data", *flags, environment=environment, program=mutant is not None) as process:
        yield process.address()


def verify(address: str, key: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return run_command("verify-isolation", "--address", address, "--tenants", "1", *flags, MNEMON_API_KEY=key)


def test_a_server_keeps_its_tenants_and_users_apart_and_every_method_is_tried(tmp_path: Path) -> None:
    operator = make_key(tmp_path / "data", "operator")
    with serving(tmp_path) as address:
        done = verify(address, operator, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        report = json.loads(done.stdout)
        method_count = sum(len(service.methods) for service in DESCRIPTORS)
        assert report["tried"]["refused: no valid credential"] == 3 * method_count
        assert report["tried"]["what others have is as if missing"] > 2 * method_count
        assert (report["isolated"], report["failures"], report["untried"]) == (True, [], [])
        left = run_command("tenants", "list", "--json", "--data-dir", str(tmp_path / "data"))
        assert [each["tenant"] for each in json.loads(left.stdout) if each["delete_time"] is None] == ["default"]


@pytest.mark.parametrize(
    ("module", "change"), ordinary(HOLES, 1), ids=[change.partition(":")[0] for _, change in HOLES]
)
def test_a_server_without_one_of_its_checks_is_found_out(tmp_path: Path, module: str, change: str) -> None:
    [mutant] = [each for each in mutants_of(module) if each.name == f"{module} {change}"]
    operator = make_key(tmp_path / "data", "operator")
    with serving(tmp_path, mutant) as address:
        done = verify(address, operator)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED" in done.stdout
    assert "isolation does NOT hold" in done.stdout


def test_it_needs_the_key_of_an_operator(tmp_path: Path) -> None:
    admin = make_key(tmp_path / "data", "admin")
    with serving(tmp_path) as address:
        done = verify(address, admin)
        assert (done.returncode, "needs the key of an operator" in done.stderr) == (2, True)
        assert verify(address, "").returncode == 2
