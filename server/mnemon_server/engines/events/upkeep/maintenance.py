"""The maintenance tasks of a timeline and their schedule. Failures are reported and retried."""

import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from mnemon_server.domain.clock import Clock, to_microseconds
from mnemon_server.domain.errors import MnemonError, RecordDamagedError, StorageFailedError, StorageFullError
from mnemon_server.domain.events import CompactionProgress
from mnemon_server.engines.allocator import release_free_memory
from mnemon_server.engines.events.format.layout import SegmentDamagedError, parse_segment_name
from mnemon_server.engines.events.settings import EventEngineSettings
from mnemon_server.engines.events.upkeep.active_files import ActiveFiles
from mnemon_server.engines.events.upkeep.compaction import Compaction, has_survivors
from mnemon_server.engines.events.upkeep.health import MaintenanceHealth
from mnemon_server.engines.events.upkeep.long_tasks import Job, Jobs, Steps
from mnemon_server.engines.events.upkeep.manifest import Change, SegmentRow, SegmentState
from mnemon_server.engines.events.upkeep.quarantine import discard_plain
from mnemon_server.engines.events.upkeep.recovery import load_index, tidy
from mnemon_server.engines.events.upkeep.repair import Repairer
from mnemon_server.engines.events.upkeep.schedule import Schedule
from mnemon_server.engines.events.upkeep.scrubbing import read_all
from mnemon_server.engines.events.upkeep.sealing import seal_segment
from mnemon_server.engines.events.upkeep.store import SegmentStore, Swap
from mnemon_server.engines.events.upkeep.warning_texts import failed_warning, full_warning, unrepaired_warning

log = logging.getLogger(__name__)

_ROWS_PAUSE_S = 0.01
"""Pause between two steps of deleting rows, so that other writes get their turn."""
_ROWS_MAX_S = 0.5
"""Maximum time of a run of such steps."""
_ERASING_MAX_S = 0.5
"""Maximum time for which removed events are overwritten before other tasks get their turn."""


