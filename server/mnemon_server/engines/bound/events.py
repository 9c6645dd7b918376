"""A timeline of which a caller sees only some events."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, tzinfo

import numpy as np

from mnemon_server.domain.access.bounds import Bounds, read_only
from mnemon_server.domain.clock import from_microseconds
from mnemon_server.domain.conversations import Conversation
from mnemon_server.domain.errors import MnemonError
from mnemon_server.domain.events import (
    EventPosition,
    EventReceipt,
    EventSelection,
    PruneReason,
    RangeSummary,
    StoredEvent,
)
from mnemon_server.domain.records import RequestKey, Scope
from mnemon_server.engines.bound.records import refuse, refused
from mnemon_server.engines.bound.writing import write_own
from mnemon_server.engines.promises.events import (
    EventEngine,
    EventWrite,
    Sequences,
    WindowSlice,
)
from mnemon_server.engines.promises.values import Fits
from mnemon_server.wire.events import decode


class BoundEvents:
    """See EventEngine. A call reads the events of one user: the caller's, or the one that its scope names. What that
    user shares with the caller may be a part of them; then the call is about this part.

    Whatever concerns all events raises PermissionDeniedError.
    """

    def __init__(self, events: EventEngine, bounds: Bounds, owner: str) -> None:
        """`owner` marks the caller's request ids, see RequestKey."""
        self._events = events
        self._bounds = bounds
        self._owner = owner
        self.wait_until_warm, self.search_text = events.wait_until_warm, events.search_text
        self.failure = events.failure
        """See EventEngine."""

    @property
    def is_warm(self) -> bool:
        """See EventEngine."""
        return self._events.is_warm

    def append(self, writes: Sequence[EventWrite]) -> Future[list[EventReceipt | MnemonError]]:
        """See EventEngine."""
        return write_own(writes, self._owned, self._events.append)

    def may_record(self, origin: str) -> bool:
        """See EventEngine."""
        return not self._bounds.origins or origin in self._bounds.origins

    def window(self, where: EventSelection, *, after: EventPosition | None = None, limit: int) -> WindowSlice:
        """See EventEngine."""
        scope, part = self._bounds.selected(where.scope)
        found = self._events.window(self._shown(replace(where, scope=scope)), after=after, limit=limit)
        # Counted among the events that exist for the caller.
        total = self._events.count(self._shown(EventSelection(scope=part)))
        return replace(found, total=max(total, found.in_context))

    def count(self, where: EventSelection) -> int:
        """See EventEngine."""
        return self._events.count(self._restricted(where))

    def get(self, event_ids: Sequence[str], *, fits: Fits | None = None) -> list[StoredEvent | None]:
        """See EventEngine."""
        return [
            event if event and self._sees(event) and (fits is None or fits(event_id, len(event.body))) else None
            for event_id in event_ids
            for event in self._events.get([event_id])
        ]

    def get_stored(self, event_ids: Sequence[str]) -> list[StoredEvent | None]:
        """See EventEngine."""
        found, scopes = self._events.get(event_ids), self._bounds.scopes()
        return [event if event and self._has_scope(event, scopes) else None for event in found]

    def summarize(self, where: EventSelection, zone: tzinfo = UTC) -> RangeSummary:
        """See EventEngine."""
        return self._events.summarize(self._restricted(where), zone)

    def conversations(self, where: EventSelection) -> list[Conversation]:
        """See EventEngine."""
        return self._events.conversations(self._restricted(where))

    def sequences(self, where: EventSelection) -> Sequences:
        """See EventEngine."""
        return self._events.sequences(self._restricted(where))

    def read(self, sequences: Sequence[int], *, bytes_max: int | None = None) -> list[StoredEvent]:
        """See EventEngine."""
        return [event for event in self._events.read(sequences, bytes_max=bytes_max) if self._sees(event)]

    @property
    def has_embeddings(self) -> bool:
        """See EventEngine."""
        return self._events.has_embeddings

    def close(self) -> None:
        """Does nothing: the timeline belongs to others."""

    def _owned(self, write: EventWrite) -> EventWrite:
        request = self._own(write.request)
        event = replace(write.event, scope=self._bounds.owned(self._bounds.sourced(write.event.scope)))
        return EventWrite(event, write.id_is_new, request, write.is_imported, within=self._bounds.scopes())

    def _restricted(self, where: EventSelection) -> EventSelection:
        scope, _ = self._bounds.selected(where.scope)
        return self._shown(replace(where, scope=scope))

    def _shown(self, where: EventSelection) -> EventSelection:
        """The selection without events in quarantine."""
        return replace(where, without=(*where.without, *self._bounds.hidden))

    def _sees(self, event: StoredEvent) -> bool:
        return self._is_in(event, self._bounds.scopes())

    def _may_write(self, event: StoredEvent) -> bool:
        return self._is_in(event, self._bounds.scopes(writing=True))

    def _is_in(self, event: StoredEvent, scopes: Sequence[Scope] | None) -> bool:
        """Whether one of the scopes has the event, and it is not in quarantine."""
        is_hidden = bool(self._bounds.hidden) and self._bounds.hides(decode(event.body).scope)
        return not is_hidden and self._has_scope(event, scopes)

    def _has_scope(self, event: StoredEvent, scopes: Sequence[Scope] | None) -> bool:
        """Whether one of the scopes has the event. The index tells; its body does not have to be parsed."""
        if scopes is None:
            return True
        time = from_microseconds(event.position.time_us)
        there = (self._events.sequences(EventSelection(scope=each, start=time, end=time)) for each in scopes)
        return any(bool(np.isin(event.sequence, sequences)) for sequences in there)

    def prune(
        self,
        events: Sequence[StoredEvent],
        reason: PruneReason,
        *,
        answer: Callable[[], str] | None = None,
        request: RequestKey | None = None,
    ) -> Future[int]:
        """See EventEngine. Raises PermissionDeniedError if the caller may not write one of the events."""
        if not all(map(self._may_write, events)):
            raise read_only() if all(map(self._sees, events)) else refused()
        for event in events if self._bounds.origins else ():
            self._bounds.check_change(decode(event.body).scope)
        return self._events.prune(events, reason, answer=answer, request=self._own(request))

    def kept_answer(self, request: RequestKey) -> str | None:
        """See EventEngine."""
        return self._events.kept_answer(self._bounds.request(request, self._owner))

    def _own(self, request: RequestKey | None) -> RequestKey | None:
        return self._bounds.request(request, self._owner) if request else None

    # Refused: these concern all events

    expired = compact = scrub = status = refuse
