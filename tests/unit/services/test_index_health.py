"""What the stores report while a vector database starts. None of their calls waits for it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from mnemon_server.domain.collections import DOCUMENTS, MEMORIES
from mnemon_server.domain.documents import Document, IndexRequest, SearchQuery
from mnemon_server.domain.errors import BackendConnectionError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.memories import CreateMemory, Memory
from mnemon_server.embedding.base import Vector
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.embedding.factory import HashingEmbedder
from mnemon_server.engines.promises.values import Scores
from mnemon_server.engines.promises.vector_index import IndexEntry, IndexState
from mnemon_server.engines.sqlite.scanners import VectorSettings
from mnemon_server.engines.sqlite_vault import SQLiteVault, VaultSettings
from mnemon_server.services.documents.store import DocumentStore
from mnemon_server.services.memories.store import MemoryStore
from mnemon_server.services.search.index_applier import IndexApplier
from mnemon_server.services.search.settings import VectorBackend

from tests.support.gated_embedder import DEADLINE_S

NO_GRAPHS = VaultSettings(VectorSettings(graphs_of=()))


class SlowDatabase:
    """A vector database that starts only after `started` is set, and then answers or not."""

    name, host = "slow", "db.example:8000"

    def __init__(self, *, answers: bool) -> None:
        self.started = threading.Event()
        self._answers = answers

    def open(self) -> IndexState:
        if not self.started.wait(DEADLINE_S):
            raise TimeoutError("it was never started")
        return self.reset()

    def reset(self) -> IndexState:
        return IndexState(generation="one", entry_count=10)

    def ping(self) -> None:
        if self.started.is_set() and not self._answers:
            raise BackendConnectionError("the vector database does not answer")

    def apply(self, entries: Sequence[IndexEntry], deleted_doc_ids: Sequence[str]) -> None:
        pass

    def search(self, query: Vector, *, limit: int, equal: RecordFilter) -> Scores:
        raise BackendConnectionError("nothing is looked for here")

    def close(self) -> None:
        self.started.set()


@asynccontextmanager
async def stores(folder: Path, database: SlowDatabase) -> AsyncIterator[tuple[DocumentStore, MemoryStore]]:
    embedder = HashingEmbedder()
    model = embedder.model
    vault = SQLiteVault(folder, model_identity=model.identity, dimension=model.dimension, settings=NO_GRAPHS)
    with closing(vault):
        async with EmbeddingBatcher(embedder) as batcher:
            documents, memories = vault.collection(DOCUMENTS), vault.collection(MEMORIES)
            backend = VectorBackend("chromadb", applier=IndexApplier(documents, database))
            document_store = DocumentStore(documents, batcher, backend)
            backend = VectorBackend("chromadb", "memories", IndexApplier(memories, database))
            memory_store = MemoryStore(memories, batcher, backend)
            try:
                yield document_store, memory_store
            finally:
                database.started.set()
                await document_store.aclose()
                await memory_store.aclose()


@pytest.mark.parametrize("answers", [True, False])
async def test_a_starting_vector_database_is_reported_as_starting_and_not_as_failed(
    tmp_path: Path, *, answers: bool
) -> None:
    database = SlowDatabase(answers=answers)
    async with stores(tmp_path / "vault", database) as (documents, memories):
        assert await documents.index(IndexRequest(document=Document("d", "Cats sleep all day")))
        await memories.create(CreateMemory(memory=Memory("", "Cats sleep all day")))
        assert [result.doc_id for result in (await documents.search(SearchQuery(text="cats"))).results] == ["d"]
        health, status = await documents.check_health(), await memories.status()
        assert (health.status, status.status) == ("starting", "starting")
        assert health.message == status.error == "the vector database is starting; the records answer until then"
        assert (health.document_count, status.memory_count) == (1, 1)
        assert health.is_serving

        database.started.set()
        seen = {health.status.value}

        async def is_known() -> bool:
            seen.update({(await documents.check_health()).status.value, (await memories.status()).status.value})
            return (await documents.check_health()).status != "starting" != (await memories.status()).status

        async with asyncio.timeout(DEADLINE_S):
            while not await is_known():  # noqa: ASYNC110 - threads make it so
                await asyncio.sleep(0.01)
        health, status = await documents.check_health(), await memories.status()
        if answers:
            assert (health.status, health.message, status.status) == ("healthy", "", "healthy")
        else:
            assert (health.status, status.status) == ("degraded", "degraded")
            assert health.message == status.error == "the vector database does not answer"
        assert health.is_serving is answers
        assert seen <= {"starting", health.status, status.status}, (
            "it must report starting once, before any other status"
        )