class MaintenanceTasks:
    """The tasks of one thread. Any thread may call `note_appended` and `note_pruned`, and ask for health."""

    def __init__(
        self, store: SegmentStore, clock: Clock, settings: EventEngineSettings, monotonic: Callable[[], float]
    ) -> None:
        """Touches nothing yet; see MaintenanceThread for the arguments."""
        self._store = store
        self._clock = clock
        self._settings = settings
        self._monotonic = monotonic
        self.health = MaintenanceHealth(store.manifest)
        self.loaded_count = 0
        self._active_files = ActiveFiles(store, sync_bytes=settings.sync_bytes)
        self._repairer = Repairer(store, clock)
        self._damaged: set[int] = set()
        self._jobs = Jobs()
        self._waiting_bytes = 0
        self._rows_time = monotonic()
        """When rows were last deleted."""
        self._schedule = Schedule(settings.retry_s, settings.retry_s_max, monotonic)
        self._tasks: dict[str, Callable[[], object]] = {
            "repair": self._repair_damaged,
            "rolling": self._roll_open,
            "erasing": self._erase,
            "writing": self._write,
            "noting": self._store.manifest.flush,
            "rows": self._remove_rows,
            "scrub": self._add_scrub,
            "jobs": self._take_step,
        }
        """The tasks of a turn, in order. After a failure, a task that returns False does not count as recovered yet."""

    # For any thread

    @property
    def erasing_count(self) -> int:
        """See SegmentStore."""
        return self._store.erasing_count

    def erased_counts(self) -> dict[tuple[int, int], int]:
        """See Erasing."""
        return self._store.erasing.counts()

    def note_appended(self, byte_count: int) -> bool:
        """Must be called after events were committed; returns whether the maintenance thread must be woken."""
        # Concurrent calls may lose part of the sum. Then the next write happens a little later or sooner, which is
        # harmless.
        self._waiting_bytes += byte_count
        is_full = self._waiting_bytes >= self._settings.sync_bytes
        return self._schedule.put("writing", 0.0 if is_full else self._settings.sync_interval_s)

    def note_pruned(self) -> None:
        """Must be called after events were removed."""
        self._schedule.put("erasing", self._settings.erase_delay_s)

    # For the maintenance thread

    def warm_up(self) -> bool:
        """Loads the index, and repairs segments that cannot be loaded. Returns False if records.db could not be
        read.
        """
        return self._attempt("loading", self._load)

    def turn(self) -> None:
        """Runs the tasks that are due, and one step of a long job."""
        for name, task in self._tasks.items():
            if self._schedule.is_due(name):
                self._attempt(name, task)
        if self._schedule.is_due("telling") or (self.health.is_unsaid and not self._schedule.is_held("telling")):
            self._schedule.drop("telling")
            (self._schedule.succeeded if self.health.tell() else self._schedule.failed)("telling")

    def seconds_until_due(self) -> float | None:
        """Seconds until the next task is due; None if none is scheduled."""
        return self._schedule.seconds_until_due()

    def repair(self, segment_id: int) -> None:
        """Reads a segment, and rewrites it if it is damaged. Retries later if that fails."""
        self._damaged.add(segment_id)
        self._attempt("repair", self._repair_damaged)

    def start_scrub(self, done: "Future[None]") -> None:
        """Starts a check of all data, at full speed."""
        self._add(Job(name="scrub", begin=self._scrub, done=done))

    def start_compaction(
        self, report: Callable[[CompactionProgress], None], done: "Future[CompactionProgress]"
    ) -> None:
        """Starts a complete compaction."""
        self._add(Job(name="compaction", begin=partial(self._compact_all, report), done=done))

    def finish(self) -> None:
        """Writes committed events if that is quick, so that the next start has less to do."""
        self._attempt("writing", self._write_last)
        self._attempt("noting", self._store.manifest.flush)

    def close(self, error: MnemonError) -> None:
        """Ends the running jobs. Waiting callers get the error."""
        self._jobs.close(error)
        self._active_files.close()

    def _attempt(self, name: str, task: Callable[[], object]) -> bool:
        """Runs a task, unless it failed recently; returns whether it succeeded."""
        if self._schedule.is_held(name):
            return False
        self._schedule.drop(name)
        try:
            self._store.settle()
            proved = task()
        except StorageFullError:
            problem = full_warning()
        except StorageFailedError as error:
            problem = (unrepaired_warning if name == "repair" else failed_warning)(str(error))
        except RecordDamagedError as error:
            problem = failed_warning(str(error))
        except Exception:
            log.exception("%s failed", name)
            problem = failed_warning("of an unexpected error; see the log")
        else:
            if proved is not False:
                self._schedule.succeeded(name)
                self.health.clear(name)
            return True
        self._schedule.failed(name)
        self.health.report(name, problem)
        return False

    # Starting, writing, sealing

    def _load(self) -> None:
        self.health.load()
        self.loaded_count = 0
        unsound = load_index(self._store, self._count_loaded)
        tidy(self._store, unsound)
        for row in unsound:
            self.repair(row.segment_id)
        for name in ("writing", "erasing", "rows", "scrub"):
            self._schedule.put(name)
        if any(row.is_sealed and self._store.must_encrypt(row) for row in self._store.manifest.segments()):
            log.info("the segments of the timeline, which a server without a master key wrote, are being encrypted")
            discard_plain(self._store.quarantine)
            self._add_compaction()

    def _count_loaded(self) -> None:
        self.loaded_count += 1

    def _write(self) -> None:
        """Writes committed events, or seals one closed segment. Further segments are left to the next turns."""
        self._waiting_bytes = 0
        rows = self._unsealed()
        for row in rows[:1]:
            if row.state is SegmentState.OPEN:
                self._active_files.write(row)
                self._schedule.put_off("rolling", self._seconds_to_live(row))
            elif seal_segment(self._store, self._active_files, row):
                self._schedule.put("rows")
                self._add_compaction()
        if any(row.state is SegmentState.ROLLED for row in rows):
            self._schedule.put("writing")
        self._schedule.put("noting", self._settings.note_interval_s)

    def _write_last(self) -> None:
        if all(row.state is SegmentState.OPEN for row in self._unsealed()):
            self._write()

    def _unsealed(self) -> list[SegmentRow]:
        return [row for row in self._store.manifest.segments() if not row.is_sealed]

    def _seconds_to_live(self, row: SegmentRow) -> float:
        """Seconds until an open segment is too old. A clock that was set back does not prolong this."""
        age_max = self._settings.segment_age_max_s
        age = (to_microseconds(self._clock()) - row.create_time_us) / 1e6
        return min(max(age_max - age, 0.0), age_max)

    def _roll_open(self) -> list[SegmentRow]:
        """Closes the open segment; returns the segments to seal now."""
        rows = self._unsealed()
        for row in rows:
            if row.state is SegmentState.OPEN:
                self._roll(row)
        return rows

    def _roll(self, row: SegmentRow) -> None:
        self._store.manifest.roll(row.segment_id)
        self._schedule.drop("rolling")
        self._schedule.put("writing")

    def _remove_rows(self) -> None:
        """Deletes rows for as long as all other tasks took since the last time. With one step per turn, rows would
        pile up while many events arrive, because each turn writes more of them than a step deletes.
        """
        end = self._monotonic() + min(self._monotonic() - self._rows_time, _ROWS_MAX_S)
        while are_left := self._store.manifest.delete_sealed_rows():
            if self._monotonic() >= end:
                break
        self._rows_time = self._monotonic()
        if are_left:
            self._schedule.put("rows", _ROWS_PAUSE_S)

    def _erase(self) -> None:
        """Overwrites removed events in sealed files, which compaction then rewrites without them. An open segment with
        removed events is closed, to be written without them.
        """
        end = self._monotonic() + _ERASING_MAX_S
        dead = self._store.manifest.dead_counts()
        holed = [row for row in self._store.manifest.segments() if row.segment_id in dead]
        for row in holed:
            if row.state is SegmentState.OPEN:
                self._roll(row)
            elif row.is_sealed and self._monotonic() < end:
                self._erase_in(row)
            elif row.is_sealed:
                self._schedule.put("erasing")
                return
        if any(row.is_sealed for row in holed):
            self._add_compaction()

    def _erase_in(self, row: SegmentRow) -> None:
        dead = self._store.manifest.dead(row.segment_id)
        if not has_survivors(self._store, row, dead):
            self._store.swap(Swap(removed=[row], added=None, erased={row.segment_id: dead}))
            return
        try:
            self._store.erasing.erase(row)
        except SegmentDamagedError as damage:
            # A repair writes the segment without its removed events.
            log.warning("%s", damage)
            self._damaged.add(row.segment_id)
            self._schedule.put("repair")

    def _repair_damaged(self) -> None:
        for segment_id in sorted(self._damaged):
            self._repair_segment(segment_id)

    def _repair_segment(self, segment_id: int) -> bool:
        """Repairs a segment if it is damaged; returns whether it was."""
        row = self._store.find(segment_id)
        was_damaged = row is not None and row.is_sealed and self._repairer.repair(row)
        if was_damaged:
            self.health.note_warned()
        self._damaged.discard(segment_id)
        return was_damaged

    # Long jobs

    def _add(self, job: Job) -> None:
        self._jobs.add(job)
        self._schedule.put("jobs")

    def _take_step(self) -> bool:
        """Runs a step of the current job. If a caller waits for the job, only that caller gets its error."""
        job = self._jobs.current
        if job is None:
            return True
        started = self._monotonic()
        try:
            is_over = not self._advance(job)
        except Exception as error:
            if job.done is None:
                raise
            is_over = True
            job.fail(error)
            if self._damaged:
                self._schedule.put("repair")
        if is_over:
            self._jobs.drop(job)
        spent = self._monotonic() - started
        if self._jobs.current:
            self._schedule.put("jobs", spent / job.share_max - spent)
        return is_over

    def _advance(self, job: Job) -> bool:
        """Runs a step; returns False if that was the last. If it finds damage, the segment is repaired and the job
        restarts.
        """
        try:
            return job.advance()
        except SegmentDamagedError as damage:
            segment_id = (parse_segment_name(damage.name) or (0, 0))[0]
            self._damaged.add(segment_id)
            if not self._repair_segment(segment_id):
                # The job would run into it forever.
                raise StorageFailedError(str(damage)) from damage
            return True

    def _add_compaction(self) -> None:
        share_max = self._settings.compaction_share_max
        self._add(Job(name="compaction", begin=self._compact_some, share_max=share_max))

    def _add_scrub(self) -> None:
        self._schedule.put("scrub", self._settings.scrub_interval_s)
        self._add(Job(name="scrub", begin=self._scrub, share_max=self._settings.scrub_share_max))

    def _compact_some(self) -> Steps:
        yield from Compaction(self._store, self._settings, joined_min=self._settings.joined_min).run()

    def _compact_all(self, report: Callable[[CompactionProgress], None]) -> Steps:
        # Events recorded from now on go to a new segment, which may stay open.
        rolled = {row.segment_id for row in self._roll_open()}
        while any(row.segment_id in rolled for row in self._unsealed()):
            self._write()
            yield
        compaction = Compaction(self._store, self._settings, joined_min=2, report=report)
        yield from compaction.run()
        return compaction.progress

    def _scrub(self) -> Steps:
        started = self._clock()
        yield from read_all(self._store, self.repair)
        # The C library would keep what was read for this, and at a start for the index: half as much as the index.
        release_free_memory()
        # Do not write to a vault that has no timeline.
        if not self._damaged and self._store.manifest.segments():
            self._store.manifest.commit(Change(scrub_time=started))
