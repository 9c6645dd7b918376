"""The records that changes are about, as they are now."""

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile

from mnemon_server.domain.changes import Change, ChangeType
from mnemon_server.domain.errors import MnemonError
from mnemon_server.domain.events import StoredEvent
from mnemon_server.domain.facts import Fact
from mnemon_server.domain.feed import Record
from mnemon_server.domain.kinds import KINDS, SHOWN, RecordKind
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.services.facts.stored_form import value_text
from mnemon_server.services.feed.identity import details_of, is_told_of, with_content
from mnemon_server.wire.events import decode

READ_AT_ONCE = 32
_EVENTS = KINDS[RecordKind.EVENT].shown

ReadRecords = Callable[..., Sequence[Record | None]]
"""Reads records by id, in the order of the ids, with None for those that no longer exist; takes a `Fits` as `fits`."""

_Readers = Mapping[ChangeType, ReadRecords]

NUMBER_BYTES = 9
"""How many more bytes a number in a fact may take in a message than as text."""


log = logging.getLogger(__name__)


def has_contents(changes: Sequence[Change]) -> bool:
    """Whether a change is about a recorded event, which is sent with its content."""
    return any(change.type in _EVENTS for change in changes)


class ChangeRecords:
    """Reads the records of changes; blocks."""

    def __init__(self, readers: Mapping[RecordKind, ReadRecords]) -> None:
        self._all = {change: readers[kind] for change, kind in SHOWN.items()}
        self._events = {change: self._all[change] for change in _EVENTS}

    def read(self, changes: Sequence[Change], bytes_max: int) -> tuple[Record | None, ...]:
        """The record of each change, or None if it no longer exists; only for as many changes as `bytes_max` allows.

        Returns at least one; the rest belongs in the next message. Changes of rules, decisions and warnings have no
        record, and pruned events no longer have one.
        """
        return self._read(self._all, changes, bytes_max)

    def with_contents(self, changes: Sequence[Change], bytes_max: int) -> tuple[Change, ...]:
        """The changes, with the content of recorded events in their details; as many as `read` would read.

        A damaged event must not end the watches of those who want to know of other changes.
        """
        try:
            records = self._read(self._events, changes, bytes_max)
        except MnemonError:
            log.warning("changes are sent without the contents of events, which cannot be read", exc_info=True)
            return tuple(changes)
        return tuple(map(with_content, changes, records))

    def _read(self, readers: _Readers, changes: Sequence[Change], bytes_max: int) -> tuple[Record | None, ...]:
        found: list[Record | None] = []
        size, at_once = 0, 1
        while len(found) < len(changes):
            # Few at first: records may be large, and reading one that does not fit is wasted work.
            some = changes[len(found) : len(found) + at_once]
            records = _read_some(readers, some, bytes_max - size if found else None)
            for record in records:
                size += _size(record)
                if found and size > bytes_max:
                    return tuple(found)
                found.append(record)
            if len(records) < len(some):
                break
            at_once = min(2 * at_once, READ_AT_ONCE)
        return tuple(found)


def _read_some(readers: _Readers, changes: Sequence[Change], bytes_left: int | None) -> list[Record | None]:
    """The records of these changes, up to the first that exceeds `bytes_left`; None means no limit."""
    within = _Within(bytes_left)
    wanted: dict[ReadRecords, dict[str, Record | None]] = {}
    for change in changes:
        if (reader := readers.get(change.type)) is not None:
            wanted.setdefault(reader, {})[change.record_id] = None
    for reader, records in wanted.items():
        records.update(zip(records, reader([*records], fits=within.fits), strict=True))
    return [
        _if_meant(change, wanted[reader][change.record_id])
        if (reader := readers.get(change.type)) is not None
        else None
        for change in takewhile(lambda change: change.record_id not in within.left, changes)
    ]


class _Within:
    """Accepts records until their sizes add up to a limit."""

    def __init__(self, bytes_left: int | None) -> None:
        self._bytes_left = bytes_left
        self.left: set[str] = set()

    def fits(self, record_id: str, size: int) -> bool:
        if self._bytes_left is None:
            return True
        if size > self._bytes_left:
            self.left.add(record_id)
            return False
        self._bytes_left -= size
        return True


def _if_meant(change: Change, record: Record | None) -> Record | None:
    """The record; None if its id now belongs to another event of the timeline, which may be another user's."""
    if not isinstance(record, StoredEvent) or is_told_of(change, details_of(change), decode(record.body)):
        return record
    return None


def _size(record: Record | None) -> int:
    """The bytes of those fields of a record that can be large."""
    if record is None:
        return 0
    if isinstance(record, StoredEvent):
        return len(record.body)
    said = _fact_size(record) if isinstance(record, Fact) else len(record.content.encode())
    texts = [value for value in record.metadata.values() if isinstance(value, str)]
    lists = [text for value in record.metadata.values() if isinstance(value, tuple) for text in value]
    own = (record.summary, *record.keywords) if isinstance(record, SemanticMemory) else ()
    return said + sum(len(text.encode()) for text in (*own, *texts, *lists))


def _fact_size(fact: Fact) -> int:
    """About how many bytes the value takes in a message."""
    text = value_text(fact.value)
    return len(text.encode()) + NUMBER_BYTES * text.count(",")
