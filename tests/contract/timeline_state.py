"""What every timeline must find by text, and what it must report about itself."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from mnemon_server.domain.events import (
    CompactionProgress,
    EventsState,
    PruneReason,
)
from mnemon_server.domain.records import SearchMode
from mnemon_server.engines.promises.events import (
    EventEngine,
    TextScores,
)

from tests.contract.timeline_suite import (
    ALL,
    TimelineSuite,
    append,
    append_at,
    get,
    happening,
)
from tests.contract.vault_suite import START
from tests.support.server import wait_until


class TimelineTextContract(TimelineSuite):
    """The promises of `Timeline.search_text`, as tests."""

    def test_a_text_finds_events_by_their_words(self, timeline: EventEngine) -> None:
        contents = ["The cats were sleeping.", "a dog", "CAT and dog and cat", "nothing of it", "Ein Café", ""]
        append(timeline, *(happening(f"e{i}", content=content) for i, content in enumerate(contents)))
        found = self.search(timeline, "cat")
        assert found.sequences.tolist() == [1, 3]
        assert found.relevance[1] > found.relevance[0] > 0
        assert found.relevance.max() <= 1
        assert found.keyword.tolist() == found.relevance.tolist()
        assert np.isnan(found.similarity).all()
        assert (found.mode, found.sequences.dtype.name) == (SearchMode.KEYWORD, "int64")
        assert len(found.similarity) == len(found.keyword) == len(found.relevance) == 2
        assert self.search(timeline, "cafe").sequences.tolist() == [5]
        assert self.search(timeline, "sleep dogs").sequences.tolist() == [1, 2, 3]

    def test_a_text_is_searched_only_among_the_requested_events(self, timeline: EventEngine) -> None:
        append(timeline, *(happening(f"e{i}", content=f"the zebra number {i}") for i in range(12)))
        timeline.prune(get(timeline, "e4"), PruneReason.REQUESTED).result()
        assert self.search(timeline, "zebra", [2, 5, 9, 99]).sequences.tolist() == [2, 9]
        assert self.search(timeline, "zebra", []).sequences.tolist() == []

    def test_a_search_among_no_events_is_no_damage(
        self, timeline: EventEngine, caplog: pytest.LogCaptureFixture
    ) -> None:
        append(timeline, happening("e1", content="the zebra"))
        assert self.search(timeline, "zebra", []).pending == 0
        assert self.search(timeline, "zebra").sequences.tolist() == [1]
        assert [record.message for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []

    def test_neighbouring_words_count_only_within_the_searched_events(self, timeline: EventEngine) -> None:
        contents = [f"weather report {i}" for i in range(50)]
        contents[20:26] = [f"zebra riding {i}" for i in range(20, 26)]
        contents[26], contents[40] = "a lesson today", "a lesson tomorrow"
        append(timeline, *(happening(f"e{i}", content=content) for i, content in enumerate(contents)))
        found = self.search(timeline, "zebra lesson")
        relevance = dict(zip(found.sequences.tolist(), found.relevance.tolist(), strict=True))
        assert relevance[27] > 1.2 * relevance[41]
        alone = self.search(timeline, "zebra lesson", [27, 41]).relevance
        assert alone[0] == pytest.approx(alone[1])

    @pytest.mark.parametrize("query", ["", "  \n", "unicorn", '" OR 1=1 --', "* NEAR(", "'", "\U0001f44b"])
    def test_any_text_is_a_valid_query_and_events_sharing_no_word_are_left_out(
        self, timeline: EventEngine, query: str
    ) -> None:
        append(timeline, happening("a", content="the zebra"), happening("b", content="lion and zebra"))
        assert self.search(timeline, query).sequences.tolist() == []

    def search(self, timeline: EventEngine, query: str, among: Sequence[int] | None = None) -> TextScores:
        """Searches once all events can be found."""
        everything = timeline.sequences(ALL)
        wait_until(lambda: timeline.search_text("zebra", None, everything, SearchMode.KEYWORD).pending == 0)
        asked = everything if among is None else np.array(among, np.int64)
        found = timeline.search_text(query, None, asked, SearchMode.HYBRID)
        assert found.pending == 0
        return found


class TimelineStateContract(TimelineSuite):
    """The promises about the status of a timeline, as tests."""

    def test_a_new_timeline_is_warm_and_empty(self, timeline: EventEngine) -> None:
        status = timeline.status()
        assert timeline.is_warm
        assert (status.state, status.message, timeline.failure()) == (EventsState.READY, "", None)
        assert (status.event_count, status.segment_count, status.active_segment_id) == (0, 0, 0)
        assert (status.earliest, status.latest, status.lost, status.unsealed_count) == (None, None, (), 0)
        assert timeline.window(ALL, limit=5).total == 0
        assert timeline.expired(START, limit=5).count == 0

    def test_the_status_counts_stored_events(self, timeline: EventEngine) -> None:
        append_at(timeline, [START - timedelta(days=i) for i in range(12)])
        timeline.prune(get(timeline, "e0", "e11"), PruneReason.REQUESTED).result()
        status = timeline.status()
        assert (status.event_count, status.segment_count, status.active_segment_id) == (10, 3, 11)
        assert (status.earliest, status.latest) == (START - timedelta(days=10), START - timedelta(days=1))
        wait_until(lambda: timeline.status().segment_bytes >= sum(len(one.body) for one in timeline.read(range(2, 11))))

    def test_an_empty_segment_counts_until_it_is_deleted(self, timeline: EventEngine) -> None:
        append_at(timeline, [START] * 12)
        timeline.prune(get(timeline, *(f"e{i}" for i in range(5))), PruneReason.RETENTION).result()
        wait_until(lambda: timeline.status().segment_count == 2)
        timeline.prune(get(timeline, *(f"e{i}" for i in range(5, 12))), PruneReason.RETENTION).result()
        wait_until(lambda: timeline.status().segment_count <= 1)
        wait_until(lambda: timeline.status().removal_pending_count == 0)

    @pytest.mark.parametrize("tidy", ["compact", "scrub"])
    def test_maintenance_changes_no_answer(self, timeline: EventEngine, tidy: str) -> None:
        append_at(timeline, [START - timedelta(hours=i) for i in range(23)])
        timeline.prune(get(timeline, "e3", "e4", "e20"), PruneReason.REQUESTED).result()
        before = self.answers(timeline)
        reports: list[CompactionProgress] = []
        if tidy == "compact":
            last = timeline.compact(reports.append)
            assert last == reports[-1]
            assert [report.done for report in reports] == [False] * (len(reports) - 1) + [True]
            assert last.processed_bytes == last.total_bytes
            assert last.segment_count == timeline.status().segment_count
        else:
            timeline.scrub()
        assert self.answers(timeline) == before
        [receipt] = append(timeline, happening("next"))
        assert receipt.sequence == 24
        [known] = append(timeline, happening("e5", content="another"))
        assert (known.sequence, known.duplicate) == (6, True)

    def answers(self, timeline: EventEngine) -> Any:
        """What readers see, except for the names of segments."""
        found = [(one.position, one.sequence, one.body) for one in timeline.window(ALL, limit=1_000).events]
        return found, timeline.summarize(ALL), [one is None for one in timeline.get(["e3", "e5"])]
