"""Stores and removes events, within the writer's transaction."""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import apsw

from mnemon_server.domain.access.shares import covers
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.clock import from_microseconds
from mnemon_server.domain.encoding import scope_values
from mnemon_server.domain.errors import EventExistsError, MnemonError, RequestIdReusedError, StorageFailedError
from mnemon_server.domain.events import EventReceipt, PruneReason, StoredEvent, content_digest
from mnemon_server.domain.records import RequestKey, Scope
from mnemon_server.engines.events import tables
from mnemon_server.engines.events.catalogue import Catalogue, Snapshot
from mnemon_server.engines.events.incoming import KeyTexts, PreparedEvent, key_texts
from mnemon_server.engines.events.queries import with_hashes
from mnemon_server.engines.events.segment_files import SegmentDamagedError
from mnemon_server.engines.events.settings import EventEngineSettings
from mnemon_server.engines.events.tables import SegmentRow, SegmentState
from mnemon_server.engines.sqlite import requests
from mnemon_server.engines.sqlite.connections import Removals
from mnemon_server.engines.sqlite.follower import Follower
from mnemon_server.engines.sqlite.journal import Journal, Operation
from mnemon_server.engines.sqlite.query import insert_rows
from mnemon_server.engines.sqlite.requests import StoredAnswer
from mnemon_server.wire.events import decode


class EventFollower(Follower):
    """Follows the timeline's transactions; see Follower. Everything but `listen` is for the writer's thread."""

    def __init__(self) -> None:
        self._on_append: Callable[[], None] = lambda: None
        self._on_remove: Callable[[Collection[int]], None] = lambda sequences: None
        self._has_appended = False
        self._removed: list[int] = []

    def listen(self, on_append: Callable[[], None], on_remove: Callable[[Collection[int]], None]) -> None:
        """Sets the callbacks: after a commit with events, and after one with removals, with the removed sequences.

        The callbacks must not block. Call this before the first write.
        """
        self._on_append, self._on_remove = on_append, on_remove

    def appended(self) -> None:
        """Stages events that were stored."""
        self._has_appended = self.is_touched = True

    def removed(self, sequences: Collection[int]) -> None:
        """Stages events that were removed."""
        self._removed += sequences
        self.is_touched = True

    # With the transactions; see Follower

    def load(self, connection: apsw.Connection) -> None:
        """Tells of events: after a failure, the outcome of commits is unknown."""
        self.after_rollback()
        self._on_append()

    def after_commit(self) -> None:
        """Calls the listeners."""
        has_appended, removed = self._has_appended, self._removed
        self.after_rollback()
        if has_appended:
            self._on_append()
        if removed:
            self._on_remove(removed)

    def after_rollback(self) -> None:
        """Discards what was staged."""
        self._has_appended, self._removed = False, []
        self.is_touched = False


NAMED_AT_ONCE_MAX = 256
_ROW_BYTES = 64
"""The approximate size of a row without its body."""
_SAVED = ChangeType.EPISODIC_SAVED.value
_IMPORTED = ', "imported": true'


class KnownEvent(NamedTuple):
    """A stored event."""

    event_id: str
    sequence: int
    segment_id: int
    scope: Scope

    def exists_for(self, event: PreparedEvent) -> bool:
        """Whether the writer of a new event may see it."""
        return event.within is None or any(covers(each, self.scope) for each in event.within)


class Removal(NamedTuple):
    """An event to remove, with the data for its feed entry."""

    sequence: int
    event_id: str
    scope: Scope
    content_hash: str


def removal(stored: StoredEvent) -> Removal:
    """Extracts the data for the feed entry from an event."""
    event = decode(stored.body)
    return Removal(stored.sequence, event.event_id, event.scope, content_digest(event.content).hex())


