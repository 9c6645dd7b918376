"""Memory stores with a clock that only the test moves, for tests of the memory service."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mnemon_server.domain.collections import MEMORIES
from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.memories import CreateMemory, DecayPolicy, Memory, MemoryMatch
from mnemon_server.domain.records import Scope
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.embedding.factory import HashingEmbedder
from mnemon_server.engines.hnsw.settings import DEFAULT_GRAPH, GraphSettings
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.engines.sqlite.scanners import VectorSettings
from mnemon_server.services.memories.store import MemoryStore

from tests.support.vaults import DIMENSION, open_vault

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ADA = Memory(
    "",
    "Ada prefers Python",
    scope=Scope(user="ada", agent="claude", project="apollo"),
    personality="engineer",
    type="preference",
    is_global=True,
    decay_policy=DecayPolicy.REINFORCEABLE,
    metadata={"topic": "code", "since": datetime(2020, 1, 1), "rank": 5},
)
"""A memory with everything that a caller may say."""


class MovingClock:
    """A clock that stands still until it is moved."""

    def __init__(self, time: datetime = NOON) -> None:
        self.time = time
        self.failures: list[Exception] = []
        """What its next readings fail with."""

    def __call__(self) -> datetime:
        if self.failures:
            raise self.failures.pop()
        return self.time

    def pass_hours(self, hours: float) -> None:
        """Moves the clock forward."""
        self.time += timedelta(hours=hours)


class Opened:
    """A memory store with its vault and its clock."""

    def __init__(self, store: MemoryStore, vault: Vault, clock: MovingClock) -> None:
        self.store, self.vault, self.clock = store, vault, clock

    async def remember(self, content: str, **fields: Any) -> Memory:
        """Stores a memory and returns it."""
        created = await self.store.create(CreateMemory(memory=Memory("", content, **fields)))
        assert created.memory is not None
        return created.memory


@asynccontextmanager
async def open_memories(folder: Path, *, graph: GraphSettings = DEFAULT_GRAPH, **options: Any) -> AsyncIterator[Opened]:
    """A memory store. `options` are passed to MemoryStore."""
    clock = MovingClock()
    embedder = HashingEmbedder(DIMENSION)
    vault = open_vault(folder, clock, vectors=VectorSettings(graph=graph))
    try:
        async with EmbeddingBatcher(embedder) as batcher:
            store = MemoryStore(vault.collection(MEMORIES), batcher, clock=clock, **options)
            yield Opened(store, vault, clock)
            await store.aclose()
    finally:
        vault.close()
        embedder.close()


def contents(matches: tuple[MemoryMatch, ...]) -> list[str]:
    """The contents of the memories found."""
    return [match.memory.content for match in matches]


def fields_of(error: InvalidArgumentError) -> list[str]:
    """The fields that an error names."""
    return [violation.field for violation in error.violations]
