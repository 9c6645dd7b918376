"""The episodic memory service: a timeline of events, recorded, queried by time and by text, and pruned."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial

from mnemon_server.domain.clock import Clock, system_clock
from mnemon_server.domain.errors import (
    EventNotFoundError,
    IndexWarmingError,
    InvalidArgumentError,
    MnemonError,
    StorageFailedError,
)
from mnemon_server.domain.events import (
    FILTER_FIELDS,
    LIMIT_DEFAULT,
    CompactionProgress,
    EventPosition,
    EventReceipt,
    EventSelection,
    EventsState,
    EventsStatus,
    PrunedEvents,
    RangeSummary,
    RecordEvent,
    StoredEvent,
    WindowPage,
    WindowQuery,
)
from mnemon_server.domain.validation import refuse, request_id_violations
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.events import EventEngine
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.background.offload import Offload, OneByOne
from mnemon_server.services.events.checks import event_id_violations, is_sound, record_violations
from mnemon_server.services.events.compaction import SharedCompaction
from mnemon_server.services.events.health import EventsHealth
from mnemon_server.services.events.new_events import event_writes
from mnemon_server.services.events.pruning import EventPruning, Pruning
from mnemon_server.services.events.queries import EventQueries
from mnemon_server.services.events.retention import RETENTION
from mnemon_server.services.events.selections import EVERYTHING, has_metadata_key
from mnemon_server.services.reading.answers import Room, read_within
from mnemon_server.services.reading.filter_expressions import unmet_conditions
from mnemon_server.services.reading.read_batcher import ReadBatcher
from mnemon_server.services.search.passage_queries import fetch_vector
from mnemon_server.services.search.reranking import Ranker
from mnemon_server.services.writing.write_pressure import WriteLatency
from mnemon_server.services.writing.writes import TOGETHER_MAX, Waiting, WriteBatcher, recovery_problem, request_key

READER_THREADS = 4
BULK_PARTS = 2
"""Parts of bulk streams that are being stored at once: one is written, and one waits. An event that is recorded alone
waits for both.
"""

log = logging.getLogger(__name__)

Recorded = EventReceipt | MnemonError


@dataclass(frozen=True, slots=True)
class EventStoreSettings:
    """How long storing an event may take, and how long it is kept."""

    write_latency: WriteLatency
    """The time to store an event should not exceed it."""
    keep_for: timedelta | None = None
    """The retention of events, which needs a running EventRetention. None keeps them forever."""
    ranker: Ranker | None = None
    """Gives new scores to turns of conversations in hybrid searches; None leaves them."""


class EventStore:
    """The events in the timeline of a vault. All methods are safe to call from many tasks at once.

    Until the timeline's index is loaded, all methods but `status` raise IndexWarmingError. An invalid request raises
    InvalidArgumentError, and does not count as a problem of the timeline.
    """

    def __init__(
        self,
        events: EventEngine,
        vault: Vault,
        embedder: EmbeddingBatcher,
        *,
        settings: EventStoreSettings,
        clock: Clock = system_clock,
    ) -> None:
        """The vault, with its timeline, and the embedder belong to the caller, who closes them."""
        self._vault = vault
        self._keep_for = settings.keep_for
        self._ranker = settings.ranker
        self._clock = clock
        self._offload = Offload(READER_THREADS, "timeline-reader")
        self._pages = OneByOne(READER_THREADS, "timeline-pages")
        self.bulk_slots = asyncio.Semaphore(BULK_PARTS)
        """To be held by each part of a bulk stream while it is stored."""
        self._embedder = embedder
        self.waiting = Waiting()
        """Events that wait for the engine."""
        self._use(events)
        self._compaction = SharedCompaction(events, self._offload)
        self.pruning = EventPruning(events, self._offload)
        """Removes events, also for EventRetention and conversations."""
        self.health = EventsHealth(
            vault,
            write_latency=settings.write_latency,
            offload=self._offload,
            reporters=() if settings.keep_for is None else (RETENTION,),
        )
        """Gets the reports of EventRetention."""

    def _use(self, events: EventEngine) -> None:
        self._events = events
        self._reads: ReadBatcher[StoredEvent | None] = ReadBatcher(events.get, self._offload)
        self._appends = WriteBatcher(events.append, self.waiting)
        self._queries = EventQueries(events, self._embedder.embed_query, ranker=self._ranker, clock=self._clock)

    def over(self, events: EventEngine) -> "EventStore":
        """The same store over a part of the events, to record and to query. It shares the threads; close this one
        alone.
        """
        part = copy(self)
        part._use(events)
        part.pruning = self.pruning.over(events)
        return part

    @property
    def engine(self) -> EventEngine:
        """The events themselves, to read. Raises as all methods do until they are loaded."""
        self._check_warm()
        return self._events

    @property
    def is_warm(self) -> bool:
        """Whether the timeline's index is loaded."""
        return self._events.is_warm

    @property
    def is_loading(self) -> bool:
        """Whether it is still loading, without a failure so far."""
        return not self._events.is_warm and self._events.failure() is None

    # Recording

    async def record(self, requests: Sequence[RecordEvent]) -> list[Recorded]:
        """Stores events in their order, with one result for each; an invalid event does not affect the others.

        An empty id is replaced by a new one. A result is a receipt, or an InvalidArgumentError, RequestIdReusedError,
        StorageFullError or StorageFailedError. Cancelling the call takes no event back. Calls with up to TOGETHER_MAX
        events keep the order in which they began.
        """
        self._check_warm()
        started = []
        with ExitStack() as timed:
            for start in range(0, len(requests), TOGETHER_MAX):
                if start:
                    # Lets other tasks run in between.
                    await asyncio.sleep(0)
                started.append(self._start(requests[start : start + TOGETHER_MAX], timed))
            results: list[Recorded] = []
            for batch in started:
                results += await batch.results()
        self.health.note(results)
        return results

    def _start(self, requests: Sequence[RecordEvent], timed: ExitStack) -> "_Batch":
        sound = [request for request in requests if is_sound(request)]
        checked = requests if len(sound) < len(requests) else ()
        if not sound:
            return _Batch(checked, None)
        timed.enter_context(self.health.append(len(sound)))
        return _Batch(checked, self._appends.start(event_writes(sound, self._clock())))

    # Asking

    async def get(self, event_id: str, *, room: Room | None = None) -> StoredEvent:
        """The event. EventNotFoundError if it does not exist."""
        self._check_warm()
        refuse(event_id_violations(event_id))
        event = await self._reads.get(event_id, room)
        if event is None:
            raise EventNotFoundError(event_id)
        return event

    async def window(self, query: WindowQuery, *, room: Room | None = None) -> WindowPage:
        """The newest events of a time window, or those that match a text best; see WindowQuery.

        Raises EmbeddingError if the text cannot be embedded.
        """
        self._check_warm()
        if self._events.has_embeddings:
            await fetch_vector(self._embedder, query)
        queries = self._queries
        if query.text is None and query.where.expression is None:
            return await read_within(room, self._pages, queries.window, query)
        return await read_within(room, self._offload, queries.window, query)

    async def recent(
        self,
        where: EventSelection = EVERYTHING,
        after: EventPosition | None = None,
        limit: int = LIMIT_DEFAULT,
        *,
        room: Room | None = None,
    ) -> WindowPage:
        """The newest events of all times."""
        self._check_warm()
        queries = self._queries
        if where.expression is None:
            return await read_within(room, self._pages, queries.recent, where, after, limit)
        return await read_within(room, self._offload, queries.recent, where, after, limit)

    async def summarize(self, where: EventSelection = EVERYTHING, zone: tzinfo = UTC) -> RangeSummary:
        """Counts of the events that match, by the days of a time zone."""
        self._check_warm()
        return await self._offload(self._queries.summarize, where, zone)

    # Removing

    async def prune(
        self,
        *,
        before: datetime | None = None,
        where: EventSelection = EVERYTHING,
        event_ids: Sequence[str] = (),
        allow_missing: bool = False,
        dry_run: bool = False,
        request_id: str = "",
    ) -> PrunedEvents:
        """Removes events for good.

        Args:
            before: those that happened before this time, ...
            where: ... and match this.
            event_ids: or else those with these ids.
            allow_missing: ignores ids that do not exist.
            dry_run: counts and names the events, and removes nothing.
            request_id: makes a repeated call harmless; it continues where the first one was interrupted.

        Raises:
            EventNotFoundError: some ids do not exist. Nothing was removed.
        """
        self._check_warm()
        pruning = Pruning(
            before=before, where=where, event_ids=event_ids, allow_missing=allow_missing, request_id=request_id
        )
        has_key = partial(has_metadata_key, self._events)
        unmet = await self._offload(list, unmet_conditions(where.expression, has_key, FILTER_FIELDS))
        if dry_run or unmet:
            matched = await self.pruning.count(pruning)
            if dry_run or matched.count:
                refuse(unmet)
                return matched
        pruned = await self.pruning.prune(pruning)
        if pruned.count == 0:
            # A repeated call that had removed the last event with this key is answered, with its count.
            refuse(unmet)
        return pruned

    def compact(self, request_id: str = "") -> AsyncGenerator[CompactionProgress]:
        """Compacts the timeline. Yields the progress at least every second, at the end with `done`.

        Closing the generator does not stop the compaction. A call during a compaction follows that one; a repeated
        request gets the end of the one that it asked for.
        """
        self._check_warm()
        refuse(request_id_violations(request_id))
        return self._compaction.follow(request_key(request_id, "compact-timeline"))

    # Health

    async def status(self) -> EventsStatus:
        """The status of the timeline. If the records have failed, tries to open them again. Never raises."""
        try:
            status = await self._offload(self._read_status)
        except Exception:
            log.exception("the status cannot be read")
            status = EventsStatus(
                state=EventsState.UNAVAILABLE, message="the timeline cannot be read; the log says why"
            )
        return self._with_own(status)

    async def aclose(self) -> None:
        """Waits for the reads that have begun; calls after it fail."""
        await self.health.aclose()
        await self._offload.aclose()
        await asyncio.to_thread(self._pages.close)

    def _check_warm(self) -> None:
        if self.is_loading:
            raise IndexWarmingError("the timeline is being loaded")
        if not self.is_warm:
            raise StorageFailedError(f"the timeline cannot be loaded: {self._events.failure()}")
        self.health.notice()

    def _read_status(self) -> EventsStatus:
        if problem := recovery_problem(self._vault):
            return replace(self._events.status(), state=EventsState.DEGRADED, message=problem)
        return self._events.status()

    def _with_own(self, status: EventsStatus) -> EventsStatus:
        """The status with what only the service knows."""
        status = replace(status, retention_s=None if self._keep_for is None else self._keep_for.total_seconds())
        self.health.notice()
        problem = self.health.problem()
        if status.state in (EventsState.STARTING, EventsState.UNAVAILABLE) or not problem:
            return status
        message = f"{status.message}; {problem}" if status.message else problem
        return replace(status, state=EventsState.DEGRADED, message=message)


class _Batch:
    """Events that are being stored."""

    def __init__(self, checked: Sequence[RecordEvent], future: "asyncio.Future[list[Recorded]] | None") -> None:
        """`checked` has all requests if some are invalid, and is empty otherwise."""
        self._checked = checked
        self._future = future

    async def results(self) -> list[Recorded]:
        """One for each request, in their order."""
        stored = await self._future if self._future is not None else []
        if not self._checked:
            return stored
        of_sound = iter(stored)
        return [
            next(of_sound) if is_sound(request) else InvalidArgumentError(list(record_violations(request)))
            for request in self._checked
        ]