class EventWrites:
    """Stores and removes events."""

    def __init__(
        self,
        journal: Journal,
        catalogue: Catalogue,
        follower: EventFollower,
        removals: Removals,
        settings: EventEngineSettings,
        on_damage: Callable[[str], None],
    ) -> None:
        """Does no work yet.

        `on_damage` is called with the name of a segment's file in which duplicates could not be looked for, and must
        not block.
        """
        self._journal = journal
        self._catalogue = catalogue
        self._follower = follower
        self._removals = removals
        self._settings = settings
        self._on_damage = on_damage

    def append(self, connection: apsw.Connection, events: Sequence[PreparedEvent]) -> list[EventReceipt | MnemonError]:
        """See EventEngine.append."""
        operation = self._journal.begin(None)
        snapshot = self._catalogue.snapshot(connection)
        call = _Call(self._journal, self._settings, operation, snapshot, tables.last_sequence(connection))
        asked = [event.request for event in events if event.request is not None]
        call.answers = requests.stored_answers(connection, asked, operation.now)
        for known, key in self._known(snapshot, events):
            call.know(known, key)
        results = [call.take(event) for event in events]
        if call.rows:
            call.write(connection)
            self._follower.appended()
        requests.store_answers(connection, call.new_answers, operation.now)
        self._journal.stage(operation)
        return results

    def _known(self, snapshot: Snapshot, events: Sequence[PreparedEvent]) -> Iterator[tuple[KnownEvent, KeyTexts]]:
        """The stored events that may be the same as one of these, and others with the same hashes."""
        ids = [event.id_hash for event in events if not event.id_is_new]
        keys = [event.key_hash for event in events]
        for column, numbers in (("id_hash", ids), ("key_hash", keys)):
            rows = with_hashes(snapshot.records, column, numbers, first=snapshot.first_unsealed) if numbers else []
            for segment in snapshot.sealed.segments:
                earliest, latest = segment.row.min_time_us or 0, segment.row.max_time_us or 0
                some = (
                    ids
                    if column == "id_hash"
                    else [event.key_hash for event in events if earliest <= event.key[4] <= latest]
                )
                if some := [number for number in some if segment.may_have(number)]:
                    found = self._rows_in(snapshot, segment.row.file_name, column, some)
                    rows += [row for row in found if row[0] not in segment.dead_set]
            for sequence, body in rows:
                stored = decode(body)
                segment_id = snapshot.segment_id(sequence)
                yield KnownEvent(stored.event_id, sequence, segment_id, stored.scope), key_texts(stored)

    def _rows_in(self, snapshot: Snapshot, name: str, column: str, numbers: Sequence[int]) -> list[tuple[int, bytes]]:
        """The events of a sealed segment with these hashes. The writer must not wait for a repair: if the file cannot
        be read, its events are not treated as duplicates.
        """
        try:
            with snapshot.files.lend(name) as connection:
                return with_hashes(connection, column, numbers)
        except (SegmentDamagedError, StorageFailedError):
            self._on_damage(name)
            return []

    def prune(
        self,
        connection: apsw.Connection,
        removals: Sequence[Removal],
        reason: PruneReason,
        answer: Callable[[], str] | None,
        request: RequestKey | None,
    ) -> int:
        """See EventEngine.prune."""
        operation = self._journal.begin(request)
        if requests.stored_answer(connection, request, operation.now) is not None:
            return 0
        kept_answer = answer() if answer else ""
        snapshot = self._catalogue.snapshot(connection)
        there = _existing(snapshot, removals)
        groups: dict[tuple[int, Scope], list[Removal]] = {}
        for one in there:
            groups.setdefault((snapshot.segment_id(one.sequence), one.scope), []).append(one)
        sequences = [one.sequence for one in there]
        _remove(connection, snapshot, sequences)
        requests.store_answer(connection, request, {"answer": kept_answer}, operation.now)
        for (segment_id, scope), some in groups.items():
            self._note(operation, segment_id, scope, some, reason)
        self._follower.removed(sequences)
        self._removals.stage(events=len(sequences))
        self._journal.stage(operation)
        return len(there)

    def _note(
        self, operation: Operation, segment_id: int, scope: Scope, removals: Sequence[Removal], reason: PruneReason
    ) -> None:
        texts = scope_values(scope)
        named = [[one.event_id, one.content_hash] for one in removals]
        for start in range(0, len(named), NAMED_AT_ONCE_MAX):
            some = named[start : start + NAMED_AT_ONCE_MAX]
            details = json.dumps({"segment_id": segment_id, "reason": reason.value, "events": some})
            sequence = self._journal.next_sequence()
            operation.add(sequence, ChangeType.EPISODIC_PRUNED, str(segment_id), 0, texts, details=details)


