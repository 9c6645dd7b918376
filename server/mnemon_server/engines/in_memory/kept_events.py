"""The events of the reference timeline, and the ways in which a call changes them. Callers hold the vault's lock."""

import json
from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, NamedTuple

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.clock import to_microseconds
from mnemon_server.domain.errors import EventExistsError
from mnemon_server.domain.events import Event, EventPosition, EventReceipt, PruneReason, StoredEvent
from mnemon_server.domain.records import Scope
from mnemon_server.engines.in_memory.change_log import Call
from mnemon_server.engines.in_memory.commit_lock import CommitLock
from mnemon_server.engines.promises.events import EventsWarning
from mnemon_server.wire.events import decode

PRUNED_PER_EVENT_MAX = 256
RECORD_ID = "timeline"
HEALTHY = EventsWarning("info", "the timeline is healthy again", "")


class Kept(NamedTuple):
    """An event in both forms: as it is returned, and parsed."""

    stored: StoredEvent
    event: Event


class KeptEvents:
    """Events by sequence, with the indexes that find them. A segment is only a name for a group of events."""

    def __init__(self, commits: CommitLock, segment_events_max: int) -> None:
        self._commits = commits
        self._segment_events_max = segment_events_max
        self.events: dict[int, Kept] = {}
        self.by_id: dict[str, int] = {}
        self._by_key: dict[object, int] = {}
        self._in_segments: Counter[int] = Counter()
        self._sequence = 0
        self.segment_id = 0
        """The active segment; 0 before the first."""

    @property
    def segment_count(self) -> int:
        """The number of segments with at least one event, and the active one."""
        return len(self._in_segments.keys() | {self.segment_id} - {0})

    def store(self, call: Call, body: bytes, *, is_imported: bool) -> EventReceipt:
        """Stores an event, unless it is a duplicate."""
        event = decode(body)
        known = self.by_id.get(event.event_id) or self._by_key.get(_key(event))
        if known:
            stored, same = self.events[known]
            if same.scope.user != event.scope.user:
                raise EventExistsError(event.event_id)
            return EventReceipt(stored.position.event_id, known, stored.segment_id, call.now, duplicate=True)
        self._sequence += 1
        if not self.segment_id or self._sequence - self.segment_id >= self._segment_events_max:
            self.segment_id = self._sequence
        self._in_segments[self.segment_id] += 1
        position = EventPosition(to_microseconds(event.event_time), event.event_id)
        self.events[self._sequence] = Kept(StoredEvent(position, self._sequence, self.segment_id, body), event)
        self.by_id[event.event_id] = self._by_key[_key(event)] = self._sequence
        details = self._saved(call, event) | ({"imported": True} if is_imported else {})
        self._note(call, ChangeType.EPISODIC_SAVED, event.event_id, event.scope, details, revision=1)
        return EventReceipt(event.event_id, self._sequence, self.segment_id, call.now)

    def prune(self, call: Call, sequences: Iterable[int], reason: PruneReason) -> int:
        """Removes events; returns how many existed."""
        gone = [self.events.pop(sequence) for sequence in sorted(sequences) if sequence in self.events]
        groups: dict[tuple[int, Scope], list[Event]] = {}
        for stored, event in gone:
            del self.by_id[event.event_id], self._by_key[_key(event)]
            groups.setdefault((stored.segment_id, event.scope), []).append(event)
        self._in_segments -= Counter(stored.segment_id for stored, _ in gone)
        for (segment_id, scope), events in groups.items():
            named = [[event.event_id, _content_hash(event)] for event in events]
            for start in range(0, len(named), PRUNED_PER_EVENT_MAX):
                some = named[start : start + PRUNED_PER_EVENT_MAX]
                details = {"segment_id": segment_id, "reason": reason.value, "events": some}
                self._note(call, ChangeType.EPISODIC_PRUNED, str(segment_id), scope, details)
        return len(gone)

    def warn(self, call: Call, warning: EventsWarning | None) -> None:
        """Records a warning, or with None that the timeline is healthy again."""
        change, said = (ChangeType.EPISODIC_WARNING, warning) if warning else (ChangeType.EPISODIC_HEALTHY, HEALTHY)
        details = {"severity": said.severity, "message": said.message, "remediation": said.remediation}
        self._note(call, change, RECORD_ID, Scope(), details)

    def _saved(self, call: Call, event: Event) -> dict[str, Any]:
        time_us = to_microseconds(event.event_time)
        return {
            "event_type": event.event_type,
            "event_time": time_us,
            "importance": event.importance,
            "segment_id": self.segment_id,
            "lag_us": max(0, to_microseconds(call.now) - time_us),
            "segment_count": self.segment_count,
            "content_hash": _content_hash(event),
        }

    def _note(
        self,
        call: Call,
        change: ChangeType,
        record_id: str,
        scope: Scope,
        details: dict[str, Any],
        revision: int = 0,
    ) -> None:
        call.add(self._commits.next_sequence(), change, record_id, revision, scope, details=json.dumps(details))


def _key(event: Event) -> object:
    """The key by which duplicates are detected."""
    scope = event.scope
    return scope.user, scope.household, scope.persona, event.event_type, event.event_time, event.content


def _content_hash(event: Event) -> str:
    return sha256(event.content.encode()).hexdigest()
