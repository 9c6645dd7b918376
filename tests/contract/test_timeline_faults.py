"""A timeline on a full or failing disk: no acknowledged event is lost, the failure is reported, and it recovers."""

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from mnemon_server.domain.errors import MnemonError, NotServingError, StorageFailedError, StorageFullError
from mnemon_server.engines.events.upkeep.maintenance_thread import MaintenanceThread
from mnemon_server.engines.events.upkeep.manifest import Change, SegmentState

from tests.support.faulty_files import Operation
from tests.support.server import wait_until
from tests.support.timeline_trial import SETTINGS, START, MemoryManifest, Trial


def settle(trial: Trial) -> None:
    """Lets time pass until failed work is retried."""
    trial.clocks.pass_time(60)
    trial.run()


@pytest.mark.parametrize("operation", ["create", "append", "sync", "sync_folder", "rename", "truncate"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_call_that_fails_once_at_any_time_loses_nothing(operation: Operation, error: int) -> None:
    at = 0
    while True:
        at += 1
        trial = Trial.begin()
        trial.files.fail(operation, at=at, error=error)
        work(trial)
        settle(trial)
        if trial.files.calls[operation] < at:
            break
        trial.check()
        assert (trial.lost, trial.quarantine.names()) == ([], [])
        assert trial.severities in (["warning", "healthy"], [])
        assert trial.maintenance.failure() is None
        trial.crash_and_reopen(at)
        trial.check()
        assert (trial.lost, trial.quarantine.names()) == ([], [])
    assert at > 1 or operation == "truncate"


def work(trial: Trial) -> None:
    """Writes, seals, removes and compacts. No failure ends this loop."""
    trial.append(6)
    trial.run()
    trial.remove(2)
    trial.run()
    trial.append(5)
    trial.run()
    trial.remove(10)
    trial.run()
    settle(trial)
    trial.seal_all()
    with tolerated():
        trial.compact()
    trial.append(2)
    trial.run()


@contextmanager
def tolerated() -> Iterator[None]:
    """Ignores the error that the caller of a compaction gets."""
    try:
        yield
    except (StorageFullError, StorageFailedError):
        return


def test_a_full_disk_is_reported_once_and_service_resumes_by_itself() -> None:
    trial = Trial.begin()
    trial.append(3)
    trial.run()
    trial.files.fail("append", at=1, times=10**6, error=errno.ENOSPC)
    for _ in range(5):
        trial.append(4)
        trial.run()
        settle(trial)
        assert trial.found() == trial.expected
        assert trial.severities == ["warning"]
        failure = trial.maintenance.failure()
        assert failure is not None and "no space is left" in failure and "safe" in failure
    trial.reopen()
    assert trial.found() == trial.expected
    trial.files.heal()
    settle(trial)
    trial.check()
    # The new process reports it again, because it does not know what the old one reported.
    assert trial.severities == ["warning", "warning", "healthy"]
    assert trial.maintenance.failure() is None
    assert sum(row.state is SegmentState.SEALED for row in trial.manifest.segments()) == 5


def test_retries_become_rarer_while_the_disk_is_full() -> None:
    trial = Trial.begin()
    trial.files.fail("create", at=1, times=10**6, error=errno.ENOSPC)
    trial.append(1)
    waits = []
    for _ in range(8):
        before = trial.files.calls["create"]
        trial.run()
        assert trial.files.calls["create"] == before + 1
        due = trial.maintenance.tasks.seconds_until_due()
        assert due is not None
        waits.append(round(due))
        trial.clocks.pass_time(due)
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]


def test_a_file_whose_sync_failed_is_given_up_and_never_synced_again() -> None:
    trial = Trial.begin()
    trial.append(2)
    trial.run()
    name = trial.name_of(1)
    trial.append(1)
    trial.files.fail("sync", at=1)
    trial.run()
    assert trial.severities == ["warning"]
    settle(trial)
    trial.check()
    assert trial.name_of(1) != name
    # The new file is kept, unless its own sync fails.
    kept = trial.name_of(1)
    trial.append(1)
    trial.files.fail("append", at=1, error=errno.ENOSPC)
    trial.run()
    settle(trial)
    assert trial.name_of(1) == kept
    trial.crash_and_reopen(1)
    trial.check()
    assert trial.quarantine.names() == []
    assert trial.severities == ["warning", "healthy", "warning", "healthy"]


def test_a_warning_waits_until_the_records_can_store_it() -> None:
    trial = Trial.begin()
    trial.append(3)
    refused: list[Change] = []

    def refuse(change: Change) -> MnemonError | None:
        refused.append(change)
        return StorageFullError("no space is left")

    trial.manifest.before_commit = refuse
    trial.files.fail("append", at=1, times=10**6, error=errno.ENOSPC)
    trial.run()
    settle(trial)
    assert len(refused) > 1 and trial.manifest.notes == []
    trial.manifest.before_commit = lambda change: None
    settle(trial)
    assert trial.severities == ["warning"]
    trial.files.heal()
    settle(trial)
    assert trial.severities == ["warning", "healthy"]
    trial.check()


class FailingCommit:
    """Fails the commit with this number, counted from 1. If `happened`, the commit did all its work before."""

    def __init__(self, manifest: MemoryManifest, at: int, *, happened: bool) -> None:
        self.left = at
        if happened:
            manifest.after_commit = self._raise
        else:
            manifest.before_commit = self._refuse

    def _refuse(self, change: Change) -> MnemonError | None:
        self.left -= 1
        return StorageFailedError("the disk failed while writing") if self.left == 0 else None

    def _raise(self, change: Change) -> None:
        if (error := self._refuse(change)) is not None:
            raise error


@pytest.mark.parametrize("happened", [False, True])
def test_after_a_commit_with_an_unknown_outcome_files_and_records_agree(*, happened: bool) -> None:
    at, failed = 0, True
    while failed:
        at += 1
        trial = Trial.begin()
        failing = FailingCommit(trial.manifest, at, happened=happened)
        work(trial)
        settle(trial)
        failed = failing.left <= 0
        trial.check()
        assert trial.lost == [] and trial.severities in (["warning", "healthy"], [])
        trial.reopen()
        trial.check()
    assert at > 7


def test_a_file_that_reads_back_wrong_is_written_again() -> None:
    trial = Trial.begin()
    trial.append(4)
    trial.run()
    name = trial.name_of(1)
    trial.files.rotten = {name: 100}
    trial.append(1)
    trial.run()
    assert trial.manifest.list[1].state is SegmentState.ROLLED
    assert set(trial.manifest.rows) == {1, 2, 3, 4, 5}
    settle(trial)
    trial.check()
    assert trial.manifest.list[1].state is SegmentState.SEALED and trial.name_of(1) != name
    assert trial.severities == ["warning", "healthy"]


# Clocks


def test_a_segment_is_sealed_by_age_when_nothing_is_appended() -> None:
    trial = Trial.begin()
    trial.append(2)
    trial.run()
    assert trial.manifest.list[1].state is SegmentState.OPEN
    trial.clocks.pass_time(SETTINGS.segment_age_max_s - 1)
    trial.run()
    assert trial.manifest.list[1].state is SegmentState.OPEN
    trial.clocks.pass_time(1)
    trial.run()
    assert trial.manifest.list[1].state is SegmentState.SEALED
    trial.check()


@pytest.mark.parametrize("hours", [-1, 1, 24 * 365, -24 * 365])
def test_a_clock_jump_loses_nothing_and_keeps_no_segment_open_forever(hours: int) -> None:
    trial = Trial.begin()
    trial.append(2, at=START)
    trial.run()
    trial.clocks.now += timedelta(hours=hours)
    trial.append(1, at=trial.clocks.now)
    trial.run()
    trial.check()
    trial.clocks.seconds += SETTINGS.segment_age_max_s
    trial.run()
    assert all(row.state is SegmentState.SEALED for row in trial.manifest.segments())
    trial.reopen()
    trial.check()
    assert sorted(trial.found()) == [1, 2, 3] and trial.manifest.notes == []


def test_all_files_are_read_once_a_day() -> None:
    trial = Trial.begin()
    assert trial.manifest.scrub_time is None
    trial.append(9)
    trial.run()
    trial.reopen()
    assert trial.manifest.scrub_time is not None
    start, _ = trial.span(3)
    trial.damage(1, start + 30)
    trial.clocks.pass_time(SETTINGS.scrub_interval_s - 60)
    trial.run()
    assert trial.lost == []
    trial.clocks.pass_time(60)
    trial.run()
    assert trial.lost == [(3, 3, 1)]
    read = trial.manifest.scrub_time
    assert read is not None and read - START >= timedelta(seconds=SETTINGS.scrub_interval_s)


def test_the_synced_length_of_a_file_is_noted_at_most_once_a_second() -> None:
    trial = Trial.begin(settings=replace(SETTINGS, segment_events_max=1_000, note_interval_s=1.0))
    for _ in range(50):
        trial.append(1)
        trial.run()
        trial.clocks.pass_time(0.1)
    assert 3 <= trial.manifest.flushes <= 6


# The thread


def test_callers_waiting_for_the_keeper_are_answered_when_it_stops() -> None:
    maintenance = a_maintenance_thread()
    maintenance.start()
    assert maintenance.wait_until_warm(60)
    maintenance.close()
    maintenance.close()
    for call in (maintenance.scrub, lambda: maintenance.repair(1), lambda: maintenance.compact(lambda progress: None)):
        with pytest.raises(NotServingError):
            call()
    maintenance.repair_soon(1)


def test_a_keeper_that_cannot_read_the_records_becomes_warm_once_it_can() -> None:
    manifest = MemoryManifest()
    broken = threading.Event()
    broken.set()
    maintenance = a_maintenance_thread(manifest)
    segments = manifest.segments

    def read() -> object:
        if broken.is_set():
            raise StorageFailedError("the disk failed")
        return segments()

    manifest.segments = read  # type: ignore[assignment,method-assign]
    maintenance.start()
    wait_until(lambda: maintenance.failure() is not None)
    assert not maintenance.is_warm
    broken.clear()
    assert maintenance.wait_until_warm(60)
    wait_until(lambda: maintenance.failure() is None)
    maintenance.close()


def a_maintenance_thread(manifest: MemoryManifest | None = None) -> MaintenanceThread:
    """A maintenance with a thread, which retries at once."""
    trial = Trial.begin()
    return MaintenanceThread(
        files=trial.files,
        quarantine=trial.quarantine,
        manifest=manifest or trial.manifest,
        index=trial.index,
        clock=lambda: START,
        settings=replace(SETTINGS, retry_s=0.01),
    )