class _Call:
    """One call. It writes nothing until all of its events have been examined."""

    def __init__(
        self, journal: Journal, settings: EventEngineSettings, operation: Operation, snapshot: Snapshot, sequence: int
    ) -> None:
        self.answers: dict[str, StoredAnswer] = {}
        self.new_answers: list[tuple[RequestKey, dict[str, Any]]] = []
        self.rows: list[tuple[Any, ...]] = []
        self._journal = journal
        self._settings = settings
        self._operation = operation
        self._time = from_microseconds(operation.now)
        self._sequence = sequence
        self._segment_count = len(snapshot.sealed.segments) + len(snapshot.unsealed)
        self._segments = [row for row in snapshot.unsealed if row.state is SegmentState.OPEN]
        self._is_full = not self._segments or self._is_over(self._segments[-1])
        self._by_id: dict[str, KnownEvent] = {}
        self._by_key: defaultdict[KeyTexts, list[KnownEvent]] = defaultdict(list)

    def know(self, known: KnownEvent, key: KeyTexts) -> None:
        """Makes events with the same id or key duplicates of this one."""
        self._by_id.setdefault(known.event_id, known)
        self._by_key[key].append(known)

    def take(self, event: PreparedEvent) -> EventReceipt | MnemonError:
        """Examines one event; returns its result. A match by id takes precedence over a match by key."""
        request = event.request
        if request is not None and request.stored_id in self.answers:
            return _replay(request, self.answers[request.stored_id])
        known = None if event.id_is_new else self._by_id.get(event.event_id)
        if known is not None and (known.scope.user != event.scope.user or not known.exists_for(event)):
            return EventExistsError(event.event_id)
        known = known or next((each for each in self._by_key[event.key] if each.exists_for(event)), None)
        if known is None:
            receipt = self._store(event)
        else:
            receipt = EventReceipt(known.event_id, known.sequence, known.segment_id, self._time, duplicate=True)
        if request is not None:
            answer = _answer(receipt, self._operation.now)
            self.answers[request.stored_id] = request.digest, answer
            self.new_answers.append((request, answer))
        return receipt

    def write(self, connection: apsw.Connection) -> None:
        """Writes the accepted events."""
        for row in self._segments[:-1]:
            tables.put_segment(connection, row._replace(state=SegmentState.ROLLED))
        tables.put_segment(connection, self._segments[-1])
        tables.set_last_sequence(connection, self._sequence)
        insert_rows(connection, "INSERT INTO timeline_event VALUES", self.rows)

    def _store(self, event: PreparedEvent) -> EventReceipt:
        self._sequence = sequence = self._sequence + 1
        event_id, _, id_hash, key, key_hash, scope, importance, conversation, body, request, is_imported, _ = event
        _, _, _, event_type, time_us, digest, _ = key
        segment_id = self._place(len(body) + _ROW_BYTES)
        texts = scope_values(scope)
        self.rows.append((sequence, time_us, id_hash, key_hash, *texts, event_type, importance, conversation, body))
        self.know(KnownEvent(event_id, sequence, segment_id, scope), key)
        operation = self._operation
        number = "null" if importance is None else repr(float(importance))
        lag = max(0, operation.now - time_us)
        details = (
            f'{{"event_type": {_json_text(event_type)}, "event_time": {time_us}, "importance": {number}, '
            f'"segment_id": {segment_id}, "lag_us": {lag}, "segment_count": {self._segment_count}, '
            f'"content_hash": "{digest.hex()}"{_conversation_of(conversation)}{_IMPORTED if is_imported else ""}}}'
        )
        # Each event is a commit of its own in the feed, because the events may come from many calls.
        operation.sequence = position = self._journal.next_sequence()
        request_id = "" if request is None else request.request_id
        operation.rows.append(
            (position, position, operation.time, _SAVED, event_id, 1, *texts, request_id, "", details)
        )
        return EventReceipt(event_id, sequence, segment_id, self._time)

    def _place(self, size: int) -> int:
        """The segment of the next event, which takes `size` bytes. Its counts include that event."""
        settings = self._settings
        if self._is_full or self._segments[-1].byte_count + size > settings.segment_bytes_max:
            self._segment_count += 1
            sequence, now = self._sequence, self._operation.now
            self._segments.append(SegmentRow(sequence, 1, SegmentState.OPEN, sequence, 0, 0, now))
        last = self._segments[-1]
        count = last.event_count + 1
        self._segments[-1] = last._replace(
            last_sequence=self._sequence, event_count=count, byte_count=last.byte_count + size
        )
        self._is_full = count >= settings.segment_events_max
        return last.segment_id

    def _is_over(self, opened: SegmentRow) -> bool:
        """Whether an open segment is full or old."""
        # An absolute value, so that a clock that jumped back does not keep the segment open.
        age_us = abs(self._operation.now - opened.create_time_us)
        return (
            opened.event_count >= self._settings.segment_events_max
            or age_us >= self._settings.segment_age_max_s * 1_000_000
        )


