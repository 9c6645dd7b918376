"""Every method of both Python clients against a real server, including one that is killed in the middle."""

import inspect
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import mnemon
import pytest
from mnemon import AsyncClient, Client, Document, Scope

from tests.support.chroma_server import ChromaServer
from tests.support.ports import HeldPort
from tests.support.server import START_S, ServerProcess, server_process, wait_until

NOTES: list[tuple[str, str, dict[str, Any]]] = [
    ("travel-1", "Ada prefers window seats on long flights.", {"topic": "travel", "year": 2023}),
    ("travel-2", "The night train to Vienna leaves at nine.", {"topic": "travel", "year": 2024}),
    ("work-1", "The quarterly report is due on Friday.", {"topic": "work", "year": 2024}),
]


class Server:
    """A server process that can be killed and restarted with the same address and data."""

    def __init__(self, data_dir: Path, *flags: str) -> None:
        self._data_dir, self._flags = data_dir, flags
        self._port = HeldPort()
        self.address = self._port.address
        self.start()

    def kill(self) -> None:
        """Ends it as a power cut would."""
        self._process.end()

    def start(self) -> None:
        """Starts it again, and waits until it serves."""
        self._process = ServerProcess(self._data_dir, *self._flags, "--listen", self.address)
        assert self._process.address() == self.address


@contextmanager
def restartable_server(data_dir: Path, *flags: str) -> Iterator[Server]:
    server = Server(data_dir, *flags)
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, chroma: ChromaServer) -> Iterator[Server]:
    flags = ("--chroma-host", chroma.host, "--chroma-port", str(chroma.port), "--collection", "of-the-client")
    with restartable_server(tmp_path_factory.mktemp("data"), *flags) as running:
        with Client(running.address) as client:
            # The vector database starts after the server.
            wait_until(lambda: client.documents.status().status == mnemon.HealthStatus.HEALTHY, START_S)
        yield running


@pytest.fixture
def memory(server: Server) -> Iterator[Client]:
    """A client of a store that holds the three notes."""
    with Client(server.address) as client:
        for document in client.documents.list(view="ids"):
            client.documents.delete(document.doc_id)
        for result in client.documents.put_many(NOTES):
            assert result.error is None
        yield client


@asynccontextmanager
async def asyncio_client(server: Server) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.address) as client:
        yield client


def test_a_document_comes_back_as_it_was_given(memory: Client) -> None:
    metadata: dict[str, Any] = {
        "title": "Grüße 🚀",
        "pages": 2**53 + 1,
        "weight": 5.0,
        "draft": False,
        "tags": ["a", "b"],
        "when": datetime(2024, 5, 1, 12, 30, 0, 123456, tzinfo=UTC),
    }
    scope = Scope(user="ada", project="x")

    receipt = memory.documents.put("späti/1", "日本語のテキスト and more", metadata, scope=scope)
    found = memory.documents.get("späti/1")

    assert (receipt.id, receipt.outcome, receipt.revision) == ("späti/1", mnemon.WriteOutcome.CREATED, 1)
    assert (found.content, found.scope, found.revision) == ("日本語のテキスト and more", scope, 1)
    assert found.metadata == metadata
    assert {key: type(value) for key, value in found.metadata.items()} == {k: type(v) for k, v in metadata.items()}
    assert found.create_time == found.update_time == receipt.commit_time
    assert found.passage_count == 1


