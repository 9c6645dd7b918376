"""The vector index follows the records: acknowledged writes, rebuilding, gaps, and searches in the meantime."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mnemon_server.app import open_document_store
from mnemon_server.config.settings import Settings
from mnemon_server.domain.documents import Document, DocumentFilter, HealthStatus, IndexRequest, SearchQuery
from mnemon_server.domain.errors import BackendConnectionError, InvalidOperationError, MnemonError
from mnemon_server.domain.records import AckLevel, Scope
from mnemon_server.services.documents.store import DocumentStore

from tests.support.chroma_server import ChromaServer
from tests.support.databases import files_below

_CHANGE = """
import sys, chromadb
collection = chromadb.PersistentClient(sys.argv[1]).get_collection("knowledge", embedding_function=None)
if sys.argv[2] == "count": print(collection.count())
else: collection.delete(ids=sys.argv[2:])
"""


@asynccontextmanager
async def store(folder: Path, **options: Any) -> AsyncIterator[DocumentStore]:
    settings = Settings(data_dir=folder, embedding_model="hashing", exact_scan_passages_max=0, **options)
    async with open_document_store(settings, report=lambda _: None) as opened:
        yield opened


async def settled(opened: DocumentStore) -> None:
    async with asyncio.timeout(120):
        while True:
            health = await opened.check_health()
            if health.status is HealthStatus.HEALTHY and not health.pending:
                assert health.latency_s is not None
                return
            await asyncio.sleep(0.05)


async def index(opened: DocumentStore, count: int, ack: AckLevel = AckLevel.DURABLE) -> list[Any]:
    return await opened.index_many(
        [IndexRequest(document=Document(f"d{i}", f"number{i} about rivers"), ack=ack) for i in range(count)]
    )


async def found(opened: DocumentStore, text: str) -> tuple[list[str], bool]:
    answer = await opened.search(SearchQuery(text=text, top_k=1))
    return [result.doc_id for result in answer.results], answer.diagnostics.exact


async def found_through_index(opened: DocumentStore, text: str) -> list[str]:
    """What a search finds once it asks the index. While the index is opened again, searches compare all vectors."""
    async with asyncio.timeout(120):
        while (answer := await found(opened, text))[1]:  # noqa: ASYNC110 - what changes lies elsewhere
            await asyncio.sleep(0.05)
    return answer[0]


def with_chroma(folder: Path, *arguments: str) -> str:
    """Changes the files as a plain client of Chroma would, while no server runs."""
    command = [sys.executable, "-c", _CHANGE, str(folder / "tenants" / "default" / "chroma"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def files_that_hold(folder: Path, content: bytes) -> list[Path]:
    return [path for path, held in files_below(folder) if content in held]


async def test_a_searchable_write_is_in_the_vector_database_once_acknowledged(tmp_path: Path) -> None:
    async with store(tmp_path) as opened:
        receipts = await index(opened, 30, AckLevel.SEARCHABLE)
        assert not any(isinstance(receipt, MnemonError) for receipt in receipts)
        assert (await opened.check_health()).pending == 0
        await settled(opened)
        assert await found_through_index(opened, "number7 about rivers") == ["d7"]
        await opened.delete("d7", ack=AckLevel.SEARCHABLE)
        await opened.delete_many(DocumentFilter(scope=Scope(user="nobody")), ack=AckLevel.SEARCHABLE)
    assert await asyncio.to_thread(with_chroma, tmp_path, "count") == "29"


async def test_a_searchable_write_says_if_only_the_vector_database_is_missing(tmp_path: Path) -> None:
    with ChromaServer(tmp_path / "server") as chroma:
        port = chroma.port
    async with store(tmp_path / "data", chroma_host="127.0.0.1", chroma_port=port) as opened:
        [failure] = await index(opened, 1, AckLevel.SEARCHABLE)
        assert isinstance(failure, BackendConnectionError)
        assert "is stored" in str(failure)
        assert f"127.0.0.1:{port}" in str(failure)
        assert (await opened.get("d0")).content == "number0 about rivers"
        answer = await opened.search(SearchQuery(text="number0 rivers"))
        assert [result.doc_id for result in answer.results] == ["d0"]
        assert answer.diagnostics.degraded
        with pytest.raises(BackendConnectionError):
            async for _ in opened.rebuild_index():
                pass


async def test_a_rebuild_reports_progress_and_leaves_no_deleted_text(tmp_path: Path) -> None:
    async with store(tmp_path) as opened:
        await index(opened, 300)
        await opened.index(IndexRequest(document=Document("secret", "xylophonequartz is a secret word")))
        await settled(opened)
        await opened.delete("secret")
        progress = [step async for step in opened.rebuild_index()]
        assert progress[-1].done == progress[-1].total == 300
        assert [step.done for step in progress] == sorted(step.done for step in progress)
        await settled(opened)
        assert await found_through_index(opened, "number41 about rivers") == ["d41"]
    assert await asyncio.to_thread(files_that_hold, tmp_path, b"number41")
    assert await asyncio.to_thread(files_that_hold, tmp_path, b"xylophonequartz") == []


async def test_a_rebuild_continues_after_its_caller_has_left(tmp_path: Path) -> None:
    async with store(tmp_path) as opened:
        await index(opened, 60)
        await opened.index(IndexRequest(document=Document("secret", "xylophonequartz is a secret word")))
        await settled(opened)
        await opened.delete("secret")
        async for progress in opened.rebuild_index():
            assert progress.total == 60
            break
        async with asyncio.timeout(120):
            while await asyncio.to_thread(files_that_hold, tmp_path, b"xylophonequartz"):  # noqa: ASYNC110 - of a process
                await asyncio.sleep(0.05)
        assert (await found(opened, "number41 about rivers"))[0] == ["d41"]


async def test_missing_entries_are_fed_again(tmp_path: Path) -> None:
    async with store(tmp_path) as opened:
        await index(opened, 40)
        await settled(opened)
    await asyncio.to_thread(with_chroma, tmp_path, "d3", "d4", "d5")
    async with store(tmp_path) as opened:
        assert (await found(opened, "number4 about rivers"))[0] == ["d4"]
        async with asyncio.timeout(120):
            while (await asyncio.to_thread(_held, opened)) < 40:  # noqa: ASYNC110 - what changes lies elsewhere
                await asyncio.sleep(0.05)
        await settled(opened)
    assert await asyncio.to_thread(with_chroma, tmp_path, "count") == "40"


async def test_documents_are_found_before_the_index_has_them(tmp_path: Path) -> None:
    async with store(tmp_path) as opened:
        for i in range(60):
            await opened.index(IndexRequest(document=Document(f"d{i}", f"number{i} about rivers")))
            assert (await found(opened, f"number{i} about rivers"))[0] == [f"d{i}"]
            if i % 3 == 0:
                await opened.delete(f"d{i}")
                assert f"d{i}" not in (await found(opened, f"number{i} about rivers"))[0]


async def test_a_backend_without_an_index_says_so(tmp_path: Path) -> None:
    async with store(tmp_path, knowledge_store_backend="local") as opened:
        with pytest.raises(InvalidOperationError, match="local has no vector index"):
            async for _ in opened.rebuild_index():
                pass


def _held(opened: DocumentStore) -> int:
    assert opened._applier
    return opened._applier.index.open().entry_count
