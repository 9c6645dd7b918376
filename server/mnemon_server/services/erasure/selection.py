"""Which records an erasure is about: those that a request names, or those that tombstones name. All of it blocks."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Protocol

import numpy as np

from mnemon_server.domain.access.grants import subject_users
from mnemon_server.domain.clock import EPOCH
from mnemon_server.domain.documents import Document
from mnemon_server.domain.encoding import document_matches
from mnemon_server.domain.erasure import EraseFilter, EraseTarget
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.events import Event, EventSelection, StoredEvent
from mnemon_server.domain.filters import AnyOf, Condition, Operator, RecordFilter
from mnemon_server.domain.history import stored_version
from mnemon_server.domain.kinds import COLLECTION_OF, WITHOUT_SCOPE, RecordKind
from mnemon_server.domain.namespaces import decode_namespace, encode_label, starts_with
from mnemon_server.domain.origins import Provenance
from mnemon_server.domain.records import Scope
from mnemon_server.engines.promises.events import Sequences
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.events.selections import has_metadata_key
from mnemon_server.services.events.selections import selection as event_selection
from mnemon_server.services.reading.filter_expressions import FIELDS_OF, HasKey, unmet_conditions, with_engine_names
from mnemon_server.services.reading.pages import read_page
from mnemon_server.services.writing.tombstones import Names, is_erased
from mnemon_server.wire.events import decode

ERASED_KINDS = tuple(kind for kind in RecordKind if kind not in (RecordKind.RULE, RecordKind.EVENT))
"""The kinds that are erased from collections. Rules belong to no one."""
PAGE = 200
_NOTHING = np.empty(0, np.int64)


class Selection(Protocol):
    """Which records to erase."""

    def documents(self, kind: RecordKind, *, vectors: bool = False) -> Iterator[list[Document]]:
        """The records of a kind, hidden ones included, page by page."""

    def events(self) -> Sequences:
        """The events."""


class TargetSelection:
    """The records that a request names."""

    def __init__(self, vault: Vault, target: EraseTarget) -> None:
        self._vault = vault
        self._target = target

    def documents(self, kind: RecordKind, *, vectors: bool = False) -> Iterator[list[Document]]:
        """See Selection."""
        if kind is RecordKind.VERSION and self._target.where is not None:
            yield from self._versions(self._target.where, vectors=vectors)
            return
        where = self._where(kind)
        if where is None:
            return
        for page in pages_of(self._vault, kind, where, vectors=vectors):
            yield [document for document in page if self._is_meant(kind, document)]

    def events(self) -> Sequences:
        """See Selection."""
        target = self._target
        if target.user:
            return self._vault.events.sequences(EventSelection(scope=Scope(user=target.user)))
        if target.source is not None:
            return self._vault.events.sequences(EventSelection(scope=_scope_of(target.source)))
        if target.where is None or target.where.kind is not RecordKind.EVENT:
            return _NOTHING
        where = EventSelection(scope=target.where.scope, expression=target.where.expression)
        return self._vault.events.sequences(event_selection(where))

    def unmet(self) -> list[FieldViolation]:
        """The conditions of the filter that are typing errors; see `unmet_conditions`."""
        where = self._target.where
        if where is None:
            return []
        has_key: HasKey = partial(has_metadata_key, self._vault.events)
        if where.kind is not RecordKind.EVENT:
            has_key = self._vault.collection(COLLECTION_OF[where.kind]).has_metadata_key
        fields = replace(FIELDS_OF[where.kind], kind="record of this kind")
        return [*unmet_conditions(where.expression, has_key, fields)]

    def _where(self, kind: RecordKind) -> RecordFilter | None:
        target = self._target
        if target.where is not None:
            return _filter(target.where) if target.where.kind is kind else None
        if target.source is not None:
            return RecordFilter(scope=_scope_of(target.source), hidden=None)
        if target.namespace is not None:
            if kind not in (RecordKind.FACT, RecordKind.VERSION, RecordKind.GRANT):
                return None
            return RecordFilter(expression=starts_with(target.namespace, "namespace"), hidden=None)
        has_label = Condition("namespace", Operator.CONTAINS, (encode_label(target.user),))
        if kind is RecordKind.GRANT:
            return RecordFilter(hidden=None)
        if kind in WITHOUT_SCOPE:
            return RecordFilter(expression=has_label, hidden=None)
        if kind is RecordKind.VERSION:
            is_users = Condition("user", Operator.EQ, (target.user,))
            return RecordFilter(expression=AnyOf((is_users, has_label)), hidden=None)
        return RecordFilter(scope=Scope(user=target.user), hidden=None)

    def _versions(self, where: EraseFilter, *, vectors: bool) -> Iterator[list[Document]]:
        """The versions that match, even if their records do not, or no longer exist."""
        of_kind = Condition("kind", Operator.EQ, (where.kind.value,))
        wanted, made = RecordFilter(scope=where.scope, expression=of_kind, hidden=None), _filter(where)
        for page in pages_of(self._vault, RecordKind.VERSION, wanted, vectors=vectors):
            found = [one for one in page if document_matches(stored_version(one).document, made)]
            if found:
                yield found

    def _is_meant(self, kind: RecordKind, document: Document) -> bool:
        """Whether a grant names the user; or whether a fact that was found by a part of its namespace, or its version,
        has the user's label.
        """
        if kind is RecordKind.GRANT and self._target.user:
            subject = str(document.fields["subject"])
            if self._target.user in (document.scope.user, *subject_users(subject)):
                return True
            if not document.fields["namespace"]:
                return False
        if not document.fields.get("namespace") or not self._target.user:
            return True
        return self._target.user in decode_namespace(str(document.fields["namespace"]))


def _filter(where: EraseFilter) -> RecordFilter:
    expression = with_engine_names(where.expression, FIELDS_OF[where.kind])
    return RecordFilter(scope=where.scope, expression=expression, hidden=None)


def _scope_of(source: Provenance) -> Scope:
    return Scope(origin=source.origin, origin_name=source.name)


class TombstoneSelection:
    """The records of a vault that its tombstones name: after an interruption, and after older records came back."""

    def __init__(self, vault: Vault, names: Names) -> None:
        """Reads the tombstones."""
        self._vault = vault
        self._names = names
        self.times = dict(tombstones_of(vault))

    def documents(self, kind: RecordKind, *, vectors: bool = False) -> Iterator[list[Document]]:
        """See Selection."""
        for page in pages_of(self._vault, kind, RecordFilter(hidden=None), vectors=vectors):
            named = ((self._names.of_document(kind, one), one.create_time) for one in page)
            found = [one for one, each in zip(page, named, strict=True) if is_erased(each, self.times)]
            if found:
                yield found

    def events(self) -> Sequences:
        """See Selection."""
        pages = pages_of_events(self._vault, self._vault.events.sequences(EventSelection()))
        return np.array([one.sequence for page in pages for one in page if self._is_erased(decode(one.body))], np.int64)

    def _is_erased(self, event: Event) -> bool:
        recorded = event.record_time if event.record_time != EPOCH else None
        return is_erased((self._names.of_event(event), recorded), self.times)


def tombstones_of(vault: Vault) -> Iterator[tuple[bytes, datetime]]:
    """All tombstones of a vault with their times."""
    after = b""
    while rows := vault.tombstones(after, limit=10_000):
        yield from rows
        after = rows[-1][0]


def pages_of_events(vault: Vault, sequences: Sequences) -> Iterator[list[StoredEvent]]:
    """The events with these sequences that still exist, page by page, about a mebibyte each."""
    left = sequences.tolist()
    while some := left[:PAGE]:
        stored = vault.events.read(some, bytes_max=1 << 20)
        yield stored
        last = stored[-1].sequence if stored else some[-1]
        left = [sequence for sequence in left if sequence > last]


def pages_of(vault: Vault, kind: RecordKind, where: RecordFilter, *, vectors: bool = False) -> Iterator[list[Document]]:
    """The records of a collection that match, page by page, in the order in which they were first stored."""
    after: int | None = 0
    while after is not None:
        rows, after = read_page(vault.collection(COLLECTION_OF[kind]), where, after=after, limit=PAGE, vectors=vectors)
        if rows:
            yield [document for _, document in rows]
