"""Stores events: one writer operation for many events."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import apsw

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.clock import from_microseconds
from mnemon_server.domain.encoding import scope_values
from mnemon_server.domain.errors import EventExistsError, MnemonError, RequestIdReusedError
from mnemon_server.domain.events import EventReceipt
from mnemon_server.domain.records import RequestKey
from mnemon_server.engines.events.format.frames import FRAME_OVERHEAD
from mnemon_server.engines.events.index.rows import NO_OFFSET, EventRow
from mnemon_server.engines.events.named_tuples import maker
from mnemon_server.engines.events.rows import segments as timeline_segments
from mnemon_server.engines.events.rows import tables as timeline_tables
from mnemon_server.engines.events.rows.duplicates import Duplicates
from mnemon_server.engines.events.rows.incoming import KeyTexts, KnownEvent, PreparedEvent
from mnemon_server.engines.events.rows.ledger import Addition, Counts, Ledger
from mnemon_server.engines.events.rows.tables import signed
from mnemon_server.engines.events.settings import EventEngineSettings
from mnemon_server.engines.events.upkeep.manifest import SegmentRow, SegmentState
from mnemon_server.engines.sqlite import requests
from mnemon_server.engines.sqlite.journal import Journal, Operation
from mnemon_server.engines.sqlite.requests import StoredAnswer

_new_receipt, _new_index_row, _new_known = maker(EventReceipt), maker(EventRow), maker(KnownEvent)
_SAVED = ChangeType.EPISODIC_SAVED.value
_IMPORTED = ', "imported": true'


class Appends:
    """Stores events within the writer's transaction."""

    def __init__(self, journal: Journal, ledger: Ledger, duplicates: Duplicates, settings: EventEngineSettings) -> None:
        self._journal = journal
        self._ledger = ledger
        self._duplicates = duplicates
        self._settings = settings

    def run(self, connection: apsw.Connection, events: Sequence[PreparedEvent]) -> list[EventReceipt | MnemonError]:
        """See Timeline.append."""
        operation = self._journal.begin(None)
        asked = [event.request for event in events if event.request is not None]
        call = _Call(self._journal, self._ledger, self._settings, operation)
        call.answers = requests.stored_answers(connection, asked, operation.now)
        known = self._duplicates.find(connection, events, self._ledger.removed)
        results = [call.take(event, known.get(position)) for position, event in enumerate(events)]
        call.write(connection)
        self._ledger.add(call.addition())
        self._journal.stage(operation)
        return results