def test_a_document_is_changed_in_part(memory: Client) -> None:
    scope = Scope(user="ada", project="x")
    memory.documents.put("note", "Ada drinks tea.", {"topic": "drinks", "year": 2023}, scope=scope)

    receipt = memory.documents.update(
        "note", set_metadata={"year": 2024}, remove_metadata=["topic"], scope={"project": "y"}
    )
    assert (receipt.outcome, receipt.revision) == (mnemon.WriteOutcome.REPLACED, 2)
    found = memory.documents.get("note")
    assert (found.content, found.metadata, found.scope) == (
        "Ada drinks tea.",
        {"year": 2024},
        Scope("ada", project="y"),
    )

    memory.documents.update(
        "note", content="Ada drinks coffee.", metadata={}, scope=Scope(user="bob"), expected_revision=2
    )
    found = memory.documents.get("note")
    assert (found.content, found.metadata, found.scope) == ("Ada drinks coffee.", {}, Scope(user="bob"))
    assert memory.documents.search("Ada drinks coffee.")[0].doc_id == "note"
    with pytest.raises(mnemon.RevisionMismatchError):
        memory.documents.update("note", content="x", expected_revision=2)
    with pytest.raises(mnemon.DocumentNotFoundError):
        memory.documents.update("nowhere", content="x")
    for wrong in ({"remove_metadata": "topic"}, {"scope": {"nobody": "x"}}, {}):
        with pytest.raises(mnemon.InvalidArgumentError):
            memory.documents.update("note", **wrong)


@pytest.mark.parametrize("mode", ["hybrid", "vector", "keyword"])
def test_a_search_finds_the_nearest_first_and_explains_itself(memory: Client, mode: str) -> None:
    answer = memory.documents.search("window seats on flights", limit=2, mode=mode)

    assert answer[0].doc_id == "travel-1"
    assert 0 < answer[0].score <= 1
    assert [hit.score for hit in answer] == sorted((hit.score for hit in answer), reverse=True)
    assert (answer[0].vector_score is None) == (mode == "keyword")
    assert (answer[0].keyword_score is None) == (mode == "vector")
    assert answer[0].passage_text == NOTES[0][1]
    assert answer.diagnostics.mode == mode
    assert answer.diagnostics.total_candidates == 3


def test_filters_and_scope_narrow_a_search_by_type_and_value(memory: Client) -> None:
    memory.documents.put("scoped", "window seats for Bob", scope=Scope(user="bob"))

    def ids(**arguments: Any) -> set[str]:
        return {hit.doc_id for hit in memory.documents.search("window seats report train", **arguments)}

    assert ids(filters={"topic": "travel", "year": 2024}) == {"travel-2"}
    assert ids(filters={"topic": "nothing"}) == set()
    assert ids(scope=Scope(user="bob")) == {"scoped"}


def test_expressions_filter_documents_in_every_method_that_filters(memory: Client) -> None:
    since = mnemon.F("metadata.year") >= 2024
    assert {hit.doc_id for hit in memory.documents.search("window report train", where=since)} == {"travel-2", "work-1"}
    assert [found.doc_id for found in memory.documents.list(where={"doc_id": {"in": ["travel-1", "x"]}})] == [
        "travel-1"
    ]
    assert memory.documents.count(where=since, filters={"topic": "work"}) == 1
    assert memory.documents.delete_many(where=~since).deleted_count == 1
    assert memory.documents.count() == 2


def test_a_vector_can_replace_the_query_text(memory: Client) -> None:
    [vector] = memory.documents.get("work-1", view="full").embeddings
    answer = memory.documents.search("", vector=vector, limit=1)
    assert (answer[0].doc_id, answer.diagnostics.mode) == ("work-1", "vector")
    assert memory.documents.search("", vector=vector, view="ids", limit=1)[0].document == Document(
        "work-1", "", revision=1
    )


def test_a_blank_query_or_a_limit_of_zero_finds_nothing(memory: Client) -> None:
    assert not memory.documents.search(" ")
    assert not memory.documents.search("window", limit=0)


def test_a_missing_document_is_not_found(memory: Client) -> None:
    with pytest.raises(mnemon.DocumentNotFoundError, match="nowhere") as raised:
        memory.documents.get("nowhere")

    assert raised.value.reason == "DOCUMENT_NOT_FOUND"
    assert raised.value.request_id


def test_a_bad_document_is_refused_and_each_field_is_named(memory: Client) -> None:
    with pytest.raises(mnemon.InvalidArgumentError) as raised:
        memory.documents.put("", " ", {"chroma:x": 1})

    fields = {violation.field for violation in raised.value.violations}
    assert {"document.doc_id", "document.content"} <= fields


