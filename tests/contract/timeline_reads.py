"""What the reads of every timeline must do: windows, pages, expressions and summaries."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from mnemon_server.domain.clock import EPOCH, to_microseconds
from mnemon_server.domain.events import (
    FILTER_FIELDS,
    EventPosition,
    EventSelection,
    PruneReason,
    RangeSummary,
)
from mnemon_server.domain.filters import AllOf, AnyOf, Condition, Expression, NoneOf, Operator, matches
from mnemon_server.domain.records import Scope
from mnemon_server.engines.events.event_fields import field_reader
from mnemon_server.engines.promises.events import (
    SLICE_BYTES_MAX,
    EventEngine,
)
from mnemon_server.wire.events import decode

from tests.contract.timeline_suite import (
    ALL,
    SCOPE_NAMES,
    TimelineSuite,
    append,
    append_at,
    get,
    happening,
    pages,
    selection,
    window,
)
from tests.contract.vault_suite import START, ManualClock


class TimelineReadsContract(TimelineSuite):
    """The promises of a timeline's reads, as tests."""

    def test_events_come_newest_first_whenever_they_were_recorded(self, timeline: EventEngine) -> None:
        rng = random.Random(5)
        order = rng.sample(range(60), 60)
        for start in range(0, 60, 7):
            some = order[start : start + 7]
            append(timeline, *(happening(f"e{i}", START - timedelta(minutes=i)) for i in some))
        assert window(timeline) == [f"e{i}" for i in range(60)]
        assert window(timeline, limit=3) == ["e0", "e1", "e2"]

    def test_events_with_the_same_time_are_ordered_by_the_bytes_of_their_ids(self, timeline: EventEngine) -> None:
        ids = ["b", "\U0001f44b", "a", "\uffff", "é", "B", "aa", "a\x01", "10", "9"]
        append(timeline, *map(happening, ids))
        assert window(timeline) == sorted(ids, key=str.encode, reverse=True)
        assert [one.position.event_id for page in pages(timeline, ALL, 1) for one in page] == window(timeline)

    def test_times_before_1970_and_at_the_ends_of_the_calendar_are_in_order(self, timeline: EventEngine) -> None:
        times = [datetime.min, datetime(1600, 2, 29), datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime.max]
        aware = [*(time.replace(tzinfo=UTC) for time in times), EPOCH, EPOCH + timedelta(microseconds=1)]
        append_at(timeline, aware)
        found = [decode(stored.body).event_time for stored in timeline.window(ALL, limit=10).events]
        assert found == sorted(aware, reverse=True)
        before = EventSelection(end=EPOCH - timedelta(microseconds=1))
        assert window(timeline, before) == ["e2", "e1", "e0"]
        assert [day for day, _ in timeline.summarize(before).days] == [-719_162, -135_081, -1]
        # Their calendars end as that of UTC does.
        west, east = ZoneInfo("America/Los_Angeles"), ZoneInfo("Pacific/Auckland")
        assert timeline.summarize(ALL, west).days == ((-719_162, 1), (-135_082, 1), (-1, 3), (2_932_896, 1))
        assert timeline.summarize(ALL, east).days == ((-719_162, 1), (-135_081, 1), (0, 3), (2_932_896, 1))

    @pytest.mark.parametrize("name", SCOPE_NAMES)
    def test_only_events_in_the_scope_are_returned(self, timeline: EventEngine, name: str) -> None:
        for value in ("", "x", "X", "xy"):
            append(timeline, happening(f"-{value}", scope=Scope(**{"user": "u", name: value})))
        assert window(timeline, selection(**{name: "x"})) == ["-x"]
        assert window(timeline, selection(**{name: "none"})) == []
        assert timeline.count(selection(**{name: ""})) == 4

    def test_a_user_sees_no_event_of_any_number_of_other_users(self, timeline: EventEngine) -> None:
        append(timeline, *(happening(f"e{i}", user=f"u{i % 7}") for i in range(70)))
        for user in range(7):
            found = pages(timeline, selection(user=f"u{user}"), 3)
            assert {decode(one.body).scope.user for page in found for one in page} == {f"u{user}"}
            assert sum(map(len, found)) == 10

    def test_types_and_importance_filter_events(self, timeline: EventEngine) -> None:
        kinds = ["task", "reminder", "conversation"]
        for number in range(11):
            append(timeline, happening(f"e{number}", event_type=kinds[number % 3], importance=number / 10))
        append(timeline, happening("unknown", event_type="task"), happening("none", event_type="task", importance=0.0))
        assert timeline.count(EventSelection(event_types=frozenset({"task", "reminder"}))) == 10
        assert timeline.count(EventSelection(event_types=frozenset({"tas", "other"}))) == 0
        for number in range(11):
            assert timeline.count(EventSelection(min_importance=number / 10)) == 11 - number + (number == 0)
            assert timeline.count(EventSelection(min_importance=number / 10 + 0.001)) == 10 - number
        both = EventSelection(event_types=frozenset({"task"}), min_importance=0.5)
        assert set(window(timeline, both)) == {"e6", "e9"}

    def test_a_window_includes_both_ends(self, timeline: EventEngine) -> None:
        tick = timedelta(microseconds=1)
        append_at(timeline, [START + i * tick for i in range(5)])
        assert window(timeline, EventSelection(start=START + tick, end=START + 3 * tick)) == ["e3", "e2", "e1"]
        assert window(timeline, EventSelection(start=START + 3 * tick)) == ["e4", "e3"]
        assert window(timeline, EventSelection(end=START)) == ["e0"]
        assert window(timeline, EventSelection(start=START + tick, end=START)) == []

    def test_a_slice_counts_the_events_that_it_skipped(self, timeline: EventEngine) -> None:
        for number in range(12):
            at = START + timedelta(days=number)
            kind = "task" if number % 2 else "conversation"
            append(timeline, happening(f"e{number}", at, event_type=kind, metadata={"n": number}))
        append(timeline, happening("other", user="v"))
        odd = Condition("metadata.n", Operator.NIN, (5, 7))
        where = EventSelection(
            scope=Scope("u"),
            event_types=frozenset({"task"}),
            start=START + timedelta(days=2),
            end=START + timedelta(days=9),
            expression=odd,
        )
        found = timeline.window(where, limit=10)
        assert [one.position.event_id for one in found.events] == ["e9", "e3"]
        assert (found.total, found.in_context, found.in_window, found.rejected) == (13, 6, 4, 2)
        assert found.next_position is None
        first = timeline.window(where, limit=1)
        assert (first.total, first.in_context, first.in_window, first.rejected) == (13, 6, 4, 0)
        rest = timeline.window(where, after=first.next_position, limit=1)
        assert (rest.total, rest.in_context, rest.in_window) == (13, 6, 4)
        assert [one.position.event_id for one in rest.events] == ["e3"]
        assert timeline.count(where) == 2

    def test_the_last_page_says_that_it_is_the_last(self, timeline: EventEngine) -> None:
        append(timeline, *(happening(f"e{i}", user="uv"[i % 2]) for i in range(12)))
        for limit in (1, 2, 3, 4, 6, 7):
            found = pages(timeline, selection(user="u"), limit)
            assert [len(page) for page in found] == [limit] * (6 // limit) + [6 % limit] * (6 % limit > 0)
        assert timeline.window(selection(user="none"), limit=5).next_position is None
        last = timeline.window(ALL, limit=12).events[-1]
        assert timeline.window(ALL, after=last.position, limit=5).events == ()

    def test_a_page_may_begin_after_an_event_that_is_gone(self, timeline: EventEngine) -> None:
        append(timeline, *map(happening, "ace"))
        at = to_microseconds(START)
        for after, expected in [("f", "eca"), ("e", "ca"), ("d", "ca"), ("b", "a"), ("a", ""), ("", "")]:
            found = timeline.window(ALL, after=EventPosition(at, after), limit=9).events
            assert "".join(one.position.event_id for one in found) == expected

    def test_pages_neither_repeat_nor_skip_events_that_stay(self, timeline: EventEngine) -> None:
        rng = random.Random(9)
        number = iter(range(10_000))

        def add(count: int) -> None:
            times = (START + timedelta(seconds=rng.randrange(20)) for _ in range(count))
            append(timeline, *(happening(f"e{next(number)}", time) for time in times))

        add(80)
        there = {one.position for one in timeline.window(ALL, limit=1_000).events}
        seen: list[EventPosition] = []
        after: EventPosition | None = None
        while True:
            page = timeline.window(ALL, after=after, limit=rng.randrange(1, 7))
            seen += [one.position for one in page.events]
            if page.next_position is None:
                break
            after = page.next_position
            gone = rng.sample(timeline.window(ALL, limit=1_000).events, 2)
            timeline.prune(gone, PruneReason.REQUESTED).result()
            there -= {one.position for one in gone if one.position not in seen}
            add(3)
        assert seen == sorted(set(seen), reverse=True)
        assert there <= set(seen)

    def test_a_slice_ends_before_the_event_that_would_exceed_its_byte_limit(self, timeline: EventEngine) -> None:
        append(timeline, *(happening(f"e{i}", content=str(i) * (1 << 20)) for i in range(4)))
        found = pages(timeline, ALL, 1_000)
        # Each is slightly larger than a mebibyte.
        assert [[one.position.event_id for one in page] for page in found] == [["e3", "e2"], ["e1", "e0"]]
        assert sum(len(one.body) for one in found[0]) <= SLICE_BYTES_MAX
        assert [timeline.window(ALL, limit=limit).truncated for limit in (2, 4)] == [False, True]

    def test_large_events_of_one_time_come_in_their_order(self, timeline: EventEngine) -> None:
        append(timeline, *(happening(f"e{i}", content=str(i) * 700_000) for i in (2, 0, 3, 1)))
        found = [one.position.event_id for page in pages(timeline, ALL, 1_000) for one in page]
        assert found == ["e3", "e2", "e1", "e0"]

    def test_reading_ends_before_a_limit_would_be_exceeded(self, timeline: EventEngine) -> None:
        append(timeline, *(happening(f"e{i}", content=f"{i}" * 1_000) for i in range(4)))
        stored = [one for one in timeline.get([f"e{i}" for i in range(4)]) if one is not None]
        sequences, size = [one.sequence for one in stored], len(stored[0].body)
        read = [len(timeline.read(sequences, bytes_max=most)) for most in (1, 2 * size, 2 * size + 10, 9 * size)]
        assert read == [1, 2, 2, 4]

    def test_only_events_that_fit_are_returned(self, timeline: EventEngine) -> None:
        append(timeline, *(happening(f"e{i}", content=f"{i}" * 1_000) for i in range(3)))
        asked: set[str] = set()

        def fits(event_id: str, size: int) -> bool:
            asked.add(event_id)
            return event_id == "e1" and size > 1_000

        found = timeline.get(["e2", "none", "e1"], fits=fits)
        assert ([one and one.position.event_id for one in found], asked) == ([None, None, "e1"], {"e1", "e2"})

    def test_a_slice_ends_after_a_maximum_number_of_reads_for_its_expression(
        self, tmp_path: Path, clock: ManualClock
    ) -> None:
        vault = self.open(tmp_path / "few reads", clock, reads_max=10)
        timeline = vault.events
        append(timeline, *(happening(f"e{i:02}", metadata={"n": i}) for i in range(25)))
        where = EventSelection(expression=Condition("metadata.n", Operator.IN, (24, 12, 0)))
        first = timeline.window(where, limit=5)
        assert ([one.position.event_id for one in first.events], first.rejected) == (["e24"], 9)
        second = timeline.window(where, after=first.next_position, limit=5)
        third = timeline.window(where, after=second.next_position, limit=5)
        assert [one.position.event_id for one in (*second.events, *third.events)] == ["e12", "e00"]
        assert third.next_position is None
        assert len(timeline.window(ALL, limit=20).events) == 20
        vault.close()

    def test_expressions_mean_the_same_as_filters_for_every_field(self, timeline: EventEngine) -> None:
        events = [
            happening(
                f"e{i}",
                START + timedelta(hours=i),
                scope=Scope(f"u{i % 2}", "h" * (i % 2), "p" * (i % 3), "a" * (i % 4), "x" * (i % 5)),
                event_type=f"t{i % 3}",
                context="c" * (i % 3),
                importance=None if i % 4 == 0 else i / 20,
                source="s" * (i % 2),
                metadata={"n": i, "tags": ("a", "b")[: i % 3], "time": START} if i % 5 else {},
            )
            for i in range(20)
        ]
        append(timeline, *events)
        chosen = events[7]
        read = field_reader(chosen)
        conditions: list[Expression] = [Condition("metadata.tags", Operator.CONTAINS, ("b",))]
        for name in (*FILTER_FIELDS.types, "metadata.n", "metadata.time", "metadata.tags", "metadata.none"):
            conditions += [Condition(name, Operator.EXISTS, (True,)), Condition(name, Operator.EXISTS, (False,))]
            if (value := read(name)) is not None:
                conditions += [Condition(name, op, (value,)) for op in (Operator.EQ, Operator.NE)]
                if not isinstance(value, tuple):
                    conditions += [Condition(name, op, (value,)) for op in (Operator.GT, Operator.LTE)]
        pairs = zip(conditions, conditions[7:], strict=False)
        joined = [join for one, other in pairs for join in (AllOf((one, other)), AnyOf((one, NoneOf((other,)))))]
        for expression in [*conditions, *joined, AllOf(()), AnyOf(())]:
            wanted = [event.event_id for event in events if matches(expression, field_reader(event))]
            where = EventSelection(expression=expression)
            assert window(timeline, where) == wanted[::-1], expression
            assert timeline.count(where) == len(wanted) == timeline.summarize(where).event_count
            assert [one.position.event_id for one in timeline.read(timeline.sequences(where).tolist())] == wanted

    # By id, by sequence, by age

    def test_events_come_by_id_in_the_requested_order(self, timeline: EventEngine) -> None:
        append(timeline, *map(happening, "abc"))
        found = timeline.get(["c", "missing", "a", "c", "A"])
        assert [one and one.position.event_id for one in found] == ["c", None, "a", "c", None]
        assert timeline.get([]) == []

    def test_events_come_by_sequence_and_missing_ones_are_left_out(self, timeline: EventEngine) -> None:
        append(timeline, *(happening(f"e{i}") for i in range(12)))
        timeline.prune(get(timeline, "e3", "e4"), PruneReason.REQUESTED).result()
        found = timeline.read([12, 4, 1, 5, 99, 0, 7])
        assert [one.position.event_id for one in found] == ["e11", "e0", "e6"]

    def test_sequences_are_ascending_numbers_of_64_bits(self, timeline: EventEngine) -> None:
        append(timeline, *(happening(f"e{i}", START - timedelta(days=i), user="uv"[i % 2]) for i in range(12)))
        found = timeline.sequences(selection(user="v"))
        assert (found.dtype.name, found.tolist()) == ("int64", [2, 4, 6, 8, 10, 12])
        some = EventSelection(scope=Scope("v"), start=START - timedelta(days=5))
        assert timeline.sequences(some).tolist() == [2, 4, 6]
        assert timeline.sequences(selection(user="none")).shape == (0,)

    def test_events_before_a_time_expire_in_the_order_of_storing(self, timeline: EventEngine) -> None:
        append_at(timeline, [START - timedelta(days=i % 4, microseconds=i) for i in range(12)])
        before = START - timedelta(days=2, microseconds=6)
        found = timeline.expired(before, limit=3)
        assert (found.count, found.total) == (4, 12)
        assert [one.position.event_id for one in found.oldest] == ["e3", "e7", "e10"]
        everything = timeline.expired(START + timedelta(days=1), limit=100)
        assert [one.sequence for one in everything.oldest] == list(range(1, 13))
        nothing = timeline.expired(datetime.min.replace(tzinfo=UTC), limit=3)
        assert (nothing.count, nothing.total, nothing.oldest) == (0, 12, ())

    # Summaries

    def test_a_summary_counts_types_and_days_and_names_the_first_and_last_event(self, timeline: EventEngine) -> None:
        midnight = datetime(2026, 1, 2, tzinfo=UTC)
        tick = timedelta(microseconds=1)
        times = [midnight - tick, midnight, midnight + timedelta(days=1) - tick, midnight + timedelta(days=1)]
        kinds = ["b", "c", "a", "b"]
        append(timeline, *(happening(f"{i}", time, event_type=kinds[i]) for i, time in enumerate(times)))
        append(timeline, happening("elsewhere", midnight, user="v"))
        day = (midnight - EPOCH).days
        assert timeline.summarize(selection(user="u")) == RangeSummary(
            4, times[0], times[3], (("b", 2), ("a", 1), ("c", 1)), ((day - 1, 1), (day, 2), (day + 1, 1))
        )
        inside = EventSelection(scope=Scope("u"), start=midnight, end=midnight + timedelta(days=1) - tick)
        assert timeline.summarize(inside) == RangeSummary(2, times[1], times[2], (("a", 1), ("c", 1)), ((day, 2),))
        chosen = EventSelection(expression=Condition("event_type", Operator.EQ, ("b",)))
        assert timeline.summarize(chosen).types == (("b", 2),)

    def test_the_day_before_1970_is_day_minus_one(self, timeline: EventEngine) -> None:
        tick = timedelta(microseconds=1)
        append_at(timeline, [EPOCH - tick, EPOCH, EPOCH - timedelta(days=1), EPOCH - timedelta(days=1) - tick])
        assert timeline.summarize(ALL).days == ((-2, 1), (-1, 2), (0, 1))

    @pytest.mark.parametrize(
        ("zone", "bounds"),
        [
            # The clocks skip an hour, and repeat one; one that begins before midnight; a day that the islands skipped.
            ("Europe/Berlin", ["2027-03-27T23:00Z", "2027-03-28T22:00Z", "2027-03-29T22:00Z"]),
            ("Europe/Berlin", ["2027-10-30T22:00Z", "2027-10-31T23:00Z", "2027-11-01T23:00Z"]),
            ("America/Havana", ["2027-11-06T04:00Z", "2027-11-07T04:00Z", "2027-11-08T05:00Z"]),
            ("Pacific/Apia", ["2011-12-29T10:00Z", "2011-12-30T10:00Z", "2011-12-31T10:00Z"]),
            ("Pacific/Kiritimati", ["2026-12-31T10:00Z", "2027-01-01T10:00Z"]),
            ("Pacific/Niue", ["2026-12-31T11:00Z", "2027-01-01T11:00Z"]),
            ("Asia/Kathmandu", ["2026-12-31T18:15Z", "2027-01-01T18:15Z"]),
            # Local mean time.
            ("Europe/Berlin", ["1890-12-31T23:06:32Z", "1891-01-01T23:06:32Z"]),
        ],
    )
    def test_days_begin_at_the_midnights_of_the_zone(self, timeline: EventEngine, zone: str, bounds: list[str]) -> None:
        begins, tick = [datetime.fromisoformat(bound) for bound in bounds], timedelta(microseconds=1)
        append_at(timeline, [time for begin in begins for time in (begin - tick, begin)])
        counts = [count for _, count in timeline.summarize(ALL, ZoneInfo(zone)).days]
        assert counts == [1, *[2] * (len(begins) - 1), 1]
        chosen = EventSelection(expression=Condition("content", Operator.EXISTS, (True,)))
        assert timeline.summarize(chosen, ZoneInfo(zone)) == timeline.summarize(ALL, ZoneInfo(zone))

    def test_a_summary_without_events_is_empty(self, timeline: EventEngine) -> None:
        assert timeline.summarize(ALL) == RangeSummary(0, None, None)
        append(timeline, happening("a"))
        assert timeline.summarize(selection(user="none")) == RangeSummary(0, None, None)
