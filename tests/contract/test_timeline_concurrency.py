"""The maintenance of a timeline finishes what it was asked for, even while events are being recorded."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from mnemon_server.domain.events import CompactionProgress
from mnemon_server.engines.events.index.event_rows import event_row
from mnemon_server.engines.events.upkeep.manifest import Change, SegmentRow, SegmentState
from mnemon_server.wire.events import encode

from tests.contract.timeline_suite import happening
from tests.support.faulty_files import FaultyFiles
from tests.support.timeline_trial import SETTINGS, START, MemoryManifest, Trial, TrialClocks, open_maintenance

RECORDERS = 4
COMPACTIONS = 500
DEADLINE_S = 120.0


class SharedManifest(MemoryManifest):
    """A manifest shared by threads. A commit waits for its lock, as it waits for the writer thread."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.RLock()
        self.rolled, self.recorded = threading.Semaphore(0), threading.Semaphore(0)
        """Once the open segment was ended, whichever recorder comes first begins the next one before anything else."""

    def segments(self) -> list[SegmentRow]:
        with self.lock:
            return super().segments()

    def bodies(self, segment_id: int, after: int) -> list[tuple[int, bytes]]:
        with self.lock:
            return super().bodies(segment_id, after)

    def roll(self, segment_id: int) -> None:
        with self.lock:
            is_open = self.list[segment_id].state is SegmentState.OPEN
            super().roll(segment_id)
        if is_open:
            self.rolled.release()
            self.recorded.acquire(timeout=DEADLINE_S)

    def delete_sealed_rows(self) -> bool:
        with self.lock:
            while super().delete_sealed_rows():
                pass
        return False

    def commit(self, change: Change) -> None:
        with self.lock:
            super().commit(change)


def test_a_compaction_does_not_wait_for_what_is_recorded_after_it_began() -> None:
    trial = Trial.begin(settings=replace(SETTINGS, segment_events_max=100))
    trial.append(3)
    roll = trial.manifest.roll

    def roll_and_record(segment_id: int) -> None:
        roll(segment_id)
        trial.append(1)

    trial.manifest.roll = roll_and_record  # type: ignore[method-assign]
    done = trial.compact()
    assert done.done
    trial.manifest.roll = roll  # type: ignore[method-assign]
    trial.run()
    trial.check()
    assert len(trial.expected) > 3


def test_a_segment_that_ended_before_the_index_knew_it_is_still_sealed() -> None:
    trial = Trial.begin()
    trial.append(3)
    trial.run()
    trial.manifest.remove([2])
    trial.index.mark_dead([2])
    del trial.expected[2]
    roll = trial.manifest.roll
    late: list[int] = []

    def publish_and_roll(segment_id: int) -> None:
        # Like the writer thread: earlier commits reach the index before this one.
        while late:
            sequence = late.pop(0)
            owner, body = trial.manifest.rows[sequence]
            if owner == sequence:
                trial.index.add_open(owner)
            trial.index.append(owner, [event_row(sequence, body)])
        roll(segment_id)

    for number in (4, 5):
        body = encode(happening(f"late{number}"))
        sequence, _ = trial.manifest.add(body, SETTINGS.segment_events_max, START)
        trial.expected[sequence] = body
        late.append(sequence)
    trial.manifest.roll = publish_and_roll  # type: ignore[method-assign]
    trial.maintenance.appended(1)
    trial.run()
    assert trial.maintenance.failure() is None and trial.manifest.notes == []
    assert [row.state for row in trial.manifest.segments()] == ["sealed", "open"]
    trial.check()


def test_five_hundred_compactions_finish_while_threads_record() -> None:
    manifest, over = SharedManifest(), threading.Event()
    settings = replace(SETTINGS, segment_events_max=6)
    index, maintenance = open_maintenance(
        settings, TrialClocks(), FaultyFiles(), FaultyFiles(), manifest, monotonic=time.monotonic
    )

    def record() -> None:
        with manifest.lock:
            body = encode(happening(f"e{manifest.last_sequence}"))
            sequence, segment_id = manifest.add(body, settings.segment_events_max, START)
            if segment_id == sequence:
                index.add_open(segment_id)
            index.append(segment_id, [event_row(sequence, body)])
        maintenance.appended(len(body))

    def record_on() -> None:
        while not over.is_set():
            if manifest.rolled.acquire(timeout=0.05):
                record()
                manifest.recorded.release()

    record()
    maintenance.start()
    with ThreadPoolExecutor(RECORDERS + 1) as pool:
        recorders = [pool.submit(record_on) for _ in range(RECORDERS)]
        compacting = pool.submit(lambda: [maintenance.compact(lambda progress: None) for _ in range(COMPACTIONS)])
        try:
            done: list[CompactionProgress] = compacting.result(DEADLINE_S)
        finally:
            maintenance.close()
            over.set()
        for recorder in recorders:
            recorder.result()
    assert len(done) == COMPACTIONS and all(progress.done for progress in done)
    assert maintenance.failure() is None
    assert index.count == manifest.last_sequence >= COMPACTIONS