class _Call:
    """One call. It writes nothing, and has no effects, until all of its events have been examined."""

    def __init__(self, journal: Journal, ledger: Ledger, settings: EventEngineSettings, operation: Operation) -> None:
        self.answers: dict[str, StoredAnswer] = {}
        self._journal = journal
        self._ledger = ledger
        self._settings = settings
        self._operation = operation
        self._time = from_microseconds(operation.now)
        self._sequence, opened, self._segment_count = ledger.counts
        self._segments: list[_Segment] = []
        self._rows: list[timeline_tables.EventValues] = []
        self._new_answers: list[tuple[RequestKey, dict[str, Any]]] = []
        self._index_rows: dict[int, list[EventRow]] = {}
        self._byte_count = 0
        self._by_id: dict[str, KnownEvent] = {}
        self._by_key: dict[KeyTexts, KnownEvent] = {}
        self._staged_keys = ledger.by_key
        if opened is not None:
            self._resume(opened)

    def take(self, event: PreparedEvent, stored: KnownEvent | None) -> EventReceipt | MnemonError:
        """Examines one event; returns its result."""
        request = event.request
        if request is not None and request.stored_id in self.answers:
            return _replay(request, self.answers[request.stored_id])
        known = stored if event.id_is_new else self._with_id(event) or stored
        if known is None:
            known = self._by_key.get(event.key) or self._staged_keys.get(event.key)
        if known is None:
            receipt = self._store(event)
        elif known.user != event.scope.user:
            return EventExistsError(event.event_id)
        else:
            receipt = EventReceipt(known.event_id, known.sequence, known.segment_id, self._time, duplicate=True)
        if request is not None:
            answer = _answer(receipt, self._operation.now)
            self.answers[request.stored_id] = request.digest, answer
            self._new_answers.append((request, answer))
        return receipt

    def write(self, connection: apsw.Connection) -> None:
        """Writes the accepted events."""
        for segment in self._segments:
            state = SegmentState.OPEN if segment is self._segments[-1] else SegmentState.ROLLED
            if segment.is_new:
                timeline_segments.put_segment(connection, segment.as_row(state))
            elif state is SegmentState.ROLLED:
                timeline_segments.note_appended(connection, segment.as_row(state))
        timeline_tables.insert_events(connection, self._rows)
        requests.store_answers(connection, self._new_answers, self._operation.now)

    def addition(self) -> Addition:
        """The effects of the call after its commit."""
        opened = self._segments[-1].as_row(SegmentState.OPEN) if self._segments else None
        counts = Counts(self._sequence, opened, self._segment_count)
        return Addition(counts, self._index_rows, self._by_id, self._by_key, self._rows, self._byte_count)

    def _with_id(self, event: PreparedEvent) -> KnownEvent | None:
        """An event with the same id in the running transaction."""
        return self._by_id.get(event.event_id) or self._ledger.by_id.get(event.event_id)

    def _store(self, event: PreparedEvent) -> EventReceipt:
        self._sequence = sequence = self._sequence + 1
        event_id, _, id_hash, key, key_hash, scope, importance, body, request, is_imported = event
        _, _, _, event_type, time_us, digest = key
        segment = self._segment(len(body) + FRAME_OVERHEAD)
        segment_id = segment.row.segment_id
        texts = scope_values(scope)
        self._rows.append(
            (sequence, segment_id, time_us, signed(id_hash), signed(key_hash), *texts, event_type, importance, body)
        )
        segment.index_rows.append(
            _new_index_row((sequence, time_us, id_hash, key_hash, scope, event_type, importance, NO_OFFSET))
        )
        self._by_id[event_id] = self._by_key[key] = _new_known((event_id, sequence, segment_id, scope.user))
        operation = self._operation
        number = "null" if importance is None else repr(float(importance))
        lag = max(0, operation.now - time_us)
        details = (
            f'{{"event_type": {_json_text(event_type)}, "event_time": {time_us}, "importance": {number}, '
            f'"segment_id": {segment_id}, "lag_us": {lag}, "segment_count": {self._segment_count}, '
            f'"content_hash": "{digest.hex()}"{_IMPORTED if is_imported else ""}}}'
        )
        # Each event is a commit of its own in the feed, because the events may come from many calls.
        operation.sequence = position = self._journal.next_sequence()
        request_id = "" if request is None else request.request_id
        operation.rows.append(
            (position, position, operation.time, _SAVED, event_id, 1, *texts, request_id, "", details)
        )
        return _new_receipt((event_id, sequence, segment_id, self._time, False, False))

    def _segment(self, size: int) -> "_Segment":
        """The segment of the next event, which takes `size` bytes. Its counts include that event."""
        settings = self._settings
        segment = self._segments[-1] if self._segments else None
        if segment is None or segment.is_full or segment.byte_count + size > settings.segment_bytes_max:
            segment = self._begin()
        segment.last_sequence = self._sequence
        segment.event_count += 1
        segment.byte_count += size
        self._byte_count += size
        segment.is_full = segment.event_count >= settings.segment_events_max
        return segment

    def _begin(self) -> "_Segment":
        sequence, now = self._sequence, self._operation.now
        self._segment_count += 1
        return self._add(
            _Segment(SegmentRow(sequence, 1, SegmentState.OPEN, sequence, sequence, 0, 0, now), is_new=True)
        )

    def _resume(self, opened: SegmentRow) -> None:
        segment, settings = self._add(_Segment(opened, is_new=False)), self._settings
        # An absolute value, so that a clock that jumped back does not keep the segment open.
        age_us = abs(self._operation.now - opened.create_time_us)
        segment.is_full = (
            opened.event_count >= settings.segment_events_max or age_us >= settings.segment_age_max_s * 1_000_000
        )

    def _add(self, segment: "_Segment") -> "_Segment":
        self._segments.append(segment)
        self._index_rows[segment.row.segment_id] = segment.index_rows
        return segment


class _Segment:
    """A segment that receives events."""

    __slots__ = ("byte_count", "event_count", "index_rows", "is_full", "is_new", "last_sequence", "row")

    def __init__(self, row: SegmentRow, *, is_new: bool) -> None:
        self.row = row
        self.is_new = is_new
        self.is_full = False
        self.last_sequence = row.last_sequence
        self.event_count = row.event_count
        self.byte_count = row.byte_count
        self.index_rows: list[EventRow] = []

    def as_row(self, state: SegmentState) -> SegmentRow:
        """Its row for records.db."""
        return self.row._replace(
            state=state,
            last_sequence=self.last_sequence,
            event_count=self.event_count,
            byte_count=self.byte_count,
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
