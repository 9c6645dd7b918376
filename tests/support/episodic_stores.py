"""Episodic stores with a clock that only the test moves, over a timeline that can be held or made to fail."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

from mnemon_server.domain.changes import Change, ChangeFilter, ChangeType
from mnemon_server.domain.errors import MnemonError
from mnemon_server.domain.events import (
    CompactionProgress,
    Event,
    EventReceipt,
    PruneReason,
    RecordEvent,
    StoredEvent,
)
from mnemon_server.domain.records import RequestKey, Scope
from mnemon_server.embedding.base import Embedder
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.embedding.factory import HashingEmbedder
from mnemon_server.engines.events.settings import EventEngineSettings
from mnemon_server.engines.promises.events import EventEngine, EventWrite
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.events.pruning import PAUSE_S
from mnemon_server.services.events.store import EventStore, EventStoreSettings
from mnemon_server.services.search.reranking import Ranker
from mnemon_server.services.writing.write_pressure import WriteLatency
from mnemon_server.wire.events import decode

from tests.support.memory_stores import MovingClock
from tests.support.vaults import DIMENSION, open_vault, temporary_vault

WAIT_S = 60.0
ADA, BOB = Scope(user="ada"), Scope(user="bob")
DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
assert PAUSE_S < 1.0

NEVER_SLOW = WriteLatency(60.0)


class TroubledTimeline:
    """A timeline whose disk can be slow, full or broken, and whose compaction can be held."""

    def __init__(self, timeline: EventEngine) -> None:
        self._timeline = timeline
        self.appended: list[int] = []
        """How many events came with each append."""
        self.held: list[Callable[[], None]] | None = None
        """What lets the appends go on; None while none is held."""
        self.append_error: MnemonError | None = None
        self.prunings_left: int | None = None
        """How many prunings succeed until they fail with `prune_error`."""
        self.prune_error: MnemonError | None = None
        self.pruned: list[int] = []
        self.compactions = 0
        self.progress: list[CompactionProgress] = []
        self.compact_gate = threading.Event()
        self.looks = 0
        """How often a stored answer was looked up."""
        self.look_gate = threading.Event()
        """What a look waits for when it has looked."""
        self.look_gate.set()
        self.is_warm = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._timeline, name)

    def append(self, writes: Sequence[EventWrite]) -> "Future[list[EventReceipt | MnemonError]]":
        """See Timeline."""
        self.appended.append(len(writes))
        if self.append_error is not None:
            failed: Future[list[EventReceipt | MnemonError]] = Future()
            failed.set_exception(self.append_error)
            return failed
        future = self._timeline.append(writes)
        if self.held is None:
            return future
        late: Future[list[EventReceipt | MnemonError]] = Future()
        self.held.append(lambda: late.set_result(future.result()))
        return late

    def let_go(self) -> None:
        """Releases all held calls and holds no more."""
        held, self.held = self.held or [], None
        for go_on in held:
            go_on()

    def prune(
        self,
        events: Sequence[StoredEvent],
        reason: PruneReason,
        *,
        answer: Callable[[], str] | None = None,
        request: RequestKey | None = None,
    ) -> "Future[int]":
        """See Timeline."""
        if self.prunings_left == 0 and self.prune_error is not None:
            failed: Future[int] = Future()
            failed.set_exception(self.prune_error)
            return failed
        if self.prunings_left is not None:
            self.prunings_left -= 1
        self.pruned.append(len(events))
        return self._timeline.prune(events, reason, answer=answer, request=request)

    def kept_answer(self, request: RequestKey) -> str | None:
        """See Timeline."""
        answer = self._timeline.kept_answer(request)
        self.looks += 1
        assert self.look_gate.wait(WAIT_S)
        return answer

    def compact(self, report: Callable[[CompactionProgress], None]) -> CompactionProgress:
        """See Timeline."""
        self.compactions += 1
        for progress in self.progress:
            report(progress)
        assert self.compact_gate.wait(WAIT_S)
        return self._timeline.compact(report)


class OpenedEpisodic:
    """An episodic store with its vault, its timeline and its clock."""

    def __init__(self, store: EventStore, vault: Vault, timeline: TroubledTimeline, clock: MovingClock) -> None:
        self.store, self.vault, self.timeline, self.clock = store, vault, timeline, clock

    async def happened(self, *contents: str, ago: timedelta = MINUTE, **fields: Any) -> list[EventReceipt]:
        """Records events, all of which must be stored."""
        when = self.clock() - ago
        return receipts(await self.store.record([happening(content, when, **fields) for content in contents]))

    async def indexed(self) -> None:
        """Waits until the text index has processed every event."""
        deadline = time.monotonic() + WAIT_S
        while (await self.store.status()).text_pending_count:
            assert time.monotonic() < deadline, "the text index does not catch up"
            await asyncio.sleep(0.01)

    def feed(self, *types: ChangeType) -> list[Change]:
        """The changes in the log, of some types or of all."""
        return list(self.vault.changes.read(0, limit=10_000, where=ChangeFilter(frozenset(types))).changes)

    def warnings(self) -> list[str]:
        """The changes of the timeline's health in the log: warnings by message, and "healthy"."""
        types = (ChangeType.EPISODIC_WARNING, ChangeType.EPISODIC_HEALTHY)
        return [
            "healthy" if event.type is ChangeType.EPISODIC_HEALTHY else json.loads(event.details)["message"]
            for event in self.feed(*types)
        ]

    async def contents(self) -> list[str]:
        """The contents of all events, newest first."""
        return said((await self.store.recent(limit=1_000)).events)


