"""What appending must do in every timeline: events, their feed, duplicates and requests."""

import json
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from mnemon_server.domain.changes import Change, ChangeType
from mnemon_server.domain.clock import to_microseconds
from mnemon_server.domain.collections import DOCUMENTS
from mnemon_server.domain.errors import EventExistsError, RequestIdReusedError, StorageFailedError
from mnemon_server.domain.events import (
    Event,
    EventPosition,
    EventReceipt,
)
from mnemon_server.domain.records import Scope
from mnemon_server.engines.promises.events import EventEngine, EventWrite
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.wire.events import decode

from tests.contract.timeline_suite import (
    ALL,
    SEGMENT_EVENTS_MAX,
    TimelineSuite,
    append,
    content_hash,
    get,
    happening,
    told,
    try_append,
)
from tests.contract.vault_suite import START, ManualClock, key, write


class TimelineWritesContract(TimelineSuite):
    """The promises of `Timeline.append`, as tests."""

    def test_an_event_comes_back_as_it_was_recorded(self, timeline: EventEngine) -> None:
        event = Event(
            "the id",
            "task",
            START - timedelta(microseconds=1),
            "Grüße 👋 東京",
            "a context",
            Scope("u", "h", "p", "a", "x"),
            0.1,
            "user",
            {"whole": 5, "number": 5.0, "yes": True, "list": ("b", "a"), "time": START, "text": "é\"'%"},
            START + timedelta(microseconds=1),
        )
        [receipt] = append(timeline, event)
        [stored] = get(timeline, "the id")
        assert receipt == EventReceipt("the id", 1, 1, START)
        assert stored[:3] == (EventPosition(to_microseconds(event.event_time), "the id"), 1, 1)
        assert decode(stored.body) == event
        assert {name: type(value) for name, value in decode(stored.body).metadata.items()} == {
            name: type(value) for name, value in event.metadata.items()
        }
        assert timeline.window(ALL, limit=1).events == (stored,)
        assert timeline.read([1]) == [stored]

    def test_sequences_are_dense_and_a_segment_is_named_by_its_first_event(self, timeline: EventEngine) -> None:
        receipts = [
            receipt
            for count in (1, 3, 7, 2, 11)
            for receipt in append(timeline, *(happening(f"{count}-{i}") for i in range(count)))
        ]
        assert [receipt.sequence for receipt in receipts] == list(range(1, 25))
        segments: dict[int, list[int]] = {}
        for receipt in receipts:
            segments.setdefault(receipt.segment_id, []).append(receipt.sequence)
        assert all(segment_id == sequences[0] for segment_id, sequences in segments.items())
        assert sorted(segments) == list(segments)
        assert len(segments) >= 5 and max(map(len, segments.values())) <= SEGMENT_EVENTS_MAX
        assert [(stored.sequence, stored.segment_id) for stored in timeline.read(range(1, 25))] == [
            (receipt.sequence, receipt.segment_id) for receipt in receipts
        ]

    def test_the_feed_says_when_an_event_was_first_recorded_elsewhere(self, vault: Vault) -> None:
        there = EventWrite(happening("there"), id_is_new=False, is_imported=True)
        vault.events.append([EventWrite(happening("here"), id_is_new=False), there]).result()
        plain, flagged = (json.loads(event.details) for event in told(vault))
        assert (plain.get("imported"), flagged["imported"]) == (None, True)
        assert flagged.keys() - {"imported"} == plain.keys()

    def test_the_feed_describes_each_event(self, vault: Vault, clock: ManualClock) -> None:
        scope = Scope("u", "h", "p", "a", "x")
        kind, content = 'an "odd"\n\\ type', "Grüße 👋"
        late = happening(
            "late\"'\u2028",
            START - timedelta(days=1, microseconds=1),
            event_type=kind,
            content=content,
            scope=scope,
            importance=0.1,
        )
        early = happening("early", START + timedelta(seconds=1), importance=0.0)
        clock.now = START + timedelta(microseconds=7)
        requests = [key("one"), None]
        receipts = try_append(vault.events, [late, early], requests)
        assert [receipt.commit_time for receipt in receipts if isinstance(receipt, EventReceipt)] == [clock.now] * 2
        first, second = told(vault)
        assert json.loads(first.details) == {
            "event_type": kind,
            "event_time": to_microseconds(late.event_time),
            "importance": 0.1,
            "segment_id": 1,
            "lag_us": 86_400_000_008,
            "segment_count": 1,
            "content_hash": content_hash(content),
        }
        saved = ChangeType.EPISODIC_SAVED
        assert first == Change(
            first.sequence, first.sequence, clock.now, saved, late.event_id, 1, scope, "one", (), first.details
        )
        assert second == Change(
            second.sequence, second.sequence, clock.now, saved, "early", 1, Scope("u"), "", (), second.details
        )
        details = json.loads(second.details)
        assert (details["lag_us"], details["importance"], type(details["importance"])) == (0, 0, float)

    def test_unknown_importance_is_null_in_the_feed_and_segments_are_counted(self, vault: Vault) -> None:
        for number in range(7):
            append(vault.events, happening(f"e{number}"))
        details = [json.loads(event.details) for event in told(vault, ChangeType.EPISODIC_SAVED)]
        assert [(one["importance"], one["segment_id"], one["segment_count"]) for one in details] == [
            *[(None, 1, 1)] * 5,
            *[(None, 6, 2)] * 2,
        ]

    def test_events_and_other_records_share_one_feed_in_the_order_of_commits(self, vault: Vault) -> None:
        append(vault.events, happening("first"))
        vault.collection(DOCUMENTS).put_document(write("second")).result()
        append(vault.events, happening("third"), happening("fourth"))
        found = told(vault)
        assert [event.record_id for event in found] == ["first", "second", "third", "fourth"]
        assert [event.sequence for event in found] == sorted({event.sequence for event in found})

    def test_a_listener_of_the_vault_hears_of_events_once_they_can_be_read(self, vault: Vault) -> None:
        heard: list[int] = []
        end = vault.subscribe(lambda: heard.append(vault.events.count(ALL)))
        append(vault.events, happening("a"), happening("b"))
        end()
        append(vault.events, happening("c"))
        assert 2 in heard and max(heard) == 2

    def test_appending_nothing_does_nothing(self, vault: Vault) -> None:
        assert append(vault.events) == []
        assert (told(vault), vault.events.status().active_segment_id) == ([], 0)

    def test_a_closed_vault_takes_no_event(self, tmp_path: Path, clock: ManualClock) -> None:
        vault = self.open(tmp_path / "closed", clock)
        vault.close()
        vault.events.close()
        with pytest.raises(StorageFailedError):
            append(vault.events, happening("late"))

    # Duplicates

    def test_an_event_with_a_stored_id_is_the_stored_event(self, vault: Vault) -> None:
        timeline = vault.events
        [first] = append(timeline, happening("a"))
        before = timeline.get(["a"])
        other = happening("a", START + timedelta(days=1), scope=Scope("u", "h", "p"), content="other")
        [again] = append(timeline, other)
        assert (again.event_id, again.sequence, again.segment_id) == ("a", first.sequence, first.segment_id)
        assert (again.duplicate, again.replayed) == (True, False)
        assert (timeline.get(["a"]), timeline.count(ALL), len(told(vault))) == (before, 1, 1)
        [following] = append(timeline, happening("b"))
        assert following.sequence == 2

    def test_an_event_with_the_id_of_another_users_event_is_refused(self, vault: Vault) -> None:
        timeline, theirs = vault.events, happening("a", user="other")
        refused, stored = try_append(timeline, [theirs, happening("b")], [key("one"), None])[0], timeline.get(["a"])
        assert isinstance(refused, EventReceipt)
        within, beside = try_append(timeline, [happening("a"), happening("c")], [key("two"), None])
        assert isinstance(within, EventExistsError) and isinstance(beside, EventReceipt)
        first, second = try_append(timeline, [happening("d"), happening("d", user="other")])
        assert isinstance(first, EventReceipt) and isinstance(second, EventExistsError)
        assert (timeline.get(["a"]), [event.record_id for event in told(vault)]) == (stored, ["a", "b", "c", "d"])
        # It may be asked for again, under an id that is free.
        [again] = try_append(timeline, [happening("e")], [key("two")])
        assert isinstance(again, EventReceipt) and not again.replayed

    def test_the_same_event_under_another_id_is_the_stored_event(self, vault: Vault) -> None:
        timeline = vault.events
        scope = Scope("u", "h", "p", "a", "x")
        append(timeline, happening("a", content="same", scope=scope, importance=0.5))
        others: dict[str, Any] = {"scope": Scope("u", "h", "p"), "importance": None, "context": "c", "source": "s"}
        [same] = append(timeline, happening("b", content="same", metadata={"n": 1}, **others))
        assert (same.event_id, same.sequence, same.duplicate) == ("a", 1, True)
        assert (timeline.get(["b"]), len(told(vault))) == ([None], 1)

    @pytest.mark.parametrize(
        "difference",
        [
            {"scope": Scope("v", persona="p")},
            {"scope": Scope("u", persona="q")},
            {"scope": Scope("u", "h", "p")},
            {"scope": Scope("up")},
            {"event_type": "task"},
            {"content": "same "},
            {"content": ""},
            {"at": START + timedelta(microseconds=1)},
        ],
        ids=str,
    )
    def test_an_event_that_differs_in_user_household_persona_type_time_or_content_is_new(
        self, timeline: EventEngine, difference: dict[str, Any]
    ) -> None:
        fields: dict[str, Any] = {"scope": Scope("u", persona="p"), "content": "same"}
        first, second = append(timeline, happening("a", **fields), happening("b", **(fields | difference)))
        assert (first.duplicate, second.duplicate, timeline.count(ALL)) == (False, False, 2)

    def test_duplicates_within_one_call_are_found_too(self, vault: Vault) -> None:
        receipts = append(
            vault.events,
            happening("a", content="one"),
            happening("a", content="two"),
            happening("b", content="one"),
            happening("c", content="two"),
        )
        assert [(one.event_id, one.sequence, one.duplicate) for one in receipts] == [
            ("a", 1, False),
            ("a", 1, True),
            ("a", 1, True),
            ("c", 2, False),
        ]
        assert [event.record_id for event in told(vault)] == ["a", "c"]

    def test_when_id_and_content_match_different_events_the_id_decides(self, timeline: EventEngine) -> None:
        append(timeline, happening("a", content="one"), happening("b", content="two"))
        [receipt] = append(timeline, happening("b", content="one"))
        assert (receipt.event_id, receipt.sequence, receipt.duplicate) == ("b", 2, True)
        stored, same = append(timeline, happening("c", content="three"), happening("c", content="one"))
        assert (stored.sequence, same.event_id, same.sequence, same.duplicate) == (3, "c", 3, True)

    def test_the_same_words_at_the_same_time_are_two_events_of_a_conversation(self, timeline: EventEngine) -> None:
        said = {"content": "yes", "conversation": "c"}
        receipts = append(timeline, happening("a", **said), happening("b", **said), happening("a", **said))
        assert [(one.event_id, one.duplicate) for one in receipts] == [("a", False), ("b", False), ("a", True)]
        [alone] = append(timeline, happening("c", content="yes"))
        assert not alone.duplicate

    def test_duplicates_of_old_events_are_found(self, timeline: EventEngine) -> None:
        events = [happening(f"e{i}", START + timedelta(seconds=i)) for i in range(40)]
        append(timeline, *events)
        again = append(timeline, *events)
        renamed = append(timeline, *(replace(event, event_id=f"other-{event.event_id}") for event in events))
        for receipts in (again, renamed):
            assert [(one.event_id, one.sequence, one.duplicate) for one in receipts] == [
                (f"e{i}", i + 1, True) for i in range(40)
            ]

    def test_an_event_recorded_by_many_callers_at_once_is_stored_once(self, vault: Vault) -> None:
        events = [happening(f"e{i}") for i in range(30)]

        def record(seed: int) -> list[EventReceipt]:
            order = random.Random(seed).sample(events, len(events))
            return [receipt for event in order for receipt in append(vault.events, event)]

        with ThreadPoolExecutor(8) as pool:
            receipts = [receipt for found in pool.map(record, range(8)) for receipt in found]
        assert len([one for one in receipts if not one.duplicate]) == 30
        assert len({(one.event_id, one.sequence) for one in receipts}) == 30
        assert [event.record_id for event in told(vault)] == [
            stored.position.event_id for stored in vault.events.read(range(1, 31))
        ]

    # Requests

    def test_a_repeated_request_gets_its_first_answer(self, vault: Vault, clock: ManualClock) -> None:
        timeline = vault.events
        [first] = append(timeline, happening("a"), request=key("r"))
        clock.now += timedelta(hours=1)
        [again] = append(timeline, happening("chosen anew", content="content of a"), request=key("r"))
        assert again == first._replace(replayed=True)
        assert (timeline.count(ALL), len(told(vault))) == (1, 1)

    def test_the_answer_that_an_event_was_known_is_stored_too(self, timeline: EventEngine) -> None:
        append(timeline, happening("a"))
        [known] = append(timeline, happening("a"), request=key("r"))
        [again] = append(timeline, happening("a"), request=key("r"))
        assert known.duplicate
        assert again == known._replace(replayed=True)

    def test_a_request_id_used_for_another_request_is_refused_and_its_neighbours_are_recorded(
        self, vault: Vault
    ) -> None:
        vault.collection(DOCUMENTS).put_document(write("d", request=key("of a document", b"put"))).result()
        append(vault.events, happening("a"), request=key("r"))
        results = try_append(
            vault.events,
            [happening("b"), happening("c"), happening("d"), happening("e"), happening("f")],
            [None, key("r", b"another"), key("new"), key("of a document"), key("new")],
        )
        assert [type(result) for result in results] == [
            EventReceipt,
            RequestIdReusedError,
            EventReceipt,
            RequestIdReusedError,
            EventReceipt,
        ]
        assert results[4] == results[2]._replace(replayed=True)  # type: ignore[union-attr]
        assert [stored.position.event_id for stored in vault.events.read(range(1, 9))] == ["a", "b", "d"]
        with pytest.raises(RequestIdReusedError):
            vault.collection(DOCUMENTS).put_document(write("e", request=key("new", b"put"))).result()

    def test_a_request_is_forgotten_after_a_day(self, timeline: EventEngine, clock: ManualClock) -> None:
        append(timeline, happening("a"), request=key("r"))
        clock.now += timedelta(hours=24, seconds=1)
        [known] = append(timeline, happening("a"), request=key("r"))
        [other] = append(timeline, happening("b"), request=key("another"))
        assert (known.duplicate, known.replayed, other.sequence) == (True, False, 2)
