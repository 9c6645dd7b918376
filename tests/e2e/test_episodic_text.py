"""A text finds events by meaning and words, over a real channel against a real server."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mnemon.v1 import common_pb2
from mnemon.v1 import episodic_pb2 as pb

from tests.support.episodic_messages import contents, happened, record, timeline_status
from tests.support.server import eventually, whole_server
from tests.support.timeline_messages import events_of

NOW = datetime.now(UTC)
TEXTS = ("the blue door of the garden", "blue paint for the door", "a train to the sea")


async def fitting(episodic: Any, mode: common_pb2.SearchMode.ValueType) -> pb.QueryWindowResponse:
    """The events that match the first text."""
    return await episodic.QueryWindow(pb.QueryWindowRequest(query=TEXTS[0], mode=mode))


async def test_events_are_found_by_meaning_and_words_unless_they_have_no_embeddings(tmp_path: Path) -> None:
    for start in range(2):
        async with whole_server(tmp_path) as connection:
            episodic = connection.episodic
            if not start:
                await record(episodic, *(happened(text, NOW - timedelta(hours=i)) for i, text in enumerate(TEXTS)))

            async def is_indexed(episodic: Any = episodic) -> bool:
                return not (await timeline_status(episodic)).text_pending_count

            await eventually(is_indexed)
            answer = await fitting(episodic, common_pb2.SEARCH_MODE_VECTOR)
            assert answer.diagnostics.mode == common_pb2.SEARCH_MODE_VECTOR
            assert contents(events_of(answer))[:2] == list(TEXTS[:2])
            assert answer.results[0].score.vector == pytest.approx(1.0, abs=1e-3)
            for mode in (common_pb2.SEARCH_MODE_HYBRID, common_pb2.SEARCH_MODE_UNSPECIFIED):
                answer = await fitting(episodic, mode)
                assert answer.diagnostics.mode == common_pb2.SEARCH_MODE_HYBRID
                assert answer.results[0].score.relevance == pytest.approx(1.0, abs=1e-3)
            # A new event has its vector at once.
            [late] = await record(episodic, happened("a bicycle was stolen", NOW))
            asked = pb.QueryWindowRequest(query="was a bicycle stolen", limit=1)
            [match] = (await episodic.QueryWindow(asked)).results
            assert match.score.vector == pytest.approx(1.0, abs=1e-3)
            await episodic.PruneEvents(pb.PruneEventsRequest(event_ids=[late.event_id]))
    async with whole_server(tmp_path, timeline_embeddings=False) as connection:
        answer = await fitting(connection.episodic, common_pb2.SEARCH_MODE_HYBRID)
        assert answer.diagnostics.mode == common_pb2.SEARCH_MODE_KEYWORD
        assert not any(match.score.HasField("vector") for match in answer.results)
