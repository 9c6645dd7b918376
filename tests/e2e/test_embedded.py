"""A vault inside a program: the ordinary server with the SDK's client, as one object."""

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
from mnemon import AsyncMnemon, ConfigurationError, Mnemon

from tests.support.server import START_S, clean_environment, run_command, server_process

ADA = ("user", "ada")
SETTINGS: dict[str, Any] = {"embedding_model": "hashing"}
PROGRAM = """
import sys
from mnemon import Mnemon
with Mnemon(sys.argv[1], embedding_model="hashing") as memory:
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
    with Mnemon(tmp_path / "data", **SETTINGS) as memory:
        memory.facts.put(ADA, "seat", {"content": "Ada prefers window seats.", "rank": 5})
        memory.documents.put("note", "Ada dislikes early flights.")
        memory.remember("Ada lives in Turin.", user="ada")
        manage = mnemon.create_manage_memory_tool(store=memory)
        created = manage(content="Ada has a cat.", config={"user_id": "ada"})
        assert created.startswith("created memory ")
    with Mnemon(tmp_path / "data", **SETTINGS) as memory:
        assert memory.facts.get(ADA, "seat").value == {"content": "Ada prefers window seats.", "rank": 5}
        assert memory.documents.get("note").content == "Ada dislikes early flights."
        assert [match.memory.content for match in memory.memories.search("Turin", user="ada").results] == [
            "Ada lives in Turin."
        ]
        search = mnemon.create_search_memory_tool(store=memory)
        assert "Ada has a cat." in search(query="cat", config={"user_id": "ada"})


async def test_it_serves_a_program_with_an_event_loop_of_its_own(tmp_path: Path, sockets: Path) -> None:
    async with AsyncMnemon(tmp_path / "data", **SETTINGS) as memory:
        stored = [memory.facts.put(ADA, f"fact-{number}", {"content": f"number {number}"}) for number in range(20)]
        await asyncio.gather(*stored)
        found = [fact async for fact in memory.facts.list(namespace=ADA)]
    assert len(found) == 20


def test_two_vaults_are_kept_apart_in_one_program(tmp_path: Path, sockets: Path) -> None:
    with Mnemon(tmp_path / "a", **SETTINGS) as one, Mnemon(tmp_path / "b", **SETTINGS) as other:
        one.facts.put(ADA, "seat", {"content": "window"})
        with pytest.raises(mnemon.FactNotFoundError):
            other.facts.get(ADA, "seat")


def test_other_users_cannot_reach_the_socket(tmp_path: Path, sockets: Path) -> None:
    with Mnemon(tmp_path / "data", **SETTINGS):
        [folder] = sockets.iterdir()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        [socket] = folder.iterdir()
        assert stat.S_ISSOCK(socket.stat().st_mode)


def test_an_error_in_the_block_closes_the_vault_and_is_raised(tmp_path: Path, sockets: Path) -> None:
    def fail() -> None:
        with Mnemon(tmp_path / "data", **SETTINGS) as memory:
            memory.facts.put(ADA, "seat", {"content": "window"})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with Mnemon(tmp_path / "data", **SETTINGS) as memory:
        assert memory.facts.get(ADA, "seat").value == {"content": "window"}


def test_a_folder_that_a_server_uses_is_refused(tmp_path: Path, sockets: Path) -> None:
    with server_process(tmp_path / "data", "--knowledge-store-backend", "local") as server:
        assert server.address()
        with pytest.raises(ConfigurationError, match="in use by another process"):
            Mnemon(tmp_path / "data", **SETTINGS)


def test_a_server_is_refused_the_folder_of_an_embedded_vault(tmp_path: Path, sockets: Path) -> None:
    with Mnemon(tmp_path / "data", **SETTINGS) as memory:
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
        ({"search_rerankin": True}, "'search_rerankin' is not a setting; did you mean 'search_reranking'"),
        ({"streams_max": 0}, r"setting streams_max \(argument\): 0 is invalid; it must be 1 or more"),
        ({"tls_key": "key.pem"}, "tls_certificate and tls_key belong together"),
        ({"tools_file": "/nowhere/tools.toml"}, r"tools\.toml: it cannot be read"),
    ],
)
def test_an_invalid_setting_is_refused(tmp_path: Path, sockets: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Mnemon(tmp_path / "data", **SETTINGS | settings)
    assert not (tmp_path / "data").exists()


def test_a_vault_in_the_home_folder_stays_when_the_program_changes_its_folder(
    tmp_path: Path, sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with Mnemon("~/notes", **SETTINGS) as memory:
        memory.documents.put("a", "text")
    assert (tmp_path / "notes").is_dir()

    monkeypatch.chdir(tmp_path)
    with Mnemon("notes", **SETTINGS) as memory:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert memory.documents.get("a").content == "text"
        memory.documents.put("b", "more")
    assert not (tmp_path / "elsewhere" / "notes").exists()


def test_a_vault_in_memory_is_refused_with_what_to_write_instead(sockets: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"tempfile\.TemporaryDirectory\(\) as folder, Mnemon\(folder\)"):
        Mnemon(":memory:")


def test_environment_variables_are_ignored(tmp_path: Path, sockets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MNEMON_STREAMS_MAX", "nonsense")
    monkeypatch.setenv("MNEMON_ADDRESS", "127.0.0.1:1")
    with Mnemon(tmp_path / "data", **SETTINGS) as memory:
        assert list(memory.facts.list(subtree=True)) == []


def test_the_object_is_a_client_until_it_is_closed(tmp_path: Path, sockets: Path) -> None:
    memory = Mnemon(tmp_path / "data", **SETTINGS)
    assert isinstance(memory, mnemon.Client)
    assert repr(memory) == f"<Mnemon '{tmp_path}/data' (open)>"
    memory.documents.put("note", "Ada dislikes early flights.")
    memory.close()
    memory.close()
    assert repr(memory) == f"<Mnemon '{tmp_path}/data' (closed)>"
    with pytest.raises(RuntimeError, match="closed"):
        memory.documents.get("note")
    memory = Mnemon(tmp_path / "data", **SETTINGS)
    assert memory.documents.get("note").content == "Ada dislikes early flights."
    memory.close()


async def test_the_blocking_object_works_where_an_event_loop_runs(tmp_path: Path, sockets: Path) -> None:
    memory = Mnemon(tmp_path / "data", **SETTINGS)
    memory.documents.put("note", "Ada dislikes early flights.")
    assert [document.doc_id for document in memory.documents.list()] == ["note"]
    memory.close()


async def test_the_asyncio_object_works_without_a_block(tmp_path: Path, sockets: Path) -> None:
    memory = AsyncMnemon(tmp_path / "data", **SETTINGS)
    assert isinstance(memory, mnemon.AsyncClient)
    await memory.documents.put("note", "Ada dislikes early flights.")
    assert repr(memory) == f"<AsyncMnemon '{tmp_path}/data' (open)>"
    await memory.close()
    await memory.close()
    with pytest.raises(RuntimeError, match="closed"):
        await memory.documents.get("note")
    memory = AsyncMnemon(tmp_path / "data", **SETTINGS)
    assert (await memory.documents.get("note")).content == "Ada dislikes early flights."
    await memory.close()


async def test_the_event_loop_runs_while_a_vault_opens(tmp_path: Path, sockets: Path) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    memory = AsyncMnemon(tmp_path / "data", **SETTINGS)
    before = turns
    async with memory:
        assert turns > before + 10
    counting.cancel()


async def test_a_failed_start_is_told_by_the_block_and_by_the_first_call(tmp_path: Path, sockets: Path) -> None:
    (tmp_path / "data").write_text("a file where a folder is expected")
    with pytest.raises(ConfigurationError, match=r"cannot be used: .* is not a folder"):
        async with AsyncMnemon(tmp_path / "data", **SETTINGS):
            pytest.fail("the vault was opened")
    memory = AsyncMnemon(tmp_path / "data", **SETTINGS)
    with pytest.raises(ConfigurationError, match=r"cannot be used: .* is not a folder"):
        await memory.documents.count()
    (tmp_path / "data").unlink()
    await memory.close()
    Mnemon(tmp_path / "data", **SETTINGS).close()


async def test_a_second_opening_says_which_object_has_the_folder(
    tmp_path: Path, sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = Mnemon(tmp_path / "data", **SETTINGS)
    message = rf"'{tmp_path}/data' is already open in this program: it was opened at {__file__}:\d+; .* close it first"
    with pytest.raises(ConfigurationError, match=message):
        Mnemon("data", **SETTINGS)
    with pytest.raises(ConfigurationError, match=message):
        AsyncMnemon("data", **SETTINGS)
    first.documents.put("note", "The first one goes on.")
    first.close()
    with Mnemon("data", **SETTINGS) as second:
        assert second.documents.count() == 1


def test_a_dropped_object_gives_its_folder_back(tmp_path: Path, sockets: Path) -> None:
    Mnemon(tmp_path / "data", **SETTINGS).documents.put("note", "Ada dislikes early flights.")
    with Mnemon(tmp_path / "data", **SETTINGS) as memory:
        assert memory.documents.count() == 1


def test_the_vault_of_a_dropped_object_stays_open_for_what_it_had(tmp_path: Path, sockets: Path) -> None:
    documents = Mnemon(tmp_path / "data", **SETTINGS).documents
    documents.put("note", "Ada dislikes early flights.")
    assert repr(documents) == f"<Documents of '{tmp_path / 'data'}'>"
    assert documents.count() == 1
    del documents
    with Mnemon(tmp_path / "data", **SETTINGS) as memory:
        assert memory.documents.count() == 1


def test_vaults_in_memory_share_no_folder(tmp_path: Path, sockets: Path) -> None:
    settings = SETTINGS | {"knowledge_store_backend": "in_memory"}
    with Mnemon(tmp_path, **settings) as one, Mnemon(tmp_path, **settings) as other:
        one.documents.put("note", "Ada dislikes early flights.")
        assert (one.documents.count(), other.documents.count()) == (1, 0)


def run_program(program: str, data: Path, sockets: Path) -> tuple[int, str, list[str]]:
    """The exit code, standard output and the lines of standard error of a program."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program, str(data)],
        env=clean_environment() | {"TMPDIR": str(sockets)},
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    # On a busy machine, asyncio's debug mode logs slow callbacks.
    said = [line for line in done.stderr.splitlines() if not (line.startswith("Executing <") and " took " in line)]
    return done.returncode, done.stdout, said


