"""What pruning must do in every timeline: pruned events are in no answer, and the feed names them."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from mnemon_server.domain.changes import Change, ChangeType
from mnemon_server.domain.collections import DOCUMENTS
from mnemon_server.domain.errors import InvalidOperationError, RequestIdReusedError, StorageFailedError
from mnemon_server.domain.events import EventSelection, PruneReason, StoredEvent
from mnemon_server.domain.records import Scope, SearchMode
from mnemon_server.engines.events.settings import EventEngineSettings
from mnemon_server.engines.promises.events import EventEngine
from mnemon_server.engines.promises.vault import Vault

from tests.contract.timeline_suite import (
    ALL,
    TimelineSuite,
    append,
    append_at,
    content_hash,
    get,
    happening,
    selection,
    told,
    window,
)
from tests.contract.vault_suite import START, ManualClock, key, write
from tests.support.server import wait_until

PRUNED = ChangeType.EPISODIC_PRUNED


def prune(timeline: EventEngine, *event_ids: str, **terms: Any) -> int:
    """Prunes events, all of which are stored."""
    return timeline.prune(get(timeline, *event_ids), PruneReason.REQUESTED, **terms).result()


def named(event: Change) -> list[list[str]]:
    """The ids and hashes that an event of the feed names."""
    events: list[list[str]] = json.loads(event.details)["events"]
    return events


class TimelinePruningContract(TimelineSuite):
    """The promises of `Timeline.prune`, as tests."""

    def test_a_pruned_event_is_in_no_answer(self, timeline: EventEngine) -> None:
        append_at(timeline, [START - timedelta(days=i) for i in range(12)])
        assert prune(timeline, "e0", "e6", "e11") == 3
        left = ["e1", "e2", "e3", "e4", "e5", "e7", "e8", "e9", "e10"]
        assert window(timeline) == left
        assert timeline.window(ALL, limit=1).total == timeline.count(ALL) == len(left)
        assert timeline.get(["e0", "e6", "e11"]) == [None] * 3
        assert timeline.read([1, 7, 12]) == []
        assert timeline.sequences(ALL).tolist() == [2, 3, 4, 5, 6, 8, 9, 10, 11]
        summary = timeline.summarize(ALL)
        assert (summary.event_count, len(summary.days)) == (9, 9)
        assert (summary.earliest, summary.latest) == (START - timedelta(days=10), START - timedelta(days=1))
        expired = timeline.expired(START + timedelta(days=1), limit=20)
        assert (expired.count, expired.total, len(expired.oldest)) == (9, 9, 9)
        assert timeline.window(selection(user="none"), limit=1).total == 9

    def test_no_text_finds_a_pruned_event(self, timeline: EventEngine) -> None:
        append(timeline, *(happening(f"e{i}", content=f"zebra number {i}") for i in range(3)))
        everything = timeline.sequences(ALL)

        def search() -> Any:
            return timeline.search_text("zebra", None, everything, SearchMode.KEYWORD)

        wait_until(lambda: search().pending == 0)
        prune(timeline, "e1")
        wait_until(lambda: search().pending == 0)
        assert search().sequences.tolist() == [1, 3]

    def test_the_feed_names_pruned_events_by_segment_and_scope(self, vault: Vault, clock: ManualClock) -> None:
        timeline = vault.events
        scopes = [Scope("u", persona="p"), Scope("u", persona="q")]
        append(timeline, *(happening(f"e{i}", scope=scopes[i % 2], content=f"Grüße {i}") for i in range(8)))
        head = vault.changes.state().head
        clock.now += timedelta(hours=1)
        stored = get(timeline, "e7", "e0", "e6", "e1", "e2")
        assert timeline.prune(stored, PruneReason.RETENTION).result() == 5
        found = told(vault, after=head)
        assert {event.type for event in found} == {PRUNED}
        assert {event.time for event in found} == {clock.now}
        assert {event.commit for event in found} == {found[0].sequence}
        details = {(event.record_id, event.scope): json.loads(event.details) for event in found}
        expected = {("1", scopes[0]): [0, 2], ("1", scopes[1]): [1], ("6", scopes[0]): [6], ("6", scopes[1]): [7]}
        assert len(found) == len(expected)
        for (segment, scope), numbers in expected.items():
            one = details[segment, scope]
            assert one.keys() == {"segment_id", "reason", "events"}
            assert (one["segment_id"], one["reason"]) == (int(segment), "retention")
            assert sorted(one["events"]) == [[f"e{i}", content_hash(f"Grüße {i}")] for i in numbers]

    def test_an_event_of_the_feed_names_at_most_256(self, tmp_path: Path, clock: ManualClock) -> None:
        vault = self.open(tmp_path / "large", clock, settings=EventEngineSettings(segment_events_max=1_000))
        append(vault.events, *(happening(f"e{i}", content="same" * (i == 0) or f"{i}") for i in range(600)))
        stored = vault.events.window(ALL, limit=1_000).events
        assert vault.events.prune(stored, PruneReason.REQUESTED).result() == 600
        found = told(vault, PRUNED)
        assert [len(named(event)) for event in found] == [256, 256, 88]
        assert {event_id for event in found for event_id, _ in named(event)} == {f"e{i}" for i in range(600)}
        assert {json.loads(event.details)["reason"] for event in found} == {"requested"}
        assert vault.events.count(ALL) == 0
        vault.close()

    def test_unknown_ids_are_skipped(self, vault: Vault) -> None:
        timeline = vault.events
        append(timeline, *map(happening, "abc"))
        first, second = get(timeline, "a", "b")
        assert timeline.prune([], PruneReason.REQUESTED).result() == 0
        assert timeline.prune([first, first], PruneReason.REQUESTED).result() == 1
        assert timeline.prune([first, second], PruneReason.REQUESTED).result() == 1
        assert timeline.prune([first, second], PruneReason.REQUESTED).result() == 0
        assert [[event_id for event_id, _ in named(event)] for event in told(vault, PRUNED)] == [["a"], ["b"]]
        assert window(timeline) == ["c"]

    def test_reading_expired_events_removes_nothing(self, vault: Vault) -> None:
        append_at(vault.events, [START - timedelta(days=i) for i in range(6)])
        head = vault.changes.state().head
        old = vault.events.expired(START - timedelta(days=2), limit=2)
        assert (old.count, [one.sequence for one in old.oldest]) == (3, [4, 5])
        assert (vault.events.count(ALL), vault.changes.state().head) == (6, head)

    def test_a_pruned_event_can_be_recorded_again(self, vault: Vault) -> None:
        timeline = vault.events
        append(timeline, happening("a", content="one"), happening("b", content="two"))
        former = get(timeline, "a", "b")
        assert prune(timeline, "a", "b") == 2
        receipts = append(timeline, happening("a", content="other"), happening("c", content="two"))
        assert [(one.event_id, one.sequence, one.duplicate) for one in receipts] == [("a", 3, False), ("c", 4, False)]
        assert timeline.prune(former, PruneReason.REQUESTED).result() == 0
        assert set(window(timeline)) == {"a", "c"}
        assert [event.record_id for event in told(vault, ChangeType.EPISODIC_SAVED)] == ["a", "b", "a", "c"]

    def test_sequences_are_not_reused_when_all_events_are_gone(self, timeline: EventEngine) -> None:
        append(timeline, *(happening(f"e{i}") for i in range(7)))
        stored: list[StoredEvent] = list(timeline.window(ALL, limit=10).events)
        assert timeline.prune(stored, PruneReason.RETENTION).result() == 7
        assert (timeline.count(ALL), timeline.window(ALL, limit=5).total) == (0, 0)
        assert timeline.summarize(ALL).event_count == timeline.status().event_count == 0
        [receipt] = append(timeline, happening("e0"))
        assert (receipt.sequence, receipt.duplicate) == (8, False)
        [stored_again] = get(timeline, "e0")
        assert (stored_again.sequence, stored_again.segment_id) == (receipt.sequence, receipt.segment_id)

    def test_a_repeated_recording_gets_its_answer_though_its_event_was_pruned(self, timeline: EventEngine) -> None:
        [first] = append(timeline, happening("a"), request=key("r"))
        prune(timeline, "a")
        assert append(timeline, happening("a"), request=key("r")) == [first._replace(replayed=True)]
        assert timeline.count(ALL) == 0

    # Requests

    def test_the_answer_to_a_pruning_is_stored(self, vault: Vault, clock: ManualClock) -> None:
        timeline = vault.events
        append(timeline, *map(happening, "abc"))
        assert timeline.kept_answer(key("r")) is None
        assert prune(timeline, "a", answer=lambda: '{"count": 1}', request=key("r")) == 1
        assert timeline.kept_answer(key("r")) == '{"count": 1}'
        assert [event.request_id for event in told(vault, PRUNED)] == ["r"]
        assert prune(timeline, "b", answer=lambda: "another", request=key("r")) == 0
        assert (timeline.kept_answer(key("r")), timeline.count(ALL)) == ('{"count": 1}', 2)
        clock.now += timedelta(hours=24, seconds=1)
        assert timeline.kept_answer(key("r")) is None
        assert prune(timeline, "b", answer=lambda: "another", request=key("r")) == 1

    def test_a_pruning_that_finds_nothing_has_a_stored_answer_too(self, vault: Vault) -> None:
        done = vault.events.prune([], PruneReason.REQUESTED, answer=lambda: "nothing", request=key("r")).result()
        assert (done, vault.events.kept_answer(key("r")), told(vault)) == (0, "nothing", [])

    def test_a_request_id_used_for_another_request_prunes_nothing(self, vault: Vault) -> None:
        timeline = vault.events
        append(timeline, happening("a"), request=key("appended"))
        vault.collection(DOCUMENTS).put_document(write("d", request=key("put"))).result()
        prune(timeline, "a", answer=lambda: "kept", request=key("pruned"))
        append(timeline, happening("b"))
        for request_id in ("appended", "put", "pruned"):
            other = key(request_id, b"another digest")
            with pytest.raises(RequestIdReusedError):
                timeline.kept_answer(other)
            with pytest.raises(RequestIdReusedError):
                prune(timeline, "b", answer=lambda: "no", request=other)
        with pytest.raises(RequestIdReusedError):
            vault.collection(DOCUMENTS).put_document(write("e", request=key("pruned", b"put"))).result()
        assert window(timeline) == ["b"]

    def test_a_pruning_whose_answer_fails_removes_nothing(self, vault: Vault) -> None:
        append(vault.events, *(happening(f"e{i}") for i in range(7)))
        before = vault.events.window(ALL, limit=10)

        def fail() -> str:
            raise InvalidOperationError("no")

        with pytest.raises(InvalidOperationError):
            prune(vault.events, "e0", "e6", answer=fail, request=key("r"))
        assert vault.events.window(ALL, limit=10) == before
        assert vault.events.kept_answer(key("r")) is None
        assert told(vault, PRUNED) == []
        assert append(vault.events, happening("e0"))[0].duplicate

    def test_a_closed_vault_prunes_nothing(self, tmp_path: Path, clock: ManualClock) -> None:
        vault = self.open(tmp_path / "closed", clock)
        append(vault.events, happening("a"))
        stored = get(vault.events, "a")
        vault.close()
        with pytest.raises(StorageFailedError):
            vault.events.prune(stored, PruneReason.REQUESTED).result()

    @pytest.mark.parametrize("reason", PruneReason)
    def test_only_matching_events_are_pruned_and_their_neighbours_stay(
        self, timeline: EventEngine, reason: PruneReason
    ) -> None:
        append(timeline, *(happening(f"e{i}", user="uv"[i % 2], importance=i / 20) for i in range(20)))
        where = EventSelection(scope=Scope("v"), min_importance=0.5)
        stored = timeline.window(where, limit=100).events
        assert timeline.prune(stored, reason).result() == 5
        assert timeline.count(where) == 0
        assert {one.sequence for one in timeline.window(ALL, limit=100).events} == {
            i + 1 for i in range(20) if i % 2 == 0 or i < 10
        }