def test_list_reads_all_pages_and_a_page_reads_one(memory: Client) -> None:
    list(memory.documents.put_many((f"page-{number:03}", f"text {number}") for number in range(25)))

    ids = [document.doc_id for document in memory.documents.list(page_size=7)]
    page = memory.documents.list_page(page_size=7)

    assert ids == [note[0] for note in NOTES] + [f"page-{number:03}" for number in range(25)]
    assert [document.doc_id for document in page.documents] == ids[:7]
    following = memory.documents.list_page(page_size=7, page_token=page.next_page_token)
    assert [document.doc_id for document in following.documents] == ids[7:14]
    with pytest.raises(mnemon.InvalidPageTokenError):
        memory.documents.list_page(page_token=page.next_page_token, filters={"topic": "travel"})


def test_count_delete_and_delete_many(memory: Client) -> None:
    assert memory.documents.count() == 3
    assert memory.documents.count(filters={"topic": "travel"}) == 2
    assert memory.documents.delete("work-1").outcome == mnemon.WriteOutcome.DELETED
    assert memory.documents.delete("work-1", allow_missing=True).outcome == mnemon.WriteOutcome.MISSING
    with pytest.raises(mnemon.DocumentNotFoundError):
        memory.documents.delete("work-1")
    assert memory.documents.delete_many(filters={"topic": "travel"}, dry_run=True).deleted_count == 2
    assert memory.documents.count() == 2
    assert memory.documents.delete_many(filters={"topic": "travel"}).deleted_count == 2
    assert memory.documents.count() == 0
    assert not memory.documents.search("window seats")


def test_named_documents_facts_and_memories_are_removed_and_missing_ones_are_not_counted(memory: Client) -> None:
    ada = ("user", "ada")
    for _ in memory.documents.put_many((f"note-{number}", "text") for number in range(300)):
        pass
    assert memory.documents.delete_many([f"note-{number}" for number in range(1, 400)]).deleted_count == 299
    assert {document.doc_id for document in memory.documents.list()} == {note[0] for note in NOTES} | {"note-0"}

    for key in ("tea", "cat"):
        memory.facts.put(ada, key, {"content": key})
    assert memory.facts.delete_many(ada, ["tea", "absent"]).deleted_count == 1
    assert [fact.key for fact in memory.facts.list(ada)] == ["cat"]

    hidden, kept = (memory.remember(content).memory_id for content in ("Ada sings.", "Ada runs."))
    memory.memories.delete(hidden)
    assert memory.memories.purge([hidden, kept], only_deleted=True, dry_run=True).purged_count == 1
    assert memory.memories.purge([hidden, kept]).purged_count == 2


def test_a_delete_of_everything_or_by_a_bad_filter_is_refused(memory: Client) -> None:
    with pytest.raises(mnemon.InvalidArgumentError, match="filters"):
        memory.documents.delete_many()
    with pytest.raises(mnemon.InvalidArgumentError, match="filters"):
        memory.documents.delete_many(filters={"topic": None})  # type: ignore[dict-item]
    assert memory.documents.count() == 3


_SWAPPED = {"created_from": datetime(2026, 2, 1, tzinfo=UTC), "created_to": datetime(2026, 1, 1, tzinfo=UTC)}


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda memory: memory.recall("x", since="2026-02-01", until="2026-01-01"), "until: must not be before since"),
        (
            lambda memory: memory.timeline.summarize(since="2026-02-01", until="2026-01-01"),
            "until: must not be before since",
        ),
        (lambda memory: [*memory.memories.list(**_SWAPPED)], "created_to: must not be before created_from"),
        (lambda memory: [*memory.semantic.list(**_SWAPPED)], "created_to: must not be before created_from"),
        (
            lambda memory: memory.conversations.delete_messages("c", user="ada"),
            "message_ids: exactly one of message_ids, last and after must be set",
        ),
        (lambda memory: memory.documents.delete_many(), "filters: must not be empty if `where` is: "),
        (lambda memory: memory.memories.purge(), "where: must not be empty unless only_deleted is set: "),
        (lambda memory: [*memory.changes.list("soon")], "since: must be an unchanged cursor "),
    ],
)
def test_an_error_names_the_argument_and_not_the_field_of_the_request(
    memory: Client, call: Callable[[Client], object], told: str
) -> None:
    with pytest.raises(mnemon.InvalidArgumentError, match=f"^{re.escape(told)}") as refused:
        call(memory)
    assert refused.value.violations[0].field == told.partition(":")[0]


