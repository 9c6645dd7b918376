"""A vault inside a program: the ordinary server with the SDK's client, in one `with` block."""

import asyncio
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mnemon
import pytest
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.embedded import open_embedded, open_embedded_async

from tests.support.server import START_S, clean_environment, run_command, server_process

ADA = ("user", "ada")
SETTINGS: dict[str, Any] = {"embedding_model": "hashing"}
PROGRAM = """
import sys
from mnemon_server.embedded import open_embedded
with open_embedded(sys.argv[1], embedding_model="hashing") as memory:
    memory.facts.put(("user", "ada"), "seat", {"content": "Ada prefers window seats."})
    print(memory.facts.get(("user", "ada"), "seat").value["content"])
    raise SystemExit(7)
"""


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary folders. It must be empty at the end."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)
        assert list(Path(folder).iterdir()) == []


def test_every_service_works_and_stored_records_stay(tmp_path: Path, sockets: Path) -> None:
    with open_embedded(tmp_path / "data", **SETTINGS) as memory:
        memory.facts.put(ADA, "seat", {"content": "Ada prefers window seats.", "rank": 5})
        memory.index("note", "Ada dislikes early flights.")
        memory.remember("Ada lives in Turin.", user="ada")
        manage = mnemon.create_manage_memory_tool(store=memory)
        created = manage(content="Ada has a cat.", config={"user_id": "ada"})
        assert created.startswith("created memory ")
    with open_embedded(tmp_path / "data", **SETTINGS) as memory:
        assert memory.facts.get(ADA, "seat").value == {"content": "Ada prefers window seats.", "rank": 5}
        assert memory.get("note").content == "Ada dislikes early flights."
        assert [match.memory.content for match in memory.recall("Turin", user="ada").results] == ["Ada lives in Turin."]
        search = mnemon.create_search_memory_tool(store=memory)
        assert "Ada has a cat." in search(query="cat", config={"user_id": "ada"})


async def test_it_serves_a_program_with_an_event_loop_of_its_own(tmp_path: Path, sockets: Path) -> None:
    async with open_embedded_async(tmp_path / "data", **SETTINGS) as memory:
        stored = [memory.facts.put(ADA, f"fact-{number}", {"content": f"number {number}"}) for number in range(20)]
        await asyncio.gather(*stored)
        found = [fact async for fact in memory.facts.list(namespace=ADA)]
    assert len(found) == 20


def test_two_vaults_are_kept_apart_in_one_program(tmp_path: Path, sockets: Path) -> None:
    with open_embedded(tmp_path / "a", **SETTINGS) as one, open_embedded(tmp_path / "b", **SETTINGS) as other:
        one.facts.put(ADA, "seat", {"content": "window"})
        with pytest.raises(mnemon.FactNotFoundError):
            other.facts.get(ADA, "seat")


def test_other_users_cannot_reach_the_socket(tmp_path: Path, sockets: Path) -> None:
    with open_embedded(tmp_path / "data", **SETTINGS):
        [folder] = sockets.iterdir()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        [socket] = folder.iterdir()
        assert stat.S_ISSOCK(socket.stat().st_mode)


def test_an_error_in_the_block_closes_the_vault_and_is_raised(tmp_path: Path, sockets: Path) -> None:
    def fail() -> None:
        with open_embedded(tmp_path / "data", **SETTINGS) as memory:
            memory.facts.put(ADA, "seat", {"content": "window"})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with open_embedded(tmp_path / "data", **SETTINGS) as memory:
        assert memory.facts.get(ADA, "seat").value == {"content": "window"}


def test_a_folder_that_a_server_uses_is_refused(tmp_path: Path, sockets: Path) -> None:
    with server_process(tmp_path / "data", "--knowledge-store-backend", "local") as server:
        assert server.address()
        with (
            pytest.raises(ConfigurationError, match="in use by another process"),
            open_embedded(tmp_path / "data", **SETTINGS),
        ):
            pytest.fail("the vault was opened")


def test_a_server_is_refused_the_folder_of_an_embedded_vault(tmp_path: Path, sockets: Path) -> None:
    with open_embedded(tmp_path / "data", **SETTINGS) as memory:
        memory.facts.put(ADA, "seat", {"content": "window"})
        flags = ["--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--embedding-model", "hashing"]
        refused = run_command("serve", *flags, "--knowledge-store-backend", "local")
        assert refused.returncode == 1
        assert "in use by another process" in refused.stderr
        assert memory.facts.get(ADA, "seat").value == {"content": "window"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"listen": "127.0.0.1:0"}, "omit listen"),
        ({"colour": "red"}, "'colour' is not a setting; the settings are: listen, "),
        ({"streams_max": 0}, r"setting streams_max \(argument\): 0 is invalid; it must be 1 or more"),
        ({"tls_key": "key.pem"}, "tls_certificate and tls_key belong together"),
        ({"tools_file": "/nowhere/tools.toml"}, r"tools\.toml: it cannot be read"),
    ],
)
def test_an_invalid_setting_is_refused(tmp_path: Path, sockets: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message), open_embedded(tmp_path / "data", **SETTINGS | settings):
        pytest.fail("the vault was opened")
    assert not (tmp_path / "data").exists()


def test_environment_variables_are_ignored(tmp_path: Path, sockets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MNEMON_STREAMS_MAX", "nonsense")
    monkeypatch.setenv("MNEMON_ADDRESS", "127.0.0.1:1")
    with open_embedded(tmp_path / "data", **SETTINGS) as memory:
        assert list(memory.facts.list(subtree=True)) == []


def test_the_embedded_server_logs_nothing_unasked(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", PROGRAM, str(tmp_path / "data")],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    # On a busy machine, asyncio's debug mode logs slow callbacks.
    said = [line for line in done.stderr.splitlines() if not (line.startswith("Executing <") and " took " in line)]
    assert (done.returncode, done.stdout, said) == (7, "Ada prefers window seats.\n", [])