def test_the_embedded_server_logs_nothing_unasked(tmp_path: Path, sockets: Path) -> None:
    assert run_program(PROGRAM, tmp_path / "data", sockets) == (7, "Ada prefers window seats.\n", [])


WITHOUT_HNSWLIB = """
import sys
sys.modules["hnswlib"] = None  # as where it is not installed
from mnemon import Mnemon
with Mnemon(sys.argv[1], embedding_model="hashing", graph_vectors_min=20) as memory:
    for number in range(40):
        memory.semantic.add(f"Ada visited museum{number}.", user="ada")
    print(memory.semantic.search("Ada visited museum7.", user="ada")[0].content)
    print(memory.semantic.create_snapshot().message)
"""


def test_it_works_without_hnswlib(tmp_path: Path, sockets: Path) -> None:
    code, printed, said = run_program(WITHOUT_HNSWLIB, tmp_path / "data", sockets)
    assert code == 0, said
    assert printed.splitlines() == [
        "Ada visited museum7.",
        "an index without a graph needs no snapshot (statements: 40)",
    ]


ENDS = """
import sys
from mnemon import Mnemon
memory = Mnemon(sys.argv[1], embedding_model="hashing")
memory.documents.put("note", "Ada dislikes early flights.")
"""
ENDS_WHILE_IT_WATCHES = """
import sys, threading
from mnemon import Mnemon
memory = Mnemon(sys.argv[1], embedding_model="hashing")
watch = memory.watch("earliest")  # it starts with the loop, which may come after the put
watching = threading.Event()
def read():
    for change in watch:
        watching.set()
thread = threading.Thread(target=read, daemon=True)
thread.start()
memory.documents.put("note", "Ada dislikes early flights.")
watching.wait()
"""
ENDS_AFTER_ITS_EVENT_LOOP = """
import asyncio, sys
from mnemon import AsyncMnemon
async def main():
    memory = AsyncMnemon(sys.argv[1], embedding_model="hashing")
    await memory.documents.put("note", "Ada dislikes early flights.")
    return memory
memory = asyncio.run(main())
"""


