"""How records leave a vault: page by page, and at the end once more what has changed meanwhile."""

import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from mnemon_server.domain.archive import ArchivedRecord, ArchiveHeader, ExportSelection, ExportSummary, VectorModel
from mnemon_server.domain.changes import Change, ChangeFilter
from mnemon_server.domain.clock import Clock
from mnemon_server.domain.documents import Document
from mnemon_server.domain.encoding import document_matches, encode_metadata
from mnemon_server.domain.events import EventSelection
from mnemon_server.domain.facts import FactFilter
from mnemon_server.domain.filters import AllOf, Condition, Expression, Operator, RecordFilter
from mnemon_server.domain.kinds import COLLECTION_OF, REMOVALS, RecordKind
from mnemon_server.domain.namespaces import Namespace, is_exactly, starts_with
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.facts.filters import living
from mnemon_server.services.feed.cursors import Cursors
from mnemon_server.services.reading.pages import read_page
from mnemon_server.wire.events import decode

LISTED_MAX, CHANGED_MAX = 200, 8
"""Documents that are listed at once; and changes that are read at once, whose documents come with their vectors."""
PASSAGES_MAX = 256
"""Passages of the records of one message: their vectors fill less than a megabyte."""
BYTES_MAX = 1 << 20
"""A message ends before the record with which its texts would be longer than this."""
RECORD_BYTES_MAX = (4 << 20) - (256 << 10)
"""The size of one record: a message has 4 MiB, and frames, ids and times take some of it."""
EVENTS_MAX = 200
LOG_MAX = 1_000

log = logging.getLogger(__name__)
ExportMessage = ArchiveHeader | list[ArchivedRecord] | ExportSummary
"""One message of an export: the header first, then records, the summary last."""


class Export:
    """One export. Reads everything off the event loop, and never holds more than the records of a message."""

    def __init__(
        self,
        vault: Vault,
        selection: ExportSelection,
        *,
        model: VectorModel | None,
        rules_version: int,
        offload: Offload,
        clock: Clock,
    ) -> None:
        """Reads nothing yet. Without a model, vectors are left out."""
        self._vault = vault
        self._selection = selection
        self._model = model
        self._rules_version = rules_version
        self._offload = offload
        self._now = clock()
        self._filters = {
            kind: _filter(selection, kind, self._now) for kind in selection.chosen if kind in COLLECTION_OF
        }
        self._events = EventSelection(scope=selection.scope)
        self._last_event = 0
        self._counts: Counter[RecordKind] = Counter()
        self._changed = 0

    async def run(self) -> AsyncIterator[ExportMessage]:
        """The header, the records, and the summary."""
        head, sequences = await self._offload(self._begin)
        yield await self._offload(self._header, head)
        for kind in self._filters:
            async for records in self._listed(kind):
                yield self._counted(records)
        if RecordKind.EVENT in self._selection.chosen:
            async for records in self._happened():
                yield self._counted(records)
        async for records in self._came_meanwhile(sequences):
            self._changed += len(records)
            yield self._counted(records)
        removed = await self._offload(self._removed_after, head)
        yield ExportSummary(dict(self._counts), self._changed, removed)

    # Steps

    def _begin(self) -> tuple[int, dict[RecordKind, int]]:
        """The positions of the log and of the collections, so that later changes are found."""
        head = self._vault.changes.state().head
        return head, {kind: self._records(kind).stats().sequence for kind in self._filters}

    def _header(self, head: int) -> ArchiveHeader:
        counts = {kind: self._records(kind).count_documents(where) for kind, where in self._filters.items()}
        if RecordKind.EVENT in self._selection.chosen:
            counts[RecordKind.EVENT] = self._vault.events.count(self._events)
        return ArchiveHeader(
            model=self._model,
            selection=self._selection,
            export_time=self._now,
            cursor=Cursors(self._vault.changes.epoch).write(head),
            counts=counts,
            rules_version=self._rules_version if RecordKind.RULE in self._filters else 0,
        )

    async def _listed(self, kind: RecordKind) -> AsyncIterator[list[ArchivedRecord]]:
        """The records of a kind, in the order in which they were first stored."""
        after: int | None = 0
        while after is not None:
            # Without vectors, since a few documents may have a great many: they are read run by run.
            rows, after = await self._offload(
                read_page, self._records(kind), self._filters[kind], after=after, limit=LISTED_MAX
            )
            async for records in self._read(kind, [document for _, document in rows]):
                yield records

    async def _read(self, kind: RecordKind, documents: Sequence[Document]) -> AsyncIterator[list[ArchivedRecord]]:
        """Records with their vectors as they are now, a message at a time; those that are gone are left out."""
        for run in _runs(documents):
            ids = [document.doc_id for document in run]
            if records := await self._offload(self._archived, kind, ids):
                yield records

    async def _happened(self) -> AsyncIterator[list[ArchivedRecord]]:
        """The events of the timeline after the last one, in the order in which they were recorded."""
        sequences = await self._offload(self._vault.events.sequences, self._events)
        later = sequences[sequences > self._last_event].tolist()
        for start in range(0, len(later), EVENTS_MAX):
            some = later[start : start + EVENTS_MAX]
            self._last_event = some[-1]
            while some and (stored := await self._offload(self._vault.events.read, some, bytes_max=BYTES_MAX)):
                some = [sequence for sequence in some if sequence > stored[-1].sequence]
                yield [ArchivedRecord(RecordKind.EVENT, event=decode(each.body)) for each in stored]

    async def _came_meanwhile(self, sequences: dict[RecordKind, int]) -> AsyncIterator[list[ArchivedRecord]]:
        """The records added or changed between the start of the export and now; later writes do not prolong it."""
        ends = {kind: self._records(kind).stats().sequence for kind in sequences}
        for kind, after in sequences.items():
            while after < ends[kind]:
                changes = await self._offload(self._records(kind).changes_after, after, limit=CHANGED_MAX)
                if not changes:
                    break
                after = changes[-1].sequence  # noqa: PLW2901 - how far it was read
                found = await self._offload(self._documents, kind, [change.doc_id for change in changes])
                async for records in self._read(kind, found):
                    yield records
        if RecordKind.EVENT in self._selection.chosen:
            async for records in self._happened():
                yield records

    def _removed_after(self, head: int) -> int:
        """How many records the log says were removed since then, without those that were stored again."""
        kinds = {change: kind for change, kind in REMOVALS.items() if kind in self._selection.chosen}
        where = ChangeFilter(types=frozenset(kinds), scope=self._selection.scope)
        removed, position, caught_up = 0, head, not kinds
        while not caught_up:
            found = self._vault.changes.read(position, limit=LOG_MAX, where=where)
            position, caught_up = found.position, found.caught_up
            for change_type, kind in kinds.items():
                changes = [change for change in found.changes if change.type is change_type]
                removed += self._count_gone(kind, changes) if changes else 0
        return removed

    # Reading

    def _records(self, kind: RecordKind) -> RecordEngine:
        return self._vault.collection(COLLECTION_OF[kind])

    def _documents(self, kind: RecordKind, ids: Sequence[str]) -> list[Document]:
        where = self._filters[kind]
        return [each for each in self._records(kind).get_documents(ids) if each and document_matches(each, where)]

    def _archived(self, kind: RecordKind, ids: Sequence[str]) -> list[ArchivedRecord]:
        found = self._records(kind).get_documents(ids, vectors=self._model is not None)
        if self._model is None:
            found = [each and replace(each, passages=()) for each in found]
        return [ArchivedRecord(kind, _that_fits(kind, document)) for document in found if document is not None]

    def _count_gone(self, kind: RecordKind, changes: Sequence[Change]) -> int:
        if kind is RecordKind.EVENT:
            return sum(len(json.loads(change.details)["events"]) for change in changes)
        if kind is RecordKind.FACT and (namespace := self._selection.namespace) is not None:
            named = [(change, tuple(json.loads(change.details)["namespace"])) for change in changes]
            is_meant = namespace.__eq__ if self._selection.exact_namespace else _within(namespace)
            changes = [change for change, labels in named if is_meant(labels)]
        ids = {change.record_id for change in changes}

        def is_there(record_id: str, _: int) -> bool:
            """False: nothing of the record needs to be read."""
            ids.discard(record_id)
            return False

        self._records(kind).get_documents([*ids], fits=is_there)
        return len(ids)

    def _counted(self, records: list[ArchivedRecord]) -> list[ArchivedRecord]:
        self._counts.update(record.kind for record in records)
        return records


