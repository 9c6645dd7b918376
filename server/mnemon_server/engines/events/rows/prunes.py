"""Removes events, and writes the feed entries about removals and about the timeline's health."""

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import apsw

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.encoding import scope_values
from mnemon_server.domain.events import PruneReason, StoredEvent, content_digest
from mnemon_server.domain.records import RequestKey, Scope
from mnemon_server.engines.events.index.index import TimelineIndex
from mnemon_server.engines.events.rows import segments as timeline_segments
from mnemon_server.engines.events.rows import tables as timeline_tables
from mnemon_server.engines.events.rows.ledger import Ledger
from mnemon_server.engines.promises.events import EventsWarning
from mnemon_server.engines.sqlite import requests
from mnemon_server.engines.sqlite.connections import Removals
from mnemon_server.engines.sqlite.journal import Journal, Operation
from mnemon_server.wire.events import decode

NAMED_AT_ONCE_MAX = 256
RECORD_ID = "timeline"
HEALTHY = EventsWarning("info", "the timeline is healthy again", "")


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


class Prunes:
    """Removes events within the writer's transaction."""

    def __init__(self, journal: Journal, ledger: Ledger, index: TimelineIndex, removals: Removals) -> None:
        self._journal = journal
        self._ledger = ledger
        self._index = index
        self._removals = removals

    def run(
        self,
        connection: apsw.Connection,
        removals: Sequence[Removal],
        reason: PruneReason,
        answer: Callable[[], str] | None,
        request: RequestKey | None,
    ) -> int:
        """See Timeline.prune."""
        operation = self._journal.begin(request)
        if requests.stored_answer(connection, request, operation.now) is not None:
            return 0
        kept_answer = answer() if answer else ""
        there = self._existing(removals)
        segment_ids = sorted(row.segment_id for row in timeline_segments.segments(connection))
        groups: dict[tuple[int, Scope], list[Removal]] = {}
        for one in there:
            # The index may not know yet that a segment was merged into another.
            segment_id = segment_ids[bisect_right(segment_ids, one.sequence) - 1]
            groups.setdefault((segment_id, one.scope), []).append(one)
        sequences = [one.sequence for one in there]
        timeline_tables.delete_events(connection, sequences)
        timeline_segments.mark_dead(
            connection, [(segment_id, one.sequence) for (segment_id, _), some in groups.items() for one in some]
        )
        requests.store_answer(connection, request, {"answer": kept_answer}, operation.now)
        for (segment_id, scope), some in groups.items():
            self._note(operation, segment_id, scope, some, reason)
        self._ledger.remove(sequences)
        self._removals.stage(events=len(sequences))
        self._journal.stage(operation)
        return len(there)

    def _existing(self, removals: Sequence[Removal]) -> list[Removal]:
        """The events that still exist, each once, in storage order."""
        alive = {ref.sequence for ref in self._index.locate([one.sequence for one in removals])}
        alive -= self._ledger.removed
        by_sequence = {one.sequence: one for one in removals if one.sequence in alive}
        return [by_sequence[sequence] for sequence in sorted(by_sequence)]

    def _note(
        self, operation: Operation, segment_id: int, scope: Scope, removals: Sequence[Removal], reason: PruneReason
    ) -> None:
        texts = scope_values(scope)
        for some in _runs([[one.event_id, one.content_hash] for one in removals]):
            details = json.dumps({"segment_id": segment_id, "reason": reason.value, "events": some})
            sequence = self._journal.next_sequence()
            operation.add(sequence, ChangeType.EPISODIC_PRUNED, str(segment_id), 0, texts, details=details)


def note_health(connection: apsw.Connection, journal: Journal, warning: EventsWarning | None) -> None:
    """Adds a warning to the feed, or with None that the timeline is healthy again. For the writer's thread."""
    timeline_segments.set_warned(connection, is_warned=warning is not None)
    operation = journal.begin(None)
    event, said = (ChangeType.EPISODIC_WARNING, warning) if warning else (ChangeType.EPISODIC_HEALTHY, HEALTHY)
    details = json.dumps({"severity": said.severity, "message": said.message, "remediation": said.remediation})
    operation.add(journal.next_sequence(), event, RECORD_ID, 0, scope_values(Scope()), details=details)
    journal.stage(operation)


def _runs(named: list[list[str]]) -> Iterator[list[list[str]]]:
    for start in range(0, len(named), NAMED_AT_ONCE_MAX):
        yield named[start : start + NAMED_AT_ONCE_MAX]
