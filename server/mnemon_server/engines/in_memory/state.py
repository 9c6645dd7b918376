"""The content of one collection of the reference vault, and how calls change it. Callers hold the vault's lock."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.document_fields import changed_fields, document_matches, is_replaced
from mnemon_server.domain.documents import Document, Passage
from mnemon_server.domain.encoding import document_digest, stored_field
from mnemon_server.domain.errors import RevisionMismatchError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import BulkDeleteReceipt, WriteOutcome, WriteReceipt
from mnemon_server.engines.in_memory import keywords
from mnemon_server.engines.in_memory.change_log import Call
from mnemon_server.engines.in_memory.commit_lock import CommitLock
from mnemon_server.engines.in_memory.stored import Stored
from mnemon_server.engines.promises.values import (
    DocumentUpdate,
    DocumentWrite,
    IndexPosition,
    PassageInput,
    RecordStamps,
    Visible,
)
from mnemon_server.ranking.heads import Heads


class CollectionState:
    """Documents by id, deletions, and index positions."""

    def __init__(self, commits: CommitLock, heads: Heads) -> None:
        self._commits = commits
        self._heads = heads
        self.documents: dict[str, Stored] = {}
        self.deletions: dict[str, int] = {}
        self.positions: dict[str, IndexPosition] = {}
        self.removed: dict[str, int] = {}
        self.sequence = 0
        self._position = self._passage_id = 0

    def saved(self) -> Callable[[], None]:
        """Returns a function that restores the current state."""
        documents, deletions, positions = dict(self.documents), dict(self.deletions), dict(self.positions)
        numbers, removed = (self.sequence, self._position, self._passage_id), dict(self.removed)

        def restore() -> None:
            self.documents, self.deletions, self.positions = documents, deletions, positions
            self.sequence, self._position, self._passage_id = numbers
            self.removed = removed

        return restore

    # Reads

    def matching(self, where: RecordFilter) -> list[Stored]:
        """The matching documents, in the order of first indexing."""
        matching = [stored for stored in self.documents.values() if document_matches(stored.document, where)]
        return sorted(matching, key=lambda stored: stored.position)

    def searchable(self) -> list[Stored]:
        """The documents that are not hidden."""
        return [stored for stored in self.documents.values() if not stored.document.hidden]

    # Writes

    def put(self, call: Call, write: DocumentWrite) -> WriteReceipt:
        """See RecordEngine.put_document."""
        known = self.documents.get(write.document.doc_id)
        if _is_foreign(known, write.visible):
            raise write.taken()
        _check_revision(write.document.doc_id, known, write.expected_revision)
        known_as_is = known and document_digest(known.document) == document_digest(write.document)
        # Unchanged text keeps its stored vectors, whatever vectors the write brings.
        passages = known.passages if known and known_as_is else write.passages
        return self._store(
            call, known, write.document, passages, write.change, write.details, write.changed, write.stamps
        )

    def update(self, call: Call, update: DocumentUpdate) -> WriteReceipt:
        """See RecordEngine.update_document."""
        known = self.documents.get(update.doc_id)
        if known is None or _is_foreign(known, update.visible):
            return _receipt(call, update.doc_id, WriteOutcome.MISSING, 0, self.sequence)
        _check_revision(update.doc_id, known, update.expected_revision)
        new = update.update(known.document)
        if new.doc_id != update.doc_id or (update.passages is None and new.content != known.document.content):
            raise ValueError("an update must keep the document's id, and without passages also its content")
        passages = known.passages if update.passages is None else update.passages
        return self._store(call, known, new, passages, update.change, update.details)

    def delete(
        self,
        call: Call,
        doc_id: str,
        change: ChangeType | None,
        *,
        expected_revision: int | None = None,
        details: str = "",
        visible: Visible | None = None,
    ) -> WriteReceipt:
        """See RecordEngine.delete_document."""
        known = self.documents.get(doc_id)
        if known is None or _is_foreign(known, visible):
            return _receipt(call, doc_id, WriteOutcome.MISSING, 0, self.sequence)
        _check_revision(doc_id, known, expected_revision)
        self._remove(call, known, change, details)
        return _receipt(call, doc_id, WriteOutcome.DELETED, known.document.revision, self.sequence)

    def delete_matching(
        self, call: Call, where: RecordFilter, change: ChangeType | None, details: str = ""
    ) -> BulkDeleteReceipt:
        """See RecordEngine.delete_documents."""
        matching = self.matching(where)
        for known in matching:
            self._remove(call, known, change, details)
        return BulkDeleteReceipt(len(matching), sequence=self.sequence)

    def set_position(self, index: str, position: IndexPosition) -> None:
        """See RecordEngine.set_index_position."""
        self.positions[index] = position
        self.removed.setdefault(index, 0)
        heard = min(position.sequence for position in self.positions.values())
        self.deletions = {doc_id: changed for doc_id, changed in self.deletions.items() if changed > heard}

    # Parts

    def _store(
        self,
        call: Call,
        known: Stored | None,
        new: Document,
        passages: Sequence[PassageInput],
        change: ChangeType | None,
        details: str,
        changed: tuple[str, ...] | None = None,
        stamps: RecordStamps | None = None,
    ) -> WriteReceipt:
        if known and _is_same(known.document, new, stamps):
            return _receipt(call, new.doc_id, WriteOutcome.UNCHANGED, known.document.revision, known.sequence)
        self.sequence = call.sequence = self._commits.next_sequence()
        if known is None:
            self._position += 1
        stored = self._stored(call, known, new, passages, stamps, is_news=change is not None)
        self.documents[new.doc_id] = stored
        if known and is_replaced(known.document, new):
            self._count_removal()
        self.deletions.pop(new.doc_id, None)
        document = stored.document
        if change is not None:
            names = _changed(known, new, changed)
            call.add(self.sequence, change, document.doc_id, document.revision, document.scope, names, details)
        outcome = WriteOutcome.REPLACED if known else WriteOutcome.CREATED
        return _receipt(call, new.doc_id, outcome, document.revision, self.sequence)

    def _stored(
        self,
        call: Call,
        known: Stored | None,
        new: Document,
        passages: Sequence[PassageInput],
        stamps: RecordStamps | None,
        *,
        is_news: bool,
    ) -> Stored:
        revision = known.document.revision + is_news if known else 1
        created = known.document.create_time if known else call.now
        updated = call.now if is_news or known is None else known.document.update_time
        document = replace(
            new,
            embedding=None,
            metadata=dict(new.metadata),
            fields={name: stored_field(value) for name, value in new.fields.items()},
            revision=max(revision, stamps.revision) if stamps else revision,
            create_time=stamps.create_time if stamps else created,
            update_time=stamps.update_time if stamps else updated,
            passages=tuple(Passage(i, passage.start, passage.end) for i, passage in enumerate(passages)),
        )
        return Stored(
            position=known.position if known else self._position,
            sequence=self.sequence,
            document=document,
            passages=tuple(passages),
            passage_ids=() if new.hidden else self._passage_ids(known, passages),
            words=tuple(
                keywords.words(self._heads.passage(new.metadata, new.content, part.start, part.end))
                for part in passages
            ),
        )

    def _passage_ids(self, known: Stored | None, passages: Sequence[PassageInput]) -> tuple[int, ...]:
        if known and known.passages is passages and known.passage_ids:
            return known.passage_ids
        first, self._passage_id = self._passage_id + 1, self._passage_id + len(passages)
        return tuple(range(first, self._passage_id + 1))

    def _count_removal(self) -> None:
        self.removed = {index: count + 1 for index, count in self.removed.items()}

    def _remove(self, call: Call, known: Stored, change: ChangeType | None, details: str) -> None:
        document = known.document
        self.sequence = call.sequence = self._commits.next_sequence()
        del self.documents[document.doc_id]
        self._count_removal()
        if self.positions:
            self.deletions[document.doc_id] = self.sequence
        if change is not None:
            call.add(self.sequence, change, document.doc_id, document.revision, document.scope, details=details)


def _is_foreign(known: Stored | None, visible: Visible | None) -> bool:
    return known is not None and visible is not None and not visible(known.document)


def _check_revision(doc_id: str, known: Stored | None, expected: int | None) -> None:
    actual = known.document.revision if known else 0
    if expected is not None and expected != actual:
        raise RevisionMismatchError(doc_id, expected, actual)


def _changed(known: Stored | None, new: Document, given: tuple[str, ...] | None) -> tuple[str, ...]:
    if known is None:
        return ()
    return changed_fields(known.document, new) if given is None else given


def _is_same(known: Document, new: Document, stamps: RecordStamps | None) -> bool:
    if document_digest(known) != document_digest(new):
        return False
    return stamps is None or (known.create_time, known.update_time) == (stamps.create_time, stamps.update_time)


def _receipt(call: Call, doc_id: str, outcome: WriteOutcome, revision: int, sequence: int) -> WriteReceipt:
    return WriteReceipt(doc_id, outcome, revision, call.now, sequence=sequence)
