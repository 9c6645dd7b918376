"""Bodies in memory: what is held is complete from a sequence on, or not offered at all."""

import random

from mnemon_server.engines.events.rows.recent import RecentBodies
from mnemon_server.engines.events.rows.tables import EventValues


def add(recent: RecentBodies, *events: tuple[int, int, bytes]) -> None:
    """Adds events: (sequence, segment, body)."""
    rows: list[EventValues] = [
        (sequence, segment_id, 0, 0, 0, "u", "", "", "", "", "task", None, body)
        for sequence, segment_id, body in events
    ]
    recent.add(rows, sum(len(body) for _, _, body in events))


def test_events_after_a_sequence_are_those_of_the_segment_in_order() -> None:
    recent = RecentBodies()
    recent.start(10)
    add(recent, (11, 11, b"a"), (12, 11, b"b"), (13, 13, b"c"))
    assert recent.after(11, 0) == [(11, b"a"), (12, b"b")]
    assert recent.after(11, 11) == [(12, b"b")]
    assert recent.after(13, 12) == [(13, b"c")]
    assert recent.after(13, 13) == []


def test_an_answer_that_would_have_a_gap_is_none() -> None:
    recent = RecentBodies(bytes_max=2_500)
    recent.start(4)
    first, second = [[(first + i, 1, b"x") for i in range(1_000)] for first in (5, 1_005)]
    add(recent, *first)
    assert recent.after(1, 3) is None
    assert [sequence for sequence, _ in recent.after(1, 4) or ()] == list(range(5, 1_005))
    add(recent, *second)
    assert len(recent.after(1, 4) or ()) == 2_000
    add(recent, (2_005, 1, bytes(600)))
    assert recent.after(1, 4) is None
    assert [sequence for sequence, _ in recent.after(1, 1_004) or ()] == list(range(1_005, 2_006))


def test_bodies_are_found_by_sequence_even_if_their_sequences_have_gaps() -> None:
    recent = RecentBodies()
    recent.start(4)
    add(recent, (5, 1, b"a"), (6, 1, b"b"), (9, 1, b"c"), (20, 1, b"d"))
    assert recent.get(range(4, 22)) == {5: b"a", 6: b"b", 9: b"c", 20: b"d"}


def test_after_a_removal_nothing_is_held() -> None:
    recent = RecentBodies()
    add(recent, (1, 1, b"a"), (2, 1, b"b"))
    recent.start(2)
    assert recent.get([1, 2]) == {}
    assert recent.after(1, 0) is None
    add(recent, (3, 1, b"c"))
    assert recent.after(1, 2) == [(3, b"c")]
    assert recent.after(1, 1) is None


def test_the_memory_is_limited_but_the_last_commit_is_held() -> None:
    draw = random.Random(7)
    recent = RecentBodies(bytes_max=100_000)
    last = 0
    for _ in range(60):
        events = [(last + i + 1, 1, bytes(draw.randrange(900))) for i in range(draw.randrange(1, 400))]
        add(recent, *events)
        last = events[-1][0]
        held = recent.get(range(1, last + 1))
        assert held.items() >= {(sequence, body) for sequence, _, body in events}
        assert sum(map(len, held.values())) <= max(100_000, 1_000 * 900)
