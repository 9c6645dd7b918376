"""Archive stores with a clock that only the test moves, and records to import."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mnemon_server.domain.archive import (
    ArchivedRecord,
    ArchiveHeader,
    ExportSelection,
    ImportOutcome,
    ImportStart,
    VectorModel,
)
from mnemon_server.domain.changes import Change, ChangeFilter
from mnemon_server.domain.collections import Collection
from mnemon_server.domain.documents import Document, Passage
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.records import Scope
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.embedding.factory import HashingEmbedder
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.archive.exporting import ExportMessage
from mnemon_server.services.archive.store import ArchiveStore
from mnemon_server.services.archive.writes import ImportResult
from mnemon_server.services.rules.store import RuleStore
from mnemon_server.services.semantic.health import Capacity

from tests.support.memory_stores import MovingClock
from tests.support.vaults import open_vault

DIMENSION = 8
MODEL = VectorModel("hashing", "1", "fp32", DIMENSION)
HEADER = ArchiveHeader(model=MODEL)
CREATED = datetime(2025, 1, 1, tzinfo=UTC)
UPDATED = CREATED + timedelta(days=30)
MEMORY_FIELDS = {"decay_policy": "stable", "global": False}
UNIT = (1.0, *[0.0] * (DIMENSION - 1))


class OpenedArchive:
    """An archive store with its vault and its clock."""

    def __init__(self, store: ArchiveStore, vault: Vault, rules: RuleStore, clock: MovingClock) -> None:
        self.store, self.vault, self.rules, self.clock = store, vault, rules, clock

    async def take(
        self, *records: ArchivedRecord, header: ArchiveHeader | None = HEADER, **terms: Any
    ) -> list[ImportResult]:
        """The results for the records of one message."""
        return await self.store.begin_import(ImportStart(header=header, **terms)).take(records)

    async def outcomes(self, *records: ArchivedRecord, **terms: Any) -> list[str]:
        """The same as text: a result or an error."""
        return [str(each) for each in await self.take(*records, **terms)]

    async def parts(self, selection: ExportSelection | None = None, **terms: Any) -> list[ExportMessage]:
        """The parts of an export."""
        return [part async for part in self.store.export(selection or ExportSelection(), **terms)]

    def stored(self, collection: Collection, doc_id: str) -> Document:
        """A document with its vectors."""
        [found] = self.vault.collection(collection).get_documents([doc_id], vectors=True)
        assert found is not None
        return found

    def changes(self, after: int = 0) -> list[Change]:
        """The changes in the log."""
        return list(self.vault.changes.read(after, limit=10_000, where=ChangeFilter()).changes)


@asynccontextmanager
async def open_archive(folder: Path, *, capacity: int | None = None) -> AsyncIterator[OpenedArchive]:
    """An archive store."""
    clock, embedder = MovingClock(), HashingEmbedder(DIMENSION)
    vault = open_vault(folder, clock, dimension=embedder.model.dimension)
    rules = RuleStore(vault)
    limit = None if capacity is None else Capacity(capacity, lambda: 0)
    try:
        assert await asyncio.to_thread(vault.events.wait_until_warm, 60.0)
        async with EmbeddingBatcher(embedder) as batcher:
            store = ArchiveStore(vault, batcher, rules=rules, capacity=limit, clock=clock)
            yield OpenedArchive(store, vault, rules, clock)
            await store.aclose()
            await rules.aclose()
    finally:
        vault.close()
        embedder.close()


def memory(doc_id: str = "m", content: str = "Ada likes tea.", **fields: Any) -> ArchivedRecord:
    """A memory as an archive holds it, with a vector."""
    own = {**MEMORY_FIELDS, **fields.pop("fields", {})}
    given = {"create_time": CREATED, "update_time": UPDATED, "revision": 3, **fields}
    passages = given.pop("passages", (Passage(0, 0, len(content), UNIT),))
    document = Document(doc_id, content, fields=own, passages=passages, **given)
    return ArchivedRecord(RecordKind.MEMORY, document)


def statement(doc_id: str, content: str, **fields: Any) -> ArchivedRecord:
    """A statement as an archive holds it, without a vector."""
    given = {"scope": Scope(user="ada"), "create_time": CREATED, "update_time": UPDATED, **fields}
    return ArchivedRecord(RecordKind.SEMANTIC, Document(doc_id, content, **given))


def changed(record: ArchivedRecord, **changes: Any) -> ArchivedRecord:
    """The record with other values in its document."""
    assert record.document is not None
    return replace(record, document=replace(record.document, **changes))


def created(results: Iterable[ImportResult]) -> bool:
    """Whether all records are new."""
    return all(each is ImportOutcome.CREATED for each in results)
