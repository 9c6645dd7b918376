"""A compaction is shared by all its callers, reports while it runs, and continues without them."""

import asyncio
import logging
import queue
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from logging.handlers import QueueHandler
from typing import Any

import pytest
from mnemon_server.domain.errors import (
    InvalidArgumentError,
    MnemonError,
    NotServingError,
    RequestIdReusedError,
    StorageFullError,
)
from mnemon_server.domain.events import CompactionProgress
from mnemon_server.engines.promises.events import EventEngine
from mnemon_server.services.events import compaction as episodic_compaction
from mnemon_server.services.events.compaction import REPORT_EVERY_S, SharedCompaction

from tests.support.episodic_stores import OpenedEpisodic, open_event_store
from tests.support.server import eventually, until

HALF = CompactionProgress(processed_bytes=50, total_bytes=100, segment_count=4)
TIMEOUT_S = 60.0
NO_READS: Any = None
"""Nothing is read where there is no request id."""


@pytest.fixture
async def opened() -> AsyncIterator[OpenedEpisodic]:
    """A store whose compaction gets half way and then waits for its gate."""
    async with open_event_store() as opened:
        await opened.happened("a", "b")
        opened.timeline.progress = [HALF]
        yield opened


async def all_of(progress: AsyncIterator[CompactionProgress]) -> list[CompactionProgress]:
    """Everything that is reported."""
    return [one async for one in progress]


async def test_it_reports_its_progress_and_finally_that_it_is_done(opened: OpenedEpisodic) -> None:
    seen = []
    async for progress in opened.store.compact():
        seen.append(progress)
        if progress == HALF:
            opened.timeline.compact_gate.set()

    assert HALF in seen
    assert [progress.done for progress in seen] == [False] * (len(seen) - 1) + [True]


async def test_it_reports_repeatedly_even_if_nothing_is_new(opened: OpenedEpisodic) -> None:
    assert REPORT_EVERY_S <= 1.0

    class Held:
        """A compaction that waits."""

        gate = threading.Event()

        def compact(self, _report: object) -> CompactionProgress:
            assert self.gate.wait(TIMEOUT_S)
            return CompactionProgress(done=True)

    held = Held()
    reports = SharedCompaction(as_timeline(held), NO_READS, report_every_s=0.01).follow()
    silent = [await asyncio.wait_for(anext(reports), TIMEOUT_S) for _ in range(5)]
    held.gate.set()

    assert silent == [CompactionProgress()] * 5
    assert (await all_of(reports))[-1].done


def as_timeline(compacting: object) -> EventEngine:
    """Used for its compaction only."""
    return compacting  # type: ignore[return-value]


async def test_two_callers_share_one_run(opened: OpenedEpisodic) -> None:
    first = asyncio.create_task(all_of(opened.store.compact()))
    second = asyncio.create_task(all_of(opened.store.compact()))
    await until(lambda: opened.timeline.compactions)
    opened.timeline.compact_gate.set()

    assert (await first)[-1].done
    assert (await second)[-1].done
    assert opened.timeline.compactions == 1
    assert (await all_of(opened.store.compact()))[-1].done
    assert opened.timeline.compactions == 2


async def test_a_repeated_request_follows_its_run_or_gets_its_result(opened: OpenedEpisodic) -> None:
    call = opened.store.compact("once")
    await anext(call)
    await call.aclose()
    again = opened.store.compact("once")
    await anext(again)
    opened.timeline.compact_gate.set()
    last = (await all_of(again))[-1]

    assert (last.done, last.replayed) == (True, False)
    assert await all_of(opened.store.compact("once")) == [replace(last, replayed=True)]
    assert opened.timeline.compactions == 1
    assert (await all_of(opened.store.compact("another")))[-1].done
    assert opened.timeline.compactions == 2


