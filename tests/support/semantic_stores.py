"""Stores of statements with a clock that only the test moves, for tests of the service."""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from mnemon_server.domain.changes import Change, ChangeFilter, ChangeType
from mnemon_server.domain.collections import DECISIONS
from mnemon_server.domain.conflicts import ArbitrationAction, ArbitrationResult, ArbitrationStrategy, Decision
from mnemon_server.domain.records import PageOf, Scope
from mnemon_server.domain.semantic import SavedSemantic, SaveSemantic, SemanticMatch, SemanticMemory
from mnemon_server.embedding.base import Embedder
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.embedding.factory import HashingEmbedder
from mnemon_server.engines.hnsw.settings import DEFAULT_GRAPH, GraphSettings
from mnemon_server.engines.promises.values import DocumentWrite
from mnemon_server.engines.promises.vault import Vault, VaultTransaction
from mnemon_server.engines.sqlite.scanners import VectorSettings
from mnemon_server.services.semantic.decisions import decision_document, decision_to_json
from mnemon_server.services.semantic.store import SemanticSettings, SemanticStore
from mnemon_server.services.semantic.stored_form import put_semantic
from mnemon_server.services.writing.write_pressure import WriteLatency

from tests.support.memory_stores import MovingClock
from tests.support.vaults import DIMENSION, open_vault

WAIT_S = 60.0
ADA = Scope(user="ada")

NEVER_SLOW = WriteLatency(60.0)


class OpenedSemantic:
    """A store of statements with its vault and its clock."""

    def __init__(self, store: SemanticStore, vault: Vault, clock: MovingClock) -> None:
        self.store, self.vault, self.clock = store, vault, clock

    async def say(self, content: str, *, scope: Scope = ADA, request_id: str = "", **fields: Any) -> SavedSemantic:
        """Saves a statement."""
        return await self.store.save(statement(content, scope=scope, request_id=request_id, **fields))

    async def known(self, content: str, *, scope: Scope = ADA, **fields: Any) -> SemanticMemory:
        """Saves a statement and returns it."""
        saved = await self.say(content, scope=scope, **fields)
        assert saved.memory is not None
        return saved.memory

    def changes(self, *types: ChangeType) -> list[Change]:
        """The changes in the log, of some types or of all."""
        return list(self.vault.changes.read(0, limit=10_000, where=ChangeFilter(frozenset(types))).changes)


def statement(
    content: str,
    *,
    scope: Scope = ADA,
    request_id: str = "",
    embedding: Sequence[float] | None = None,
    **fields: Any,
) -> SaveSemantic:
    """A request to save a statement."""
    memory = SemanticMemory("", content, scope=scope, **fields)
    return SaveSemantic(memory=memory, embedding=embedding, request_id=request_id)


@asynccontextmanager
async def open_semantic(
    folder: Path,
    *,
    graph: GraphSettings = DEFAULT_GRAPH,
    clock: MovingClock | None = None,
    embedder: Embedder | None = None,
    capacity: int = 100_000,
    write_latency: WriteLatency = NEVER_SLOW,
    **options: Any,
) -> AsyncIterator[OpenedSemantic]:
    """A store of statements. `options` are passed to SemanticStore."""
    clock = clock or MovingClock()
    embedder = embedder or HashingEmbedder(DIMENSION)
    vault = open_vault(folder, clock, dimension=embedder.model.dimension, vectors=VectorSettings(graph=graph))
    options = {"resolver": None} | options
    try:
        async with EmbeddingBatcher(embedder) as batcher:
            store = SemanticStore(vault, batcher, settings=SemanticSettings(capacity, write_latency), **options)
            yield OpenedSemantic(store, vault, clock)
            await store.aclose()
    finally:
        vault.close()
        embedder.close()


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Waits until the condition holds."""
    deadline = time.monotonic() + WAIT_S
    while not await holds():
        assert time.monotonic() < deadline, "the condition never held"
        await asyncio.sleep(0.01)


def contents(found: Sequence[SemanticMatch] | PageOf[SemanticMemory]) -> list[str]:
    """The contents of the statements found."""
    if isinstance(found, PageOf):
        return [memory.content for memory in found.items]
    return [match.memory.content for match in found]


def details(change: Change) -> dict[str, Any]:
    """The details of a change."""
    return json.loads(change.details)  # type: ignore[no-any-return]


async def supersede(opened: OpenedSemantic, memory: SemanticMemory, by: str) -> SemanticMemory:
    """Stores a superseded statement and the decision about it. Returns the statement."""
    hidden = replace(memory, memory_id=str(uuid.uuid4()), superseded_by=by)
    decision = Decision(
        decision_id=str(uuid.uuid4()),
        scope=memory.scope,
        candidate_id=by,
        existing_id=hidden.memory_id,
        result_id=by,
        rule="default",
        signals=(),
        conflict_count=1,
        arbitration=ArbitrationResult(
            action=ArbitrationAction.KEEP, strategy=ArbitrationStrategy.RECENCY, confidence=1.0, reason="newer"
        ),
    )

    def program(tx: VaultTransaction) -> str:
        put_semantic(tx, hidden, np.eye(DIMENSION, dtype=np.float32)[0])
        document = decision_document(decision, decision_to_json(decision))
        tx.collection(DECISIONS).put_document(
            DocumentWrite(document=document, passages=[], change=ChangeType.CONFLICT_RESOLVED)
        )
        return ""

    opened.vault.transact(program).result()
    return hidden
