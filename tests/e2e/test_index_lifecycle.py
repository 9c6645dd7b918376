"""The vector index follows the records: acknowledged writes, rebuilding, gaps, and searches in the meantime."""

import asyncio
import urllib.error
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

from tests.support.chroma_index import collection_id, request
from tests.support.chroma_server import ChromaServer


@asynccontextmanager
async def store(folder: Path, chroma: ChromaServer, **options: Any) -> AsyncIterator[DocumentStore]:
    """A store in the folder, whose index is in a collection named after it."""
    own: dict[str, Any] = {"chroma_host": chroma.host, "chroma_port": chroma.port, "collection": folder.name}
    own |= {"embedding_model": "hashing", "exact_scan_passages_max": 0, "erasure_delay_s": 0.05, **options}
    settings = Settings(data_dir=folder, **own)
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


def held(chroma: ChromaServer, name: str) -> int:
    """The number of records in the collection; 0 while it is being recreated."""
    try:
        return int(request(chroma, f"/{collection_id(chroma, name)}/count", method="GET"))
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return 0


def remove(chroma: ChromaServer, name: str, *doc_ids: str) -> None:
    """Removes records as another client would."""
    request(chroma, f"/{collection_id(chroma, name)}/delete", {"ids": doc_ids})


async def test_a_searchable_write_is_in_the_index_once_acknowledged(tmp_path: Path, chroma: ChromaServer) -> None:
    async with store(tmp_path, chroma) as opened:
        receipts = await index(opened, 30, AckLevel.SEARCHABLE)
        assert not any(isinstance(receipt, MnemonError) for receipt in receipts)
        assert (await opened.check_health()).pending == 0
        await settled(opened)
        assert await found_through_index(opened, "number7 about rivers") == ["d7"]
        await opened.delete("d7", ack=AckLevel.SEARCHABLE)
        await opened.delete_many(DocumentFilter(scope=Scope(user="nobody")), ack=AckLevel.SEARCHABLE)
    assert await asyncio.to_thread(held, chroma, tmp_path.name) == 29


async def test_a_searchable_write_says_if_only_the_vector_database_is_missing(tmp_path: Path) -> None:
    missing = ChromaServer(tmp_path / "server")
    async with store(tmp_path / "data", missing) as opened:
        [failure] = await index(opened, 1, AckLevel.SEARCHABLE)
        assert isinstance(failure, BackendConnectionError)
        assert "is stored" in str(failure)
        assert f"127.0.0.1:{missing.port}" in str(failure)
        assert (await opened.get("d0")).content == "number0 about rivers"
        answer = await opened.search(SearchQuery(text="number0 rivers"))
        assert [result.doc_id for result in answer.results] == ["d0"]
        assert answer.diagnostics.degraded
        with pytest.raises(BackendConnectionError):
            async for _ in opened.rebuild_index():
                pass


async def test_a_rebuild_reports_progress_and_counts_what_is_out_of_reach(tmp_path: Path, chroma: ChromaServer) -> None:
    async with store(tmp_path, chroma) as opened:
        await index(opened, 300)
        await opened.index(IndexRequest(document=Document("secret", "xylophonequartz is a secret word")))
        await settled(opened)
        before = await asyncio.to_thread(collection_id, chroma, tmp_path.name)
        await opened.delete("secret")
        progress = [step async for step in opened.rebuild_index()]
        assert progress[-1].done == progress[-1].total == 300
        assert [step.done for step in progress] == sorted(step.done for step in progress)
        await settled(opened)
        assert await found_through_index(opened, "number41 about rivers") == ["d41"]
        assert await asyncio.to_thread(collection_id, chroma, tmp_path.name) != before
        # The server's own files still hold the text.
        async with asyncio.timeout(60):
            while (health := await opened.check_health()).removal_pending_count:  # noqa: ASYNC110 - what changes lies elsewhere
                await asyncio.sleep(0.05)
        assert health.removal_out_of_reach_count == 1


async def test_a_rebuild_continues_after_its_caller_has_left(tmp_path: Path, chroma: ChromaServer) -> None:
    async with store(tmp_path, chroma) as opened:
        await index(opened, 60)
        await settled(opened)
        before = await asyncio.to_thread(collection_id, chroma, tmp_path.name)
        async for progress in opened.rebuild_index():
            assert progress.total == 60
            break
        await settled(opened)
        assert await found_through_index(opened, "number41 about rivers") == ["d41"]
    assert await asyncio.to_thread(collection_id, chroma, tmp_path.name) != before
    assert await asyncio.to_thread(held, chroma, tmp_path.name) == 60


async def test_missing_entries_are_fed_again(tmp_path: Path, chroma: ChromaServer) -> None:
    async with store(tmp_path, chroma) as opened:
        await index(opened, 40)
        await settled(opened)
    await asyncio.to_thread(remove, chroma, tmp_path.name, "d3", "d4", "d5")
    async with store(tmp_path, chroma) as opened:
        assert (await found(opened, "number4 about rivers"))[0] == ["d4"]
        async with asyncio.timeout(120):
            while (await asyncio.to_thread(held, chroma, tmp_path.name)) < 40:  # noqa: ASYNC110 - what changes lies elsewhere
                await asyncio.sleep(0.05)
        await settled(opened)
    assert await asyncio.to_thread(held, chroma, tmp_path.name) == 40


async def test_documents_are_found_before_the_index_has_them(tmp_path: Path, chroma: ChromaServer) -> None:
    async with store(tmp_path, chroma) as opened:
        for i in range(60):
            await opened.index(IndexRequest(document=Document(f"d{i}", f"number{i} about rivers")))
            assert (await found(opened, f"number{i} about rivers"))[0] == [f"d{i}"]
            if i % 3 == 0:
                await opened.delete(f"d{i}")
                assert f"d{i}" not in (await found(opened, f"number{i} about rivers"))[0]


async def test_a_backend_without_an_index_says_so(tmp_path: Path, chroma: ChromaServer) -> None:
    async with store(tmp_path, chroma, knowledge_store_backend="local") as opened:
        with pytest.raises(InvalidOperationError, match="local has no vector index"):
            async for _ in opened.rebuild_index():
                pass
