"""Fact stores with a clock that only the test moves, for tests of the fact service."""

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mnemon_server.domain.changes import Change, ChangeFilter
from mnemon_server.domain.facts import Fact, FactFilter, FactMatch, PutFact
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.embedding.batcher import WAITING_TEXTS_MAX, EmbeddingBatcher
from mnemon_server.embedding.factory import HashingEmbedder
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.facts.store import FactStore

from tests.support.memory_stores import MovingClock
from tests.support.vaults import DIMENSION, open_vault

HERE = Namespace(("org", "acme"))


class OpenedFacts:
    """A fact store with its vault and its clock."""

    def __init__(self, store: FactStore, vault: Vault, clock: MovingClock) -> None:
        self.store, self.vault, self.clock = store, vault, clock

    async def put(self, key: str, value: Any, namespace: Iterable[str] = HERE, **fields: Any) -> Fact:
        """Stores a fact and returns it. A text stands for a value with the text as its content."""
        told = {"content": value} if isinstance(value, str) else value
        receipt = await self.store.put(PutFact(namespace=Namespace(namespace), key=key, value=told, **fields))
        assert receipt.fact is not None
        return receipt.fact

    async def keys(self, namespace: Iterable[str] | None = HERE, **fields: Any) -> list[str]:
        """The keys of the matching facts, in list order."""
        where = FactFilter(namespace=None if namespace is None else Namespace(namespace), **fields)
        return [fact.key for fact in (await self.store.list(where, limit=1_000)).facts]

    def changes(self) -> list[Change]:
        """The changes in the log."""
        return list(self.vault.changes.read(0, limit=1_000, where=ChangeFilter()).changes)

    def told(self) -> list[tuple[str, str, str]]:
        """Type, key and reason of each change."""
        said = [
            (change.type.value.removeprefix("memory:fact:"), json.loads(change.details)) for change in self.changes()
        ]
        return [(kind, details["key"], details.get("reason", "")) for kind, details in said]


@asynccontextmanager
async def open_facts(
    folder: Path,
    *,
    embedder: HashingEmbedder | None = None,
    waiting_texts_max: int = WAITING_TEXTS_MAX,
    **options: Any,
) -> AsyncIterator[OpenedFacts]:
    """A fact store. `options` are passed to FactStore."""
    clock = MovingClock()
    embedder = embedder or HashingEmbedder(DIMENSION)
    vault = open_vault(folder, clock, dimension=embedder.model.dimension)
    try:
        async with EmbeddingBatcher(embedder, waiting_texts_max=waiting_texts_max) as batcher:
            store = FactStore(vault, batcher, clock=clock, **options)
            yield OpenedFacts(store, vault, clock)
            await store.aclose()
    finally:
        vault.close()
        embedder.close()


def keys_of(matches: Iterable[FactMatch]) -> list[str]:
    """The keys of the results."""
    return [match.fact.key for match in matches]