def _filter(selection: ExportSelection, kind: RecordKind, now: datetime) -> RecordFilter:
    if kind is RecordKind.VERSION:
        return _versions(selection)
    if kind is not RecordKind.FACT:
        return RecordFilter(scope=selection.scope, hidden=None)
    # A fact that has expired does not exist any more, even if it has not been removed yet.
    subtree = not (selection.exact_namespace and selection.namespace)
    return replace(living(FactFilter(namespace=selection.namespace, subtree=subtree), now), hidden=None)


def _versions(selection: ExportSelection) -> RecordFilter:
    """The versions of records of the selected kinds."""
    namespace, parts = selection.namespace, list[Expression]()
    if kinds := selection.kinds - {RecordKind.VERSION}:
        parts.append(Condition("kind", Operator.IN, tuple(sorted(kinds))))
    if namespace is not None:
        is_within = is_exactly if selection.exact_namespace else starts_with
        parts.append(is_within(Namespace(namespace), "namespace"))
    return RecordFilter(scope=selection.scope, expression=AllOf(tuple(parts)) if parts else None, hidden=None)


def _within(namespace: tuple[str, ...]) -> Callable[[tuple[str, ...]], bool]:
    return lambda labels: labels[: len(namespace)] == namespace


def _that_fits(kind: RecordKind, document: Document) -> Document:
    """The document; if it does not fit into one message, without what an import can recompute."""
    if _message_bytes(document) <= RECORD_BYTES_MAX:
        return document
    if RecordKind.FACT in (kind, document.fields.get("kind")):
        document = replace(document, metadata={})  # which filters read, and which follows from the fields
        if _message_bytes(document) <= RECORD_BYTES_MAX:
            return document
        document = replace(document, content="")
    return replace(document, passages=())


def _message_bytes(document: Document) -> int:
    """About how many bytes the document takes in a message."""
    numbers = sum(len(passage.embedding or ()) for passage in document.passages)
    texts = [document.content, encode_metadata(document.metadata), *map(str, document.fields.values())]
    return sum(len(text.encode(errors="surrogatepass")) for text in texts) + 4 * numbers


def _bytes(document: Document) -> int:
    """About how many bytes the texts of the document have."""
    texts = (value for value in document.fields.values() if isinstance(value, str))
    return len(document.content) + sum(map(len, texts))


def _runs(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """The documents in runs, each for one message of a good size; one that is larger by itself is alone in its run."""
    run: list[Document] = []
    size = passages = 0
    for document in documents:
        more, further = _bytes(document), len(document.passages)
        if run and (size + more > BYTES_MAX or passages + further > PASSAGES_MAX):
            yield run
            run, size, passages = [], 0, 0
        run.append(document)
        size, passages = size + more, passages + further
    if run:
        yield run
