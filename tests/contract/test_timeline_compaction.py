"""Compaction of a timeline: removed events leave the disk, small segments are joined, and calls do not wait for it."""

import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.domain.events import CompactionProgress, PruneReason
from mnemon_server.engines.events.format.layout import segment_name
from mnemon_server.engines.events.index.selection import Selection
from mnemon_server.engines.events.upkeep.compaction import joinable
from mnemon_server.engines.events.upkeep.manifest import SegmentState
from mnemon_server.engines.events.upkeep.rewriting import DRAFT_SUFFIX
from mnemon_server.engines.sqlite_vault import SQLiteVault, VaultSettings

from tests.contract.timeline_suite import SETTINGS as SUITE_SETTINGS
from tests.contract.timeline_suite import append_at, get, window
from tests.contract.vault_suite import DIMENSION, START, ManualClock
from tests.support.server import wait_until
from tests.support.timeline_trial import SETTINGS, Trial, content_of

ROOMY = replace(SETTINGS, segment_events_max=100)


def small_segments(count: int = 5) -> Trial:
    """Sealed segments of three events each."""
    trial = Trial.begin(settings=ROOMY)
    for _ in range(count):
        trial.append(3)
        trial.seal_all()
    assert len(trial.manifest.list) == count
    return trial


def _draft_of_next(trial: Trial) -> str:
    """The name under which the segment that begins with the first event is rewritten."""
    return segment_name(1, trial.manifest.list[1].generation + 1) + DRAFT_SUFFIX


def test_small_neighbours_become_one_segment() -> None:
    trial = small_segments()
    before = sum(row.byte_count for row in trial.manifest.segments())
    done = trial.compact()
    trial.check()
    [row] = trial.manifest.segments()
    assert (row.segment_id, row.first_sequence, row.last_sequence, row.event_count) == (1, 1, 15, 15)
    assert row.state is SegmentState.SEALED
    assert done == CompactionProgress(
        processed_bytes=before, total_bytes=before, segment_count=1, reclaimed_bytes=before - row.byte_count, done=True
    )
    trial.reopen()
    trial.check()
    trial.scrub()
    assert trial.manifest.notes == []


def test_a_compaction_reports_its_progress() -> None:
    trial = small_segments()
    reports: list[CompactionProgress] = []
    last = trial.compact(reports.append)
    assert reports[-1] == last and last.done and not any(report.done for report in reports[:-1])
    processed = [report.processed_bytes for report in reports]
    assert processed == sorted(processed) and len(set(processed)) > 4
    assert all(report.processed_bytes <= report.total_bytes for report in reports)


def test_a_compaction_seals_the_open_segment_and_joins_it_too() -> None:
    trial = small_segments(2)
    trial.append(2)
    trial.compact()
    trial.check()
    assert [(row.segment_id, row.event_count) for row in trial.manifest.segments()] == [(1, 8)]
    assert trial.manifest.rows == {}


def test_a_compaction_with_nothing_to_do_is_done_at_once() -> None:
    assert Trial.begin().compact() == CompactionProgress(done=True)


