"""Memories whose vectors are in ChromaDB: the same answers as without it, even when the server goes away."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mnemon_server.domain.collections import MEMORIES
from mnemon_server.domain.documents import HealthStatus
from mnemon_server.domain.errors import BackendConnectionError
from mnemon_server.domain.memories import CreateMemory, DecayPolicy, Memory, MemoryFilter, MemoryQuery, MemoryStatus
from mnemon_server.domain.records import AckLevel, Scope, SearchMode
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.embedding.factory import HashingEmbedder
from mnemon_server.engines.chroma import ChromaIndex, ChromaSettings
from mnemon_server.engines.sqlite.scanners import VectorSettings
from mnemon_server.engines.sqlite_vault import SQLiteVault, VaultSettings
from mnemon_server.services.memories.store import MemoryStore
from mnemon_server.services.search.index_applier import IndexApplier
from mnemon_server.services.search.settings import SearchSettings, VectorBackend

from tests.support.chroma_server import ChromaServer
from tests.support.memory_stores import MovingClock, Opened, contents
from tests.support.vaults import DIMENSION

NO_GRAPHS = VaultSettings(VectorSettings(graphs_of=()))

WAIT_S = 60.0


@asynccontextmanager
async def memories_in_chroma(folder: Path, server: ChromaServer) -> AsyncIterator[tuple[Opened, ChromaIndex]]:
    """A memory store that always asks ChromaDB."""
    clock, embedder = MovingClock(), HashingEmbedder(DIMENSION)
    identity = embedder.model.identity
    vault = SQLiteVault(folder, model_identity=identity, dimension=DIMENSION, settings=NO_GRAPHS, clock=clock)
    index = ChromaIndex(
        ChromaSettings(host=server.host, port=server.port),
        collection=f"memories-{folder.parent.name}",
        dimension=DIMENSION,
        model_identity=identity,
    )
    records = vault.collection(MEMORIES)
    async with EmbeddingBatcher(embedder) as batcher:
        store = MemoryStore(
            records,
            batcher,
            VectorBackend("chromadb", "memories", IndexApplier(records, index)),
            search=SearchSettings(exact_scan_max=0),
            clock=clock,
        )
        yield Opened(store, vault, clock), index
        await store.aclose()
    vault.close()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not await condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def status_once(opened: Opened, expected: HealthStatus) -> MemoryStatus:
    """Waits for the expected health and returns the status."""

    async def is_expected() -> bool:
        status = await opened.store.status()
        return status.status is expected and (expected is not HealthStatus.HEALTHY or status.pending == 0)

    await until(is_expected)
    return await opened.store.status()


async def test_searches_through_chroma_keep_filters_and_confidence(tmp_path: Path, chroma: ChromaServer) -> None:
    async with memories_in_chroma(tmp_path / "vault", chroma) as (opened, _):
        for i in range(60):
            policy = DecayPolicy.CONTEXTUAL if i % 3 == 0 else DecayPolicy.STABLE
            await opened.remember(
                f"note {i} about gardens", decay_policy=policy, type=f"t{i % 2}", scope=Scope(agent=f"a{i % 5}")
            )
        await status_once(opened, HealthStatus.HEALTHY)
        opened.clock.pass_hours(400)
        for mode in (SearchMode.HYBRID, SearchMode.VECTOR):
            everything = await opened.store.search(MemoryQuery(text="gardens", mode=mode, limit=100))
            assert len(everything.results) == 40
            answer = await opened.store.search(
                MemoryQuery(text="note 11", mode=mode, limit=3, where=MemoryFilter(type="t1", scope=Scope(agent="a1")))
            )
            assert not answer.diagnostics.exact
            assert contents(answer.results)[0] == "note 11 about gardens"
            assert {match.memory.type for match in answer.results} == {"t1"}
            assert {match.memory.scope.agent for match in answer.results} == {"a1"}


async def test_deleted_memories_leave_chroma_and_undeleted_ones_come_back(tmp_path: Path, chroma: ChromaServer) -> None:
    async with memories_in_chroma(tmp_path / "vault", chroma) as (opened, index):
        kept = await opened.remember("gardens in spring")
        gone = await opened.remember("gardens in autumn")

        async def held(count: int) -> None:
            await status_once(opened, HealthStatus.HEALTHY)
            assert (await asyncio.to_thread(index.open)).entry_count == count

        await held(2)
        await opened.store.delete(gone.memory_id, ack=AckLevel.SEARCHABLE)
        await held(1)
        assert contents((await opened.store.search(MemoryQuery(text="gardens"))).results) == [kept.content]
        await opened.store.undelete(gone.memory_id)
        await held(2)
        await opened.store.delete(gone.memory_id)
        await opened.store.purge(MemoryFilter(), only_deleted=True)
        await held(1)


async def test_an_unreachable_chroma_server_shows_in_the_status_and_harms_nothing_else(tmp_path: Path) -> None:
    with ChromaServer(tmp_path / "server") as server:
        async with memories_in_chroma(tmp_path / "vault", server) as (opened, _):
            await opened.remember("cats sleep")
            status = await status_once(opened, HealthStatus.HEALTHY)
            assert (status.backend, status.host) == ("chromadb", f"{server.host}:{server.port}")
            assert (status.collection, status.memory_count, status.error) == ("memories", 1, "")

            server.stop()
            status = await status_once(opened, HealthStatus.DEGRADED)
            assert str(server.port) in status.error
            assert status.memory_count == 1
            await opened.remember("dogs bark")
            answer = await opened.store.search(MemoryQuery(text="dogs bark", limit=1))
            assert contents(answer.results) == ["dogs bark"]
            assert answer.diagnostics.degraded
            with pytest.raises(BackendConnectionError, match="stored"):
                await opened.store.create(CreateMemory(memory=Memory("", "birds sing"), ack=AckLevel.SEARCHABLE))
            assert await opened.store.count() == 3

            server.start()
            status = await status_once(opened, HealthStatus.HEALTHY)
            assert status.error == ""
            answer = await opened.store.search(MemoryQuery(text="birds sing", limit=1))
            assert contents(answer.results) == ["birds sing"]
            assert not answer.diagnostics.degraded
