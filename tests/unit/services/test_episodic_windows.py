"""Windows of time: which events they hold, in which order, page by page, and how many events were left out."""

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mnemon_server.domain.errors import EmbeddingError, InvalidArgumentError
from mnemon_server.domain.events import (
    EventScore,
    EventSelection,
    PruneReason,
    WindowPage,
    WindowQuery,
)
from mnemon_server.domain.filters import Condition, Operator
from mnemon_server.domain.records import Scope, SearchMode
from mnemon_server.embedding.factory import HashingEmbedder
from mnemon_server.engines.promises.events import Sequences, TextScores
from mnemon_server.engines.promises.values import Vector

from tests.support.episodic_stores import (
    ADA,
    BOB,
    DAY,
    HOUR,
    MINUTE,
    OpenedEpisodic,
    episodic_vault,
    open_event_store,
    said,
)
from tests.support.gated_embedder import GatedEmbedder
from tests.support.memory_stores import NOON, MovingClock
from tests.support.vaults import DIMENSION

ADAS = EventSelection(scope=ADA)
BY_CONTENT = Condition("content", Operator.NE, ("a",))


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedEpisodic]:
    """An empty store."""
    vault = episodic_vault(tmp_path / "vault", clock := MovingClock())
    async with open_event_store(vault, clock=clock) as opened:
        yield opened
    await asyncio.to_thread(vault.close)


@pytest.fixture
async def quarter(opened: OpenedEpisodic) -> OpenedEpisodic:
    """Events of Ada and Bob from the last 90 days, and one in the future."""
    for content, days in (("a", 1), ("b", 29), ("c", 31), ("d", 90)):
        await opened.happened(content, ago=days * DAY)
        await opened.happened(f"bob's {content}", ago=days * DAY, scope=BOB, importance=0.5)
    await opened.happened("tomorrow", ago=-DAY)
    return opened


async def window(opened: OpenedEpisodic, *, where: EventSelection = ADAS, **query: Any) -> WindowPage:
    """Ada's events in a window."""
    return await opened.store.window(WindowQuery(where=where, **query))


def between(start: datetime | None, end: datetime | None) -> dict[str, Any]:
    """A query for a range."""
    return {"where": EventSelection(scope=ADA, start=start, end=end), "has_range": True}


# What a window holds


async def test_the_default_window_is_the_last_thirty_days(quarter: OpenedEpisodic) -> None:
    assert said((await window(quarter)).events) == ["a", "b"]


async def test_the_last_days_end_at_the_current_time(quarter: OpenedEpisodic) -> None:
    assert said((await window(quarter, last_days=31)).events) == ["a", "b", "c"]
    assert said((await window(quarter, last_days=1)).events) == ["a"]
    quarter.clock.pass_hours(48)
    assert said((await window(quarter, last_days=31)).events) == ["tomorrow", "a", "b"]


async def test_a_range_includes_both_ends_and_either_may_be_open(quarter: OpenedEpisodic) -> None:
    first, last = NOON - 31 * DAY, NOON - 29 * DAY
    moment = timedelta(microseconds=1)

    assert said((await window(quarter, **between(first, last))).events) == ["b", "c"]
    assert said((await window(quarter, **between(first + moment, last - moment))).events) == []
    assert said((await window(quarter, **between(None, first))).events) == ["c", "d"]
    assert said((await window(quarter, **between(last, None))).events) == ["tomorrow", "a", "b"]
    assert said((await window(quarter, **between(None, None))).events) == ["tomorrow", "a", "b", "c", "d"]
    naive = first.replace(tzinfo=None)
    assert said((await window(quarter, **between(naive, last))).events) == ["b", "c"]


async def test_events_recorded_late_are_found_at_their_time(opened: OpenedEpisodic) -> None:
    hours = list(range(100))
    random.Random(3).shuffle(hours)
    for hour in hours:
        await opened.happened(str(hour), ago=hour * HOUR)

    assert said((await window(opened, limit=100)).events) == list(map(str, range(100)))


async def test_the_diagnostics_count_what_each_condition_left_out(quarter: OpenedEpisodic) -> None:
    found = (await window(quarter, limit=1)).diagnostics
    assert (found.total_scanned, found.filtered_by_context, found.filtered_by_window, found.returned) == (9, 4, 3, 1)
    filtered = (await window(quarter, where=EventSelection(scope=ADA, expression=BY_CONTENT))).diagnostics
    assert (filtered.filtered_by_context, filtered.filtered_by_window, filtered.returned) == (5, 3, 1)
    assert found.duration_s > 0
    assert found.mode is None


async def test_recent_events_are_not_limited_to_a_window(quarter: OpenedEpisodic) -> None:
    bobs = EventSelection(scope=BOB, min_importance=0.5)
    first = await quarter.store.recent(bobs, None, 3)
    rest = await quarter.store.recent(bobs, first.next_position, 3)

    assert said(first.events) == ["bob's a", "bob's b", "bob's c"]
    assert (said(rest.events), rest.next_position) == (["bob's d"], None)
    with pytest.raises(InvalidArgumentError, match="page_size"):
        await quarter.store.recent(bobs, None, 1_001)


