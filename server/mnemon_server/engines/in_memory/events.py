"""The timeline in a dictionary: the shortest implementation of the contract in `engines/promises/events.py`."""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import datetime
from itertools import accumulate

import numpy as np

from mnemon_server.domain.clock import to_microseconds
from mnemon_server.domain.encoding import scope_values
from mnemon_server.domain.errors import EventExistsError, MnemonError, RequestIdReusedError
from mnemon_server.domain.events import (
    CompactionProgress,
    Event,
    EventPosition,
    EventReceipt,
    EventSelection,
    EventsState,
    EventsStatus,
    PruneReason,
    RangeSummary,
    StoredEvent,
)
from mnemon_server.domain.filters import matches
from mnemon_server.domain.records import RelevanceFloors, RequestKey, SearchMode
from mnemon_server.engines.events.event_fields import field_reader
from mnemon_server.engines.in_memory import keywords
from mnemon_server.engines.in_memory.change_log import InMemoryChangeLog
from mnemon_server.engines.in_memory.commit_lock import CommitLock
from mnemon_server.engines.in_memory.kept_events import Kept, KeptEvents
from mnemon_server.engines.promises.events import (
    SLICE_BYTES_MAX,
    SLICE_READS_MAX,
    EventsWarning,
    EventWrite,
    Expired,
    Sequences,
    TextScores,
    WindowSlice,
)
from mnemon_server.engines.promises.values import Fits, Vector
from mnemon_server.ranking.fusion import KEYWORD_FLOOR
from mnemon_server.ranking.heads import NO_HEADS, Heads
from mnemon_server.wire.events import encode

SEGMENT_EVENTS_MAX = 10_000
DAY_US = 86_400_000_000


