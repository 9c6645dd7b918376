"""Conflict stores with a clock that only the test moves, for tests of conflicts."""

import random
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from mnemon_server.domain.changes import Change, ChangeFilter
from mnemon_server.domain.collections import DECISIONS, SEMANTIC
from mnemon_server.domain.conflicts import Decision
from mnemon_server.domain.documents import Document
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import Scope
from mnemon_server.domain.semantic import ConflictPolicy, SavedSemantic, SemanticMemory
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.embedding.factory import HashingEmbedder
from mnemon_server.engines.promises.values import Vector
from mnemon_server.engines.promises.vault import Vault, VaultTransaction
from mnemon_server.services.background.offload import completion
from mnemon_server.services.conflicts.resolution import ConflictResolver
from mnemon_server.services.conflicts.service import ConflictStore
from mnemon_server.services.rules.store import RuleStore
from mnemon_server.services.semantic.decisions import stored_decision
from mnemon_server.services.semantic.resolver import NewSemantic
from mnemon_server.services.semantic.stored_form import to_semantic

from tests.support.memory_stores import MovingClock
from tests.support.semantic_stores import ADA
from tests.support.vaults import DIMENSION, open_vault

EVERYTHING = RecordFilter(hidden=None)


class OpenedConflicts:
    """A conflict store with its vault, its rules and its clock."""

    def __init__(self, store: ConflictStore, vault: Vault, rules: RuleStore, clock: MovingClock) -> None:
        self.store, self.vault, self.rules, self.clock = store, vault, rules, clock
        self._resolver = ConflictResolver(rules)

    async def save(
        self,
        content: str,
        *,
        policy: ConflictPolicy = ConflictPolicy.RESOLVE,
        vector: Vector | None = None,
        rule: str = "",
        scope: Scope = ADA,
        **fields: Any,
    ) -> SavedSemantic:
        """Saves a statement as the semantic store does. By default, its vector is computed from its content."""
        memory = SemanticMemory(str(uuid.uuid4()), content, scope=scope, **fields)
        new = NewSemantic(
            memory=memory, vector=text_vector(content) if vector is None else vector, policy=policy, rule=rule
        )
        saved: list[SavedSemantic] = []

        def program(tx: VaultTransaction) -> str:
            saved.append(self._resolver.save(tx, new))
            return ""

        await completion(self.vault.transact(program))
        return saved[-1]

    async def settle(self, **settings: Any) -> None:
        """Changes the default rule: `detection`, `arbitration` or `merge`, in the form of a rule."""
        await self.rules.update({"name": "default", **settings})

    def embed(self, *texts: str) -> list[Vector]:
        """The vectors that the store computes for these texts."""
        embedder = HashingEmbedder(DIMENSION)
        try:
            return list(embedder.embed(texts))
        finally:
            embedder.close()

    def documents(self) -> list[Document]:
        """All statements, superseded ones too."""
        return [row[1] for row in self.vault.collection(SEMANTIC).list_documents(EVERYTHING, limit=10_000)]

    def visible(self) -> list[SemanticMemory]:
        """The visible statements in the order of saving, without counters that each change increases."""
        return [
            replace(to_semantic(document), revision=0, update_time=self.clock.time)
            for document in self.documents()
            if not document.hidden
        ]

    def decisions(self) -> list[Decision]:
        """All decisions, oldest first."""
        rows = self.vault.collection(DECISIONS).list_documents(EVERYTHING, limit=10_000)
        return [stored_decision(document) for _, document in rows]

    def changes(self, after: int = 0) -> Sequence[Change]:
        """The changes in the log."""
        return self.vault.changes.read(after, limit=10_000, where=ChangeFilter()).changes


@asynccontextmanager
async def open_conflicts(folder: Path) -> AsyncIterator[OpenedConflicts]:
    """A conflict store."""
    clock = MovingClock()
    embedder = HashingEmbedder(DIMENSION)
    vault = open_vault(folder, clock)
    try:
        async with EmbeddingBatcher(embedder) as batcher:
            rules = RuleStore(vault)
            store = ConflictStore(vault, batcher, rules=rules, clock=clock)
            yield OpenedConflicts(store, vault, rules, clock)
            await store.aclose()
    finally:
        vault.close()
        embedder.close()


def text_vector(text: str) -> Vector:
    """The vector of a text: of unit length, the same for the same text."""
    return random_vector(random.Random(text))


def random_vector(rng: random.Random) -> Vector:
    """A vector of unit length, in any direction."""
    return unit([rng.gauss(0, 1) for _ in range(DIMENSION)])


def unit(numbers: Sequence[float]) -> Vector:
    """The numbers as a vector of unit length."""
    vector = np.array(numbers, np.float64)
    return np.asarray(vector / np.linalg.norm(vector), np.float32)