async def test_an_invalid_query_is_refused_and_the_field_is_named(opened: OpenedEpisodic) -> None:
    with pytest.raises(InvalidArgumentError, match="limit: must be 1 to 1,000"):
        await window(opened, limit=1_001)


# Search by text


async def test_events_that_match_equally_well_come_newest_first_and_the_limit_is_applied_last(
    opened: OpenedEpisodic,
) -> None:
    for number in range(120):
        await opened.happened("the same words", ago=number * MINUTE)
    await opened.indexed()
    found = await window(opened, text="words", limit=70)

    assert [event.sequence for event in found.events] == list(range(120, 50, -1))
    assert found.diagnostics.returned == 70
    assert len(found.scores) == 70


async def test_a_long_page_of_matches_is_in_the_order_of_relevance(opened: OpenedEpisodic) -> None:
    for number in range(120):
        await opened.happened("words " + "other " * (number * 7 % 120), ago=number * MINUTE)
    await opened.indexed()
    found = await window(opened, text="words", limit=110)

    relevance = [score.relevance for score in found.scores]
    assert relevance == sorted(relevance, reverse=True)
    assert len({event.sequence for event in found.events}) == 110


async def test_a_text_query_has_the_diagnostics_of_its_window(quarter: OpenedEpisodic) -> None:
    await quarter.indexed()
    found = (await window(quarter, text="b")).diagnostics
    assert (found.total_scanned, found.filtered_by_context, found.filtered_by_window, found.returned) == (9, 4, 3, 1)
    where = EventSelection(scope=ADA, expression=BY_CONTENT)
    filtered = (await window(quarter, where=where, text="a")).diagnostics
    assert (filtered.filtered_by_context, filtered.filtered_by_window, filtered.returned) == (5, 3, 0)


async def test_a_page_of_large_events_ends_before_the_message_limit(opened: OpenedEpisodic) -> None:
    for number in range(6):
        await opened.happened(f"tomatoes {number} " + "x" * 900_000)

    await opened.indexed()
    page = await window(opened, text="tomatoes")
    assert (len(page.events), page.truncated) == (3, True)


def with_embeddings(opened: OpenedEpisodic) -> list[Vector | None]:
    """Makes the timeline compute an embedding of each event. Returns the query vectors that it receives."""
    asked: list[Vector | None] = []

    def search_text(_query: str, vector: Vector | None, among: Sequences, mode: SearchMode) -> TextScores:
        asked.append(vector)
        count = len(among)
        relevance = np.linspace(1.0, 0.5, count)
        return TextScores(among, relevance, relevance, np.zeros(count), mode, pending=2)

    opened.timeline.__dict__ |= {"has_embeddings": True, "search_text": search_text}
    return asked


@pytest.mark.parametrize("mode", [SearchMode.HYBRID, SearchMode.VECTOR])
async def test_a_text_is_embedded_if_events_have_embeddings(mode: SearchMode) -> None:
    async with open_event_store(embedder=HashingEmbedder(DIMENSION)) as opened:
        await opened.happened("a", "b")
        asked = with_embeddings(opened)
        found = await window(opened, text="anything", mode=mode)

        [vector] = asked
        assert vector is not None
        assert np.array_equal(vector, HashingEmbedder(DIMENSION).embed(["anything"])[0])
        words = None if mode is SearchMode.VECTOR else 0.0
        assert found.scores == (EventScore(1.0, 1.0, words), EventScore(0.5, 0.5, words))
        assert (found.diagnostics.mode, found.diagnostics.pending) == (mode, 2)


async def test_a_text_is_not_embedded_if_only_words_count() -> None:
    embedder = GatedEmbedder()
    async with open_event_store(embedder=embedder) as opened:
        await opened.happened("poison")
        await window(opened, text="poison", mode=SearchMode.HYBRID)
        with_embeddings(opened)
        await window(opened, text="poison", mode=SearchMode.KEYWORD)
        await window(opened, text="  ", mode=SearchMode.HYBRID)

        assert embedder.batches == []
        with pytest.raises(EmbeddingError):
            await window(opened, text="poison", mode=SearchMode.HYBRID)


async def test_events_pruned_during_a_search_make_room_for_the_next(opened: OpenedEpisodic) -> None:
    found = await opened.happened("a", "b", "c", scope=Scope("ada"))
    asked = with_embeddings(opened)
    searched = opened.timeline.__dict__["search_text"]

    def search_then_prune(*given: Any) -> TextScores:
        scores: TextScores = searched(*given)
        gone = [event for event in opened.timeline.get([found[0].event_id]) if event is not None]
        opened.timeline.prune(gone, PruneReason.REQUESTED).result()
        return scores

    opened.timeline.__dict__["search_text"] = search_then_prune
    page = await window(opened, text="anything", limit=2)

    assert said(page.events) == ["b", "c"]
    assert [score.relevance for score in page.scores] == [0.75, 0.5]
    assert len(asked) == 1