def test_segments_are_joined_only_up_to_the_maximum_size() -> None:
    trial = small_segments(7)
    rows = trial.manifest.segments()
    small = replace(ROOMY, segment_events_max=10)
    assert [[row.segment_id for row in run] for run in joinable(rows, small, count_min=2)] == [[1, 4, 7], [10, 13, 16]]
    tight = replace(ROOMY, segment_bytes_max=2 * rows[0].byte_count + rows[0].byte_count // 2)
    assert {len(run) for run in joinable(rows, tight, count_min=2)} == {2}
    assert joinable(rows, replace(ROOMY, segment_events_max=5), count_min=2) == []
    opened = [*rows[:3], rows[3]._replace(state=SegmentState.OPEN), *rows[4:]]
    assert [[row.segment_id for row in run] for run in joinable(opened, ROOMY, count_min=3)] == [
        [1, 4, 7],
        [13, 16, 19],
    ]


def test_many_small_segments_are_joined_automatically() -> None:
    trial = Trial.begin(settings=replace(ROOMY, joined_min=4))
    for _ in range(4):
        trial.append(3)
        trial.seal_all()
    trial.check()
    assert [row.event_count for row in trial.manifest.segments()] == [12]


def test_removed_events_leave_the_disk() -> None:
    trial = Trial.begin()
    trial.append(11)
    trial.run()
    trial.remove(2, 6, 7, 10)
    assert trial.found() == trial.expected
    assert set(trial.removed_in_files()) == {2, 6, 7, 10}
    trial.run()
    trial.check()
    assert trial.manifest.marks == set()
    assert [row.event_count for row in trial.manifest.segments()] == [3, 2, 2]
    trial.reopen()
    trial.check()
    assert trial.lost == []


def test_several_removals_in_quick_succession_cause_one_rewrite() -> None:
    trial = Trial.begin(settings=replace(SETTINGS, erase_delay_s=1.0))
    trial.append(5)
    trial.run()
    for sequence in (1, 2, 3):
        trial.remove(sequence)
        trial.run()
        trial.clocks.pass_time(0.2)
    assert trial.manifest.list[1].generation == 1
    trial.clocks.pass_time(1.0)
    trial.run()
    trial.check()
    assert trial.manifest.list[1].generation == 2


def test_an_empty_segment_is_deleted() -> None:
    trial = Trial.begin()
    trial.append(11)
    trial.run()
    trial.remove(5, 6, 7, 8, 9, 10, 11)
    trial.run()
    trial.check()
    assert [row.segment_id for row in trial.manifest.segments()] == [1]
    trial.reopen()
    trial.check()
    trial.append(3)
    trial.run()
    trial.check()
    assert sorted(trial.expected) == [1, 2, 3, 4, 12, 13, 14]


def test_events_removed_before_they_were_written_are_never_written() -> None:
    trial = Trial.begin()
    trial.append(6)
    trial.remove(1, 5)
    trial.run()
    trial.check()
    trial.seal_all()
    trial.check()


def test_an_event_removed_while_its_segment_is_rewritten_is_gone_from_the_next_rewrite() -> None:
    trial = small_segments(4)
    hidden: list[set[int]] = []

    def remove_one(progress: CompactionProgress) -> None:
        if not hidden and progress.processed_bytes:
            hidden.append(set(trial.expected))
            trial.remove(2, 8)

    trial.compact(remove_one)
    assert hidden
    trial.check()
    assert sorted(set(range(1, 13)) - set(trial.found())) == [2, 8]
    trial.reopen()
    trial.check()


def test_events_removed_while_their_open_segment_is_written_are_gone_too() -> None:
    trial = Trial.begin(settings=ROOMY)
    trial.append(8)
    trial.run()
    bodies, runs = trial.manifest.bodies, 0

    def remove_meanwhile(segment_id: int, after: int) -> list[tuple[int, bytes]]:
        nonlocal runs
        found = bodies(segment_id, after)
        if trial.manifest.list[1].state is SegmentState.ROLLED and after:
            runs += 1
            if runs == 1:
                trial.manifest.remove([1, 7, 8])
                trial.index.mark_dead([1, 7, 8])
                for sequence in (1, 7, 8):
                    del trial.expected[sequence]
        return found

    trial.manifest.bodies = remove_meanwhile  # type: ignore[method-assign]
    trial.remove(2)
    trial.run()
    assert runs > 1 and trial.found() == trial.expected
    trial.remove(3)
    trial.run()
    trial.check()
    trial.remove(5, 6)
    trial.run()
    trial.reopen()
    trial.check()
    assert sorted(trial.expected) == [4] and trial.manifest.marks == set()


def test_marks_of_events_that_were_never_written_remove_no_other_event() -> None:
    trial = Trial.begin()
    trial.append(5)
    trial.run()
    trial.manifest.marks |= {(1, 2), (1, 3), (1, 4)}
    trial.remove(2, 3, 4)
    trial.run()
    trial.manifest.marks |= {(1, 2), (1, 3), (1, 4)}
    trial.maintenance.pruned()
    trial.run()
    trial.check()
    assert sorted(trial.found()) == [1, 5] and trial.manifest.marks == set()


def test_a_compaction_gives_way_to_a_repair_of_the_segment_that_it_read() -> None:
    trial = small_segments(4)
    damaged = False

    def damage(progress: CompactionProgress) -> None:
        nonlocal damaged
        if not damaged and progress.processed_bytes > trial.manifest.list[1].byte_count:
            damaged = True
            trial.damage(1, trial.span(2)[0] + 30)
            trial.maintenance.tasks.repair(1)

    trial.compact(damage)
    assert damaged
    del trial.expected[2]
    trial.check()
    assert trial.lost == [(2, 2, 1)] and len(trial.manifest.list) == 4
    trial.compact()
    trial.check()
    assert len(trial.manifest.list) == 1


def test_events_are_recorded_while_segments_are_rewritten() -> None:
    trial = small_segments(4)

    def append_one(progress: CompactionProgress) -> None:
        if not progress.done:
            trial.append(1)

    trial.compact(append_one)
    trial.run()
    trial.check()
    assert len(trial.expected) > 12
    trial.reopen()
    trial.check()


def test_a_reader_of_an_old_segment_can_finish() -> None:
    trial = small_segments(2)
    name = trial.name_of(1)
    reader = trial.maintenance.store.readers.get(name)
    offsets = [ref.offset for ref in trial.index.page(Selection(), limit=99) if ref.segment_id == 1]
    trial.compact()
    assert name not in trial.files.names()
    assert {frame.sequence: frame.body for frame in reader.read_many(offsets)} == {
        sequence: trial.expected[sequence] for sequence in (1, 2, 3)
    }


def test_damage_found_by_a_compaction_is_repaired_and_the_rest_is_joined() -> None:
    trial = small_segments(4)
    trial.damage(4, trial.span(5)[0] + 30)
    trial.compact()
    del trial.expected[5]
    trial.check()
    assert [(row.segment_id, row.event_count) for row in trial.manifest.segments()] == [(1, 11)]
    assert trial.lost == [(5, 5, 1)] and trial.severities == ["critical", "healthy"]


def test_a_compaction_whose_file_reads_back_wrong_fails_for_its_caller() -> None:
    trial = small_segments(2)
    trial.files.rotten = {_draft_of_next(trial): 100}
    with pytest.raises(StorageFailedError):
        trial.compact()
    trial.check()
    assert len(trial.manifest.list) == 2
    trial.files.rotten = {}
    assert trial.compact().segment_count == 1
    trial.check()


def test_an_automatic_rewrite_that_reads_back_wrong_is_reported_and_retried() -> None:
    trial = small_segments(1)
    trial.files.rotten = {_draft_of_next(trial): 100}
    trial.remove(2)
    trial.run()
    assert trial.maintenance.failure() is not None and trial.severities == ["warning"]
    trial.files.rotten = {}
    trial.clocks.pass_time(60)
    trial.run()
    trial.check()
    assert trial.maintenance.failure() is None and trial.severities == ["warning", "healthy"]
    assert trial.manifest.marks == set()


def test_a_compaction_that_finds_damage_where_a_repair_finds_none_fails_for_its_caller() -> None:
    trial = small_segments(2)
    # The file on disk is sound. One byte differs when it is read through memory.
    trial.files.bad_cached = {trial.name_of(1): 100}
    with pytest.raises(StorageFailedError):
        trial.compact()
    trial.files.bad_cached = {}
    assert trial.compact().segment_count == 1
    trial.check()


def test_a_compaction_continues_when_its_caller_has_left() -> None:
    def refuse(progress: CompactionProgress) -> None:
        raise ConnectionResetError

    trial = small_segments()
    assert trial.compact(refuse).done
    trial.check()
    assert len(trial.manifest.list) == 1


# A whole vault


def _open(folder: Path) -> SQLiteVault:
    settings = replace(SUITE_SETTINGS, erase_delay_s=0.02, sync_interval_s=0.02)
    vault = SQLiteVault(
        folder,
        model_identity="test/1",
        dimension=DIMENSION,
        settings=VaultSettings(events=settings),
        clock=ManualClock(),
    )
    assert vault.events.wait_until_warm(60)
    return vault


def test_the_bytes_of_removed_events_leave_a_vault(tmp_path: Path) -> None:
    vault = _open(tmp_path)
    append_at(vault.events, [START] * 13)
    wait_until(lambda: vault.events.status().unsealed_count == 3)
    pruned = ("e1", "e5", "e6", "e7", "e8", "e9", "e11")
    assert vault.events.prune(get(vault.events, *pruned), PruneReason.REQUESTED).result() == 7
    wait_until(lambda: vault.events.status().removal_pending_count == 0)
    # Files are deleted when their transactions are over.
    wait_until(lambda: len(list((tmp_path / "timeline").iterdir())) == 2)
    contents = [path.read_bytes() for path in (tmp_path / "timeline").iterdir()]
    assert not any(re.search(rf"content of {one}(?!\d)".encode(), content) for one in pruned for content in contents)
    assert sorted(window(vault.events)) == ["e0", "e10", "e12", "e2", "e3", "e4"]
    vault.close()
    vault = _open(tmp_path)
    assert sorted(window(vault.events)) == ["e0", "e10", "e12", "e2", "e3", "e4"]
    assert vault.events.status().lost == ()
    vault.close()


def test_reads_and_writes_go_on_while_a_vault_is_compacted(tmp_path: Path) -> None:
    vault = _open(tmp_path)
    append_at(vault.events, [START] * 40)
    stop = threading.Event()
    failures: list[object] = []

    def read() -> None:
        while not stop.is_set():
            found = window(vault.events)
            if len(found) != 40:
                failures.append(found)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(5):
            vault.events.compact(lambda progress: None)
    finally:
        stop.set()
        reader.join()
    assert failures == []
    assert vault.events.status().unsealed_count == 0
    vault.close()


def test_events_that_differ_only_in_text_are_different_events() -> None:
    assert not any(content_of(1) in content_of(other) for other in range(2, 200))