class InMemoryEvents:
    """See Timeline."""

    def __init__(
        self,
        commits: CommitLock,
        log: InMemoryChangeLog,
        heads: Heads = NO_HEADS,
        *,
        segment_events_max: int = SEGMENT_EVENTS_MAX,
        reads_max: int = SLICE_READS_MAX,
    ) -> None:
        self._commits = commits
        self._log = log
        self._heads = heads
        self._kept = KeptEvents(commits, segment_events_max)
        self._reads_max = reads_max

    @property
    def is_warm(self) -> bool:
        """See Timeline."""
        return True

    @property
    def has_embeddings(self) -> bool:
        """See Timeline."""
        return False

    def wait_until_warm(self, timeout_s: float) -> bool:
        """See Timeline."""
        return True

    # Writes

    def append(self, writes: Sequence[EventWrite]) -> Future[list[EventReceipt | MnemonError]]:
        """See Timeline."""
        # Encoding reports an invalid event before any event is stored.
        bodies = [encode(write.event) for write in writes]
        return self._commits.write(None, lambda: [self._answer(*pair) for pair in zip(writes, bodies, strict=True)])

    def prune(
        self,
        events: Sequence[StoredEvent],
        reason: PruneReason,
        *,
        answer: Callable[[], str] | None = None,
        request: RequestKey | None = None,
    ) -> Future[int]:
        """See Timeline."""
        return self._commits.write(None, lambda: self._prune_once(events, reason, answer, request))

    def warn(self, warning: EventsWarning | None) -> Future[None]:
        """See Timeline."""
        return self._commits.write(None, lambda: self._log.run(None, lambda call: self._kept.warn(call, warning)))

    # Reads

    def window(self, where: EventSelection, *, after: EventPosition | None = None, limit: int) -> WindowSlice:
        """See Timeline."""
        with self._commits.lock:
            in_context = [kept for kept in self._kept.events.values() if _in_context(kept.event, where)]
            in_window = [kept for kept in in_context if _in_window(kept.event, where)]
            rest = [kept for kept in in_window if after is None or kept.stored.position < after]
            rest.sort(key=lambda kept: kept.stored.position, reverse=True)
            found, read, truncated = self._take(rest, where, limit)
            return WindowSlice(
                tuple(found),
                rest[read - 1].stored.position if read < len(rest) else None,
                total=len(self._kept.events),
                in_context=len(in_context),
                in_window=len(in_window),
                rejected=read - len(found),
                truncated=truncated,
            )

    def count(self, where: EventSelection) -> int:
        """See Timeline."""
        return len(self._matching(where))

    def get(self, event_ids: Sequence[str], *, fits: Fits | None = None) -> list[StoredEvent | None]:
        """See Timeline."""
        with self._commits.lock:
            found = {event_id: self._kept.by_id.get(event_id) for event_id in event_ids}
            stored = {
                event_id: self._kept.events[sequence].stored
                for event_id, sequence in found.items()
                if sequence is not None
            }
            if fits is not None:
                stored = {event_id: one for event_id, one in stored.items() if fits(event_id, len(one.body))}
            return [stored.get(event_id) for event_id in event_ids]

    def summarize(self, where: EventSelection) -> RangeSummary:
        """See Timeline."""
        events = [kept.event for kept in self._matching(where)]
        times = [event.event_time for event in events]
        types = Counter(event.event_type for event in events)
        days = Counter(to_microseconds(time) // DAY_US for time in times)
        return RangeSummary(
            len(events),
            min(times, default=None),
            max(times, default=None),
            tuple(sorted(types.items(), key=lambda item: (-item[1], item[0]))),
            tuple(sorted(days.items())),
        )

    def sequences(self, where: EventSelection) -> Sequences:
        """See Timeline."""
        return np.array([kept.stored.sequence for kept in self._matching(where)], np.int64)

    def read(self, sequences: Sequence[int], *, bytes_max: int | None = None) -> list[StoredEvent]:
        """See Timeline."""
        with self._commits.lock:
            found = [self._kept.events[sequence].stored for sequence in sequences if sequence in self._kept.events]
        sizes = accumulate(len(stored.body) for stored in found)
        within = sum(1 for size in sizes if bytes_max is None or size <= bytes_max)
        return found[: max(within, 1)]

    def expired(self, before: datetime, *, limit: int) -> Expired:
        """See Timeline."""
        with self._commits.lock:
            old = [kept.stored for kept in self._kept.events.values() if kept.event.event_time < before]
            return Expired(len(old), len(self._kept.events), tuple(old[:limit]))

    def kept_answer(self, request: RequestKey) -> str | None:
        """See Timeline."""
        with self._commits.lock:
            answer: str | None = self._commits.known_answer(request)
            return answer

    def search_text(self, query: str, vector: Vector | None, among: Sequences, mode: SearchMode) -> TextScores:
        """See Timeline."""
        with self._commits.lock:
            asked = [self._kept.events[sequence] for sequence in among.tolist() if sequence in self._kept.events]
        heads = self._heads
        stored = {
            kept.stored.sequence: keywords.words(heads.passage(kept.event.metadata, kept.event.content, 0, None))
            for kept in asked
        }
        scores = sorted(keywords.search(query, stored, None).items())
        relevance = np.array([score for _, score in scores], np.float64)
        return TextScores(
            np.array([sequence for sequence, _ in scores], np.int64),
            relevance,
            similarity=np.full(len(scores), np.nan),
            keyword=relevance,
            mode=SearchMode.KEYWORD,
            pending=0,
            floors=RelevanceFloors(KEYWORD_FLOOR),
        )

    # Status

    def compact(self, report: Callable[[CompactionProgress], None]) -> CompactionProgress:
        """See Timeline. Nothing to compact."""
        progress = CompactionProgress(segment_count=self.status().segment_count, done=True)
        report(progress)
        return progress

    def scrub(self) -> None:
        """See Timeline. Nothing to check."""

    def status(self) -> EventsStatus:
        """See Timeline. Segment bytes are those of the bodies. The active segment is not sealed."""
        with self._commits.lock:
            active, kept_events = self._kept.segment_id, self._kept.events.values()
            times = [kept.event.event_time for kept in kept_events]
            return EventsStatus(
                state=EventsState.READY,
                event_count=len(kept_events),
                segment_count=self._kept.segment_count,
                active_segment_id=active,
                segment_bytes=sum(len(kept.stored.body) for kept in kept_events),
                unsealed_count=sum(kept.stored.segment_id == active for kept in kept_events),
                earliest=min(times, default=None),
                latest=max(times, default=None),
                loaded_segment_count=self._kept.segment_count,
            )

    def failure(self) -> str | None:
        """See Timeline."""
        return None

    def close(self) -> None:
        """See Timeline."""

    # With the lock held

    def _answer(self, write: EventWrite, body: bytes) -> EventReceipt | MnemonError:
        def store() -> EventReceipt:
            imported = write.is_imported
            return self._log.run(write.request, lambda call: self._kept.store(call, body, is_imported=imported))

        try:
            receipt: EventReceipt = self._commits.answer_once(write.request, store)
        except (EventExistsError, RequestIdReusedError) as error:
            return error
        return receipt

    def _prune_once(
        self,
        events: Sequence[StoredEvent],
        reason: PruneReason,
        answer: Callable[[], str] | None,
        request: RequestKey | None,
    ) -> int:
        if request and self._commits.known_answer(request) is not None:
            return 0
        # Compute the answer first: if that raises, nothing has been removed.
        kept_answer = answer() if answer else ""
        sequences = {stored.sequence for stored in events}
        count = self._log.run(request, lambda call: self._kept.prune(call, sequences, reason))
        if request:
            self._commits.keep_answer(request, kept_answer)
        return count

    def _matching(self, where: EventSelection) -> list[Kept]:
        """The matching events, in storage order."""
        with self._commits.lock:
            return [
                kept
                for kept in self._kept.events.values()
                if _in_context(kept.event, where) and _in_window(kept.event, where) and _passes(kept.event, where)
            ]

    def _take(self, rest: Sequence[Kept], where: EventSelection, limit: int) -> tuple[list[StoredEvent], int, bool]:
        """The first events that match the expression, how many were read, and whether further ones do not fit."""
        found: list[StoredEvent] = []
        size = read = 0
        for stored, event in rest:
            if _passes(event, where):
                size += len(stored.body)
                if size > SLICE_BYTES_MAX and found:
                    return found, read, True
                found.append(stored)
            read += 1
            too_many = where.expression is not None and read == self._reads_max
            if len(found) == limit or too_many:
                break
        return found, read, False


def _in_context(event: Event, where: EventSelection) -> bool:
    scopes = zip(scope_values(event.scope), scope_values(where.scope), strict=True)
    return (
        all(wanted in ("", stored) for stored, wanted in scopes)
        and (not where.event_types or event.event_type in where.event_types)
        and (
            where.min_importance is None or (event.importance is not None and event.importance >= where.min_importance)
        )
    )


def _in_window(event: Event, where: EventSelection) -> bool:
    return (where.start is None or event.event_time >= where.start) and (
        where.end is None or event.event_time <= where.end
    )


def _passes(event: Event, where: EventSelection) -> bool:
    return where.expression is None or matches(where.expression, field_reader(event))