def test_a_filter_that_would_have_to_compare_a_list_is_refused_with_what_does(memory: Client) -> None:
    memory.documents.put("tags", "Bread.", {"tags": ["food"]})
    with pytest.raises(mnemon.InvalidArgumentError, match=r"filters\.tags: .* a list of texts, which `where` compares"):
        memory.documents.search("bread", filters={"tags": "food"}, strict=True)


def test_bad_items_of_a_bulk_fail_alone(memory: Client) -> None:
    documents: list[Any] = [
        ("ok-1", "text"),
        ("", "no id"),
        ("no-text", "  "),
        ("null", "x", {"k": None}),
        ("ok-2", "text"),
    ]

    results = list(memory.documents.put_many(documents, scope=Scope(project="bulk")))

    assert [result.doc_id for result in results] == ["ok-1", "", "no-text", "null", "ok-2"]
    assert [result.receipt is not None for result in results] == [True, False, False, False, True]
    assert all(isinstance(result.error, mnemon.InvalidArgumentError) for result in results[1:4])
    assert memory.documents.count(scope=Scope(project="bulk")) == 2


def test_a_document_read_from_one_store_can_be_indexed_unchanged(memory: Client) -> None:
    copies = [Document(f"copy-{each.doc_id}", each.content, each.metadata) for each in memory.documents.list()]

    assert all(result.receipt for result in memory.documents.put_many(copies))
    assert memory.documents.get("copy-travel-1").metadata == NOTES[0][2]


def test_a_rebuild_reports_progress_to_the_end(memory: Client) -> None:
    steps = list(memory.documents.rebuild_index())

    assert steps[-1].done == steps[-1].total == 3
    assert memory.documents.search("window seats")[0].doc_id == "travel-1"


async def test_the_asyncio_client_has_every_method(server: Server, memory: Client) -> None:
    async with asyncio_client(server) as client:
        await client.wait_until_ready(timeout=60)
        assert (await client.documents.put("async-1", "An asynchronous note.")).outcome == mnemon.WriteOutcome.CREATED
        assert (await client.documents.get("async-1")).content == "An asynchronous note."
        assert (await client.documents.update("async-1", set_metadata={"n": 1})).revision == 2
        assert (await client.documents.search("asynchronous note"))[0].doc_id == "async-1"
        assert [document.doc_id async for document in client.documents.list(page_size=2)][-1] == "async-1"
        assert len((await client.documents.list_page(page_size=2)).documents) == 2
        assert await client.documents.count() == 4
        many = [(f"many-{number}", "text") for number in range(150)]
        results = [result async for result in client.documents.put_many(many)]
        assert [result.doc_id for result in results if result.receipt] == [doc_id for doc_id, _ in many]
        assert (await client.documents.delete("async-1")).outcome == mnemon.WriteOutcome.DELETED
        assert (await client.documents.delete_many(filters={"topic": "travel"}, dry_run=True)).deleted_count == 2
        assert [step async for step in client.documents.rebuild_index()][-1].done == 153
        assert (await client.documents.status()).status == mnemon.HealthStatus.HEALTHY
        with pytest.raises(mnemon.DocumentNotFoundError):
            await client.documents.get("async-1")


def test_the_clients_have_the_same_methods_with_the_same_arguments() -> None:
    def methods(of: type) -> dict[str, list[tuple[str, Any]]]:
        return {
            name: [(each.name, each.default) for each in inspect.signature(method).parameters.values()]
            for name, method in inspect.getmembers(of, inspect.isfunction)
            if not name.startswith("_")
        }

    assert methods(Client) == methods(AsyncClient)


def test_a_client_continues_after_a_restart_of_the_server(tmp_path: Path) -> None:
    with restartable_server(tmp_path) as server, Client(server.address) as client:
        client.documents.put("a", "text")
        server.kill()
        with pytest.raises(mnemon.ServerUnreachableError, match=re.escape(server.address)):
            client.documents.get("a")
        server.start()
        client.wait_until_ready(timeout=120)
        assert client.documents.get("a").content == "text"