async def test_the_result_of_a_run_is_stored_even_if_no_caller_waited(opened: OpenedEpisodic) -> None:
    call = opened.store.compact("once")
    await anext(call)
    await call.aclose()
    opened.timeline.compact_gate.set()

    async def is_kept() -> bool:
        return (await all_of(opened.store.compact("once")))[-1].replayed

    await eventually(is_kept)
    assert opened.timeline.compactions == 1


async def test_a_run_that_ends_while_its_request_is_looked_up_is_not_run_again(opened: OpenedEpisodic) -> None:
    call = opened.store.compact("once")
    await anext(call)
    looks = opened.timeline.looks
    opened.timeline.look_gate.clear()
    again = asyncio.create_task(all_of(opened.store.compact("once")))
    await until(lambda: opened.timeline.looks - looks)
    opened.timeline.compact_gate.set()
    first = (await all_of(call))[-1]
    opened.timeline.look_gate.set()

    assert (await again)[-1] == first
    assert opened.timeline.compactions == 1


async def test_a_request_id_of_a_compaction_cannot_be_used_for_another_request(opened: OpenedEpisodic) -> None:
    opened.timeline.compact_gate.set()
    await opened.store.prune(event_ids=["nothing"], allow_missing=True, request_id="pruning")
    await all_of(opened.store.compact("compaction"))
    with pytest.raises(RequestIdReusedError):
        await all_of(opened.store.compact("pruning"))
    with pytest.raises(RequestIdReusedError):
        await opened.store.prune(event_ids=["nothing"], allow_missing=True, request_id="compaction")
    with pytest.raises(InvalidArgumentError, match="request_id"):
        opened.store.compact("r" * 129)
    assert opened.timeline.compactions == 1


async def test_cancelling_the_call_does_not_stop_the_run(opened: OpenedEpisodic) -> None:
    call = opened.store.compact()
    await anext(call)
    await call.aclose()
    again = opened.store.compact()
    await anext(again)
    opened.timeline.compact_gate.set()

    assert (await all_of(again))[-1].done
    assert opened.timeline.compactions == 1


async def test_events_are_recorded_while_it_runs(opened: OpenedEpisodic) -> None:
    call = opened.store.compact()
    await anext(call)
    await opened.happened("meanwhile")

    assert "meanwhile" in await opened.contents()
    await call.aclose()


@pytest.mark.parametrize(
    ("error", "said"),
    [(NotServingError("the timeline is being closed"), []), (StorageFullError("full"), ["full"])],
)
async def test_the_log_does_not_report_the_closing_of_a_vault_as_a_failure(
    error: MnemonError, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ended:
        """A compaction that ends at once."""

        def compact(self, _report: object) -> CompactionProgress:
            raise error

    records = queue.SimpleQueue[logging.LogRecord]()
    logger = logging.getLogger("of this test")
    monkeypatch.setattr(logger, "handlers", [QueueHandler(records)])
    monkeypatch.setattr(episodic_compaction, "log", logger)
    with pytest.raises(type(error)):
        await all_of(SharedCompaction(as_timeline(Ended()), NO_READS).follow())
    await asyncio.sleep(0)
    told = [records.get_nowait().getMessage() for _ in range(records.qsize())]
    assert told == [f"the timeline could not be compacted: {message}" for message in said]


async def test_a_failed_run_is_reported_to_all_callers_and_the_next_run_is_new(opened: OpenedEpisodic) -> None:
    compact = opened.timeline.compact

    def fail(report: object) -> CompactionProgress:
        assert opened.timeline.compact_gate.wait(TIMEOUT_S)
        raise StorageFullError("the disk is full")

    opened.timeline.__dict__["compact"] = fail
    calls = [asyncio.create_task(all_of(opened.store.compact())) for _ in range(2)]
    await asyncio.sleep(0)
    opened.timeline.compact_gate.set()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(result, StorageFullError) for result in results)
    opened.timeline.__dict__["compact"] = compact

    assert (await all_of(opened.store.compact()))[-1].done