def happening(
    content: str,
    when: datetime,
    *,
    scope: Scope = ADA,
    event_type: str = "conversation",
    request_id: str = "",
    **rest: Any,
) -> RecordEvent:
    """A request to record an event."""
    event_id = rest.pop("event_id", "")
    return RecordEvent(Event(event_id, event_type, when, content, scope=scope, **rest), request_id=request_id)


def receipts(results: Iterable[EventReceipt | MnemonError]) -> list[EventReceipt]:
    """The results, all of which must be receipts."""
    found = list(results)
    assert all(isinstance(result, EventReceipt) for result in found), found
    return cast(list[EventReceipt], found)


def said(events: Iterable[StoredEvent]) -> list[str]:
    """The contents of events."""
    return [decode(event.body).content for event in events]


def episodic_vault(folder: Path, clock: MovingClock, *, segment_events_max: int = 10_000) -> Vault:
    """A vault with this many events per segment."""
    events = EventEngineSettings(segment_events_max=segment_events_max, joined_min=10**6)
    return open_vault(folder, clock, events=events)


@asynccontextmanager
async def open_event_store(
    vault: Vault | None = None,
    *,
    clock: MovingClock | None = None,
    embedder: Embedder | None = None,
    write_latency: WriteLatency = NEVER_SLOW,
    keep_for: timedelta | None = None,
    ranker: Ranker | None = None,
) -> AsyncIterator[OpenedEpisodic]:
    """A store over a new vault, or over the given one."""
    clock = clock or MovingClock()
    with nullcontext(vault) if vault else temporary_vault(clock) as opened_vault:
        assert await asyncio.to_thread(opened_vault.events.wait_until_warm, WAIT_S)
        timeline = TroubledTimeline(opened_vault.events)
        settings = EventStoreSettings(write_latency, keep_for, ranker)
        async with EmbeddingBatcher(embedder or HashingEmbedder(DIMENSION)) as batcher:
            store = EventStore(cast(EventEngine, timeline), opened_vault, batcher, settings=settings, clock=clock)
            try:
                yield OpenedEpisodic(store, opened_vault, timeline, clock)
            finally:
                timeline.compact_gate.set()
                timeline.let_go()
                await store.aclose()
