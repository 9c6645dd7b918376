"""Profiles of the command: named connections with secrets, in a file that only their owner reads."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from mnemon._cli.profiles import profiles_file

from tests.e2e.test_certificates import ROBOT, tls_server
from tests.support.access import guarded_server, make_key
from tests.support.certificates import Authority
from tests.support.command import Done, run


@pytest.fixture(autouse=True)
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the profiles of the test are."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("MNEMON_API_KEY", raising=False)
    monkeypatch.delenv("MNEMON_PROFILE", raising=False)
    profiles_file().parent.mkdir(parents=True)
    return profiles_file()


def write(path: Path, mode: int = 0o600, **profiles: dict[str, Any]) -> None:
    tables = (
        f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in profile.items())
        for name, profile in profiles.items()
    )
    path.write_text("\n".join(tables), encoding="utf-8")
    path.chmod(mode)


async def whoami(address: str, *options: str) -> Done:
    return await asyncio.to_thread(run, address, *options, "whoami", "--json")


async def test_a_profile_says_where_the_server_is_and_who_calls(
    tmp_path: Path, profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob = (make_key(tmp_path / "data", "reader", tenant=tenant) for tenant in ("ada", "bob"))
    async with guarded_server(tmp_path / "data") as connection:
        address = str(connection.server.address)
        write(profiles, ada={"address": address, "api_key": ada}, bob={"address": "127.0.0.1:1", "token": bob})
        assert json.loads((await whoami("127.0.0.1:1", "--profile", "ada")).stdout)["tenant"] == "ada"
        # An option says more than the profile, and the profile more than the environment.
        found = await whoami("127.0.0.1:1", "--profile", "bob", "--address", address)
        assert json.loads(found.stdout)["tenant"] == "bob"
        monkeypatch.setenv("MNEMON_API_KEY", bob)
        assert json.loads((await whoami("127.0.0.1:1", "--profile", "ada")).stdout)["tenant"] == "ada"
        monkeypatch.setenv("MNEMON_PROFILE", "ada")
        assert json.loads((await whoami("127.0.0.1:1")).stdout)["tenant"] == "ada"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_secrets_that_others_may_read_are_refused(profiles: Path, mode: int) -> None:
    write(profiles, mode, plain={"address": "127.0.0.1:1"}, ada={"api_key": "mn_secret"})
    for name in ("ada", "plain"):
        done = run("127.0.0.1:1", "--profile", name, "whoami")
        assert done.returncode == 2
        assert f"chmod 600 {profiles}" in done.stderr
        assert "mn_secret" not in done.stderr


def test_a_file_without_secrets_may_be_read_by_others(profiles: Path) -> None:
    write(profiles, 0o644, plain={"address": "127.0.0.1:1", "timeout": 1})
    done = run("127.0.0.1:2", "--profile", "plain", "whoami")
    assert "no server answers at 127.0.0.1:1" in done.stderr


@pytest.mark.parametrize(
    ("profile", "says"),
    [
        ({"host": "127.0.0.1:1"}, "'host' is not a key"),
        ({"tls": "yes"}, "tls of the profile 'work' .* must be true or false"),
        ({"timeout": True}, "timeout .* must be a number"),
        ({"api_key": 7}, "api_key .* must be a text"),
        ({"api_key": "mn_a", "token": "b"}, "api_key contradicts token"),
        ({"certificate_file": "robot.pem"}, "--certificate and --key belong together"),
        ({"ca_file": "missing.pem"}, "missing.pem"),
    ],
)
def test_a_profile_that_is_not_valid_is_refused(profiles: Path, profile: dict[str, Any], says: str) -> None:
    write(profiles, work=profile)
    done = run("127.0.0.1:1", "--profile", "work", "whoami")
    assert done.returncode == 2
    assert re.search(says, " ".join(done.stderr.split())), done.stderr


def test_a_missing_profile_is_named(profiles: Path) -> None:
    assert "profiles.toml cannot be read" in " ".join(run("127.0.0.1:1", "--profile", "work", "whoami").stderr.split())
    write(profiles, home={})
    assert "has no profile 'work'; it has 'home'" in run("127.0.0.1:1", "--profile", "work", "whoami").stderr
    profiles.write_text('[work]\napi_key = "mn_secret', encoding="utf-8")
    done = run("127.0.0.1:1", "--profile", "work", "whoami")
    assert "are not TOML" in done.stderr
    assert "mn_secret" not in done.stderr


async def test_certificates_of_a_profile_are_looked_for_beside_it(tmp_path: Path, profiles: Path) -> None:
    authority = Authority(profiles.parent)
    authority.issue("robot", ROBOT)
    async with tls_server(tmp_path, authority) as connection:
        address = str(connection.server.address)
        files = {"ca_file": "authority.pem", "certificate_file": "robot.pem", "key_file": "robot.key"}
        write(profiles, robot={"address": address, **files})
        assert json.loads((await whoami("127.0.0.1:1", "--profile", "robot")).stdout)["subject"] == f"mtls:{ROBOT}"
        given = zip(("ca", "certificate", "key"), files.values(), strict=True)
        options = [f"--{name}={profiles.parent / file}" for name, file in given]
        assert json.loads((await whoami(address, *options)).stdout)["subject"] == f"mtls:{ROBOT}"


async def test_a_certificate_counts_before_the_key_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    certificate, private = authority.issue("robot", ROBOT)
    monkeypatch.setenv("MNEMON_API_KEY", make_key(tmp_path / "data", "admin"))
    async with tls_server(tmp_path, authority, authentication=("api_key", "mtls")) as connection:
        options = ("--ca", str(authority.path), "--certificate", str(certificate), "--key", str(private))
        found = await whoami(f"localhost:{connection.server.address.port}", *options)
        assert json.loads(found.stdout)["subject"] == f"mtls:{ROBOT}"


async def test_a_refusal_names_the_environment_if_the_credential_came_from_there(
    tmp_path: Path, profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MNEMON_API_KEY", "mn_secret")
    write(profiles, ada={"api_key": "mn_secret"})
    async with guarded_server(tmp_path / "data") as connection:
        address = str(connection.server.address)
        for options, named in (((), True), (("--profile", "ada"), False)):
            done = await whoami(address, *options)
            assert done.returncode == 1
            assert ("came from MNEMON_API_KEY" in done.stderr) is named
            assert "mn_secret" not in done.stderr


def test_the_command_waits_for_a_server_as_long_as_it_is_told() -> None:
    done = run("127.0.0.1:1", "--wait", "0.1", "whoami")
    assert done.returncode == 1
    assert "127.0.0.1:1 was not ready within 0.1 s" in done.stderr
