"""The contract of every event engine: the suite for `engines/promises/events.py`. Subclass it and open a vault."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from mnemon_server.domain.collections import DOCUMENTS
from mnemon_server.domain.events import PruneReason
from mnemon_server.engines.promises.events import EventEngine

from tests.contract.timeline_machine import run_machine
from tests.contract.timeline_pruning import TimelinePruningContract
from tests.contract.timeline_reads import TimelineReadsContract
from tests.contract.timeline_state import TimelineStateContract, TimelineTextContract
from tests.contract.timeline_suite import ALL, SEGMENT_EVENTS_MAX, append, append_at, get, happening, told
from tests.contract.timeline_writes import TimelineWritesContract
from tests.contract.vault_suite import START, ManualClock, key, write
from tests.support.server import wait_until


class TimelineContract(
    TimelineWritesContract, TimelineReadsContract, TimelinePruningContract, TimelineTextContract, TimelineStateContract
):
    """Every promise of `engines/promises/events.py: Timeline`, as a test."""

    machine_examples = 40
    durable = False

    def test_random_programs_agree_with_a_plain_list(self) -> None:
        run_machine(self.open_vault, durable=self.durable, examples=self.machine_examples)


class DurableTimelineContract(TimelineContract):
    """Adds the promises of a timeline on disk."""

    machine_examples = 8
    durable = True

    def test_recorded_events_are_there_and_pruned_ones_gone_after_reopening(
        self, tmp_path: Path, clock: ManualClock
    ) -> None:
        folder = tmp_path / "kept"
        vault = self.open(folder, clock)
        for number in range(23):
            at = START - timedelta(hours=7 * number % 40)
            append(vault.events, happening(f"e{number}", at, user="uv"[number % 2], importance=number / 23))
        [receipt] = append(vault.events, happening("e23"), request=key("r"))
        vault.events.prune(get(vault.events, "e0", "e7", "e8"), PruneReason.REQUESTED).result()
        before, feed = seen(vault.events), told(vault)
        vault.close()

        vault = self.open(folder, clock)
        assert (seen(vault.events), told(vault)) == (before, feed)
        assert append(vault.events, happening("e23"), request=key("r")) == [receipt._replace(replayed=True)]
        known = append(vault.events, happening("e5", user="v"), happening("other", content="content of e23"))
        assert [(one.event_id, one.sequence, one.duplicate) for one in known] == [("e5", 6, True), ("e23", 24, True)]
        [following, anew] = append(vault.events, happening("e24"), happening("e7"))
        assert (following.sequence, anew.sequence, anew.duplicate) == (25, 26, False)
        vault.close()

    def test_sealed_segments_answer_like_their_rows_before(self, tmp_path: Path, clock: ManualClock) -> None:
        vault = self.open(tmp_path / "kept", clock)
        append_at(vault.events, [START - timedelta(hours=5 * number % 17) for number in range(33)])
        vault.events.prune(get(vault.events, "e2", "e31"), PruneReason.REQUESTED).result()
        before = seen(vault.events)
        wait_until(lambda: vault.events.status().unsealed_count <= SEGMENT_EVENTS_MAX)
        assert seen(vault.events) == before
        vault.close()
        vault = self.open(tmp_path / "kept", clock)
        assert seen(vault.events) == before
        assert all(one.duplicate for one in append(vault.events, *(happening(f"e{i}") for i in range(3, 31))))
        vault.close()

    def test_sequences_are_not_reused_after_reopening(self, tmp_path: Path, clock: ManualClock) -> None:
        vault = self.open(tmp_path / "kept", clock)
        append_at(vault.events, [START] * 12)
        vault.events.prune(vault.events.window(ALL, limit=20).events, PruneReason.RETENTION).result()
        vault.collection(DOCUMENTS).put_document(write("d")).result()
        vault.close()
        vault = self.open(tmp_path / "kept", clock)
        assert seen(vault.events)[0] == []
        [receipt] = append(vault.events, happening("e3"))
        assert (receipt.sequence, receipt.duplicate) == (13, False)
        vault.close()


def seen(timeline: EventEngine) -> Any:
    """What a reader sees, except for the names of segments."""
    found = timeline.window(ALL, limit=1_000)
    by_id = timeline.get([f"e{number}" for number in range(40)])
    return (
        [(one.position, one.sequence, one.body) for one in found.events],
        (found.total, found.in_context, found.in_window, found.next_position),
        [one and one.sequence for one in by_id],
        timeline.sequences(ALL).tolist(),
        timeline.summarize(ALL),
    )