def test_a_bulk_survives_a_killed_server_and_stores_every_document_once(tmp_path: Path) -> None:
    documents = [(f"note-{number}", f"This is note number {number}.") for number in range(1500)]
    with restartable_server(tmp_path) as server, Client(server.address) as client:
        results = []
        for result in client.documents.put_many(documents):
            results.append(result)
            if len(results) == 300:
                server.kill()
                server.start()

        assert [result.doc_id for result in results] == [doc_id for doc_id, _ in documents]
        assert [result.error for result in results if result.error] == []
        stored = list(client.documents.list(page_size=1000))
        assert sorted(document.doc_id for document in stored) == sorted(doc_id for doc_id, _ in documents)
        assert {document.revision for document in stored} == {1}


async def test_the_asyncio_bulk_survives_it_too(tmp_path: Path) -> None:
    documents = [(f"note-{number}", f"This is note number {number}.") for number in range(800)]
    with restartable_server(tmp_path) as server:
        async with AsyncClient(server.address) as client:
            outcomes = []
            async for result in client.documents.put_many(documents):
                outcomes.append(result.receipt.outcome if result.receipt else result.error)
                if len(outcomes) == 100:
                    server.kill()
                    server.start()

            assert outcomes == [mnemon.WriteOutcome.CREATED] * len(documents)
            assert await client.documents.count() == len(documents)


def _make_certificate(folder: Path) -> tuple[Path, Path]:
    """Makes a self-signed certificate for 127.0.0.1, and its key."""
    certificate, key = folder / "server.pem", folder / "server.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=mnemon", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


def test_a_tls_server_is_reached_only_with_its_certificate_authority(tmp_path: Path) -> None:
    certificate, key = _make_certificate(tmp_path)
    flags = ("--tls-certificate", str(certificate), "--tls-key", str(key), "--knowledge-store-backend", "in_memory")
    with server_process(tmp_path / "data", *flags) as server:
        address = server.address()
        with Client(address, ca_file=certificate) as client:
            client.documents.put("a", "text")
            assert client.documents.count() == 1
        for wrong in (Client(address), Client(address, tls=True)):
            with wrong, pytest.raises(mnemon.ServerUnreachableError):
                wrong.documents.count()


def test_one_client_serves_many_threads(memory: Client) -> None:
    with ThreadPoolExecutor(8) as threads:
        receipts = list(
            threads.map(lambda number: memory.documents.put(f"thread-{number}", f"text {number}"), range(64))
        )

    assert {receipt.outcome for receipt in receipts} == {mnemon.WriteOutcome.CREATED}
    assert memory.documents.count() == 3 + 64


def test_the_example_of_the_readme_runs_as_printed(tmp_path: Path) -> None:
    readme = Path(__file__).parents[2] / "clients" / "python" / "README.md"
    example, *_ = re.findall(
        r"```python\n(from mnemon import Client\n.*?)```", readme.read_text(encoding="utf-8"), re.DOTALL
    )
    with restartable_server(tmp_path) as server:
        script = example.replace("127.0.0.1:50051", server.address)
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"0\.\d\d  note-1  Ada prefers window seats on long flights\.\n", done.stdout)


@pytest.mark.parametrize("size", [4_500_000, 11_000_000])
async def test_a_text_that_is_too_large_is_refused_with_what_to_do(memory: Client, server: Server, size: int) -> None:
    text = "word " * (size // 5)
    with pytest.raises(mnemon.MessageTooLargeError) as raised:
        memory.documents.put("book", text)
    with pytest.raises(mnemon.MessageTooLargeError) as raised_async:
        async with asyncio_client(server) as client:
            await client.documents.put("book", text)
    for error in (raised.value, raised_async.value):
        assert (error.code, error.reason) == ("RESOURCE_EXHAUSTED", "MESSAGE_TOO_LARGE")
        assert re.search(r"\d,\d{3},\d{3}", error.message)
    with pytest.raises(mnemon.NotFoundError):
        memory.documents.get("book")