def _replay(request: RequestKey, answer: StoredAnswer) -> EventReceipt | MnemonError:
    try:
        values = requests.checked_answer(request, answer)
    except RequestIdReusedError as error:
        return error
    return EventReceipt(
        values["id"],
        values["sequence"],
        values["segment_id"],
        from_microseconds(values["commit_time"]),
        values["duplicate"],
        replayed=True,
    )


def _answer(receipt: EventReceipt, now: int) -> dict[str, Any]:
    return {
        "id": receipt.event_id,
        "sequence": receipt.sequence,
        "segment_id": receipt.segment_id,
        "commit_time": now,
        "duplicate": receipt.duplicate,
    }


@lru_cache(maxsize=1_024)
def _json_text(text: str) -> str:
    return json.dumps(text)


def _conversation_of(conversation: str) -> str:
    return f', "conversation": {json.dumps(conversation)}' if conversation else ""


def _existing(snapshot: Snapshot, removals: Sequence[Removal]) -> list[Removal]:
    """The events that still exist, each once, in storage order."""
    by_sequence = {one.sequence: one for one in removals}
    there: list[Removal] = []
    in_records = [one for one in by_sequence if one >= snapshot.first_unsealed]
    found = set(tables.existing_events(snapshot.records, in_records)) if in_records else set()
    for sequence in sorted(by_sequence):
        segment = snapshot.place(sequence)
        is_there = sequence in found if segment is None else segment.has(sequence)
        if is_there:
            there.append(by_sequence[sequence])
    return there


def _remove(connection: apsw.Connection, snapshot: Snapshot, sequences: Sequence[int]) -> None:
    """Removes events. In sealed segments they are marked until the files are rewritten."""
    if not sequences:
        return
    tables.delete_events(connection, sequences)
    sealed = [one for one in sequences if one < snapshot.first_unsealed]
    if sealed:
        tables.mark_dead(connection, sealed)
    for row in snapshot.unsealed:
        if count := sum(snapshot.segment_id(one) == row.segment_id for one in sequences[len(sealed) :]):
            tables.put_segment(connection, row._replace(event_count=row.event_count - count))