@pytest.mark.parametrize("program", [ENDS, ENDS_WHILE_IT_WATCHES, ENDS_AFTER_ITS_EVENT_LOOP])
def test_a_program_that_ends_closes_its_vault(tmp_path: Path, sockets: Path, program: str) -> None:
    assert run_program(program, tmp_path / "data", sockets) == (0, "", [])
    assert list(sockets.iterdir()) == []
    with Mnemon(tmp_path / "data", **SETTINGS) as memory:
        assert memory.documents.get("note").content == "Ada dislikes early flights."


def test_a_vault_can_be_closed_while_it_opens(tmp_path: Path, sockets: Path) -> None:
    program = """
import asyncio, sys
from mnemon import AsyncMnemon
async def main():
    await AsyncMnemon(sys.argv[1], embedding_model="hashing").close()
    async with AsyncMnemon(sys.argv[1], embedding_model="hashing") as memory:
        print(await memory.documents.count())
asyncio.run(main())
"""
    assert run_program(program, tmp_path / "data", sockets) == (0, "0\n", [])


def test_without_the_server_an_error_says_what_to_install(tmp_path: Path, sockets: Path) -> None:
    program = "import sys; sys.modules['apsw'] = None; import mnemon; mnemon.Mnemon(sys.argv[1])"
    returncode, _, said = run_program(program, tmp_path / "data", sockets)
    assert returncode == 1
    assert said[-1].endswith("pip install mnemon-server")
