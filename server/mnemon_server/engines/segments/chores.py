"""What the keeper of a timeline has to do, and when; each failure is told, and what failed is tried again."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from mnemon_server.domain.clock import Clock, to_microseconds
from mnemon_server.domain.episodic import CompactionProgress
from mnemon_server.domain.errors import MnemonError, StorageFailedError, StorageFullError
from mnemon_server.engines.segments.backoff import Backoff
from mnemon_server.engines.segments.compaction import Compaction
from mnemon_server.engines.segments.drafts import Drafts
from mnemon_server.engines.segments.health import KeeperHealth
from mnemon_server.engines.segments.jobs import Job, Jobs, Steps
from mnemon_server.engines.segments.layout import SegmentDamagedError, parse_segment_name
from mnemon_server.engines.segments.manifest import Change, SegmentRow, SegmentState
from mnemon_server.engines.segments.recovery import load_index, tidy
from mnemon_server.engines.segments.repair import Repairer
from mnemon_server.engines.segments.scrubbing import read_all
from mnemon_server.engines.segments.sealing import seal_segment
from mnemon_server.engines.segments.settings import TimelineSettings
from mnemon_server.engines.segments.store import SegmentStore
from mnemon_server.engines.segments.warning_texts import failed_warning, full_warning

log = logging.getLogger(__name__)

_NEVER = float("inf")
_ROWS_PAUSE_S = 0.01
"""Between two steps of removing rows, other writes have their turn."""


class Chores:
    """One thread does them. Any thread may call `note_appended` and `note_pruned`, and ask for health."""

    def __init__(
        self, store: SegmentStore, clock: Clock, settings: TimelineSettings, monotonic: Callable[[], float]
    ) -> None:
        """Touches nothing yet; see TimelineKeeper for the arguments."""
        self._store = store
        self._clock = clock
        self._settings = settings
        self._monotonic = monotonic
        self.health = KeeperHealth(store.manifest)
        self.loaded_count = 0
        self._drafts = Drafts(store, sync_bytes=settings.sync_bytes)
        self._repairer = Repairer(store, clock)
        self._backoff = Backoff(settings.retry_s, settings.retry_s_max, monotonic)
        self._damaged: set[int] = set()
        self._jobs = Jobs()
        self._job_at = 0.0
        self._lock = threading.Lock()
        self._waiting_bytes = 0
        self._write_at = self._erase_at = self._roll_at = self._note_at = self._scrub_at = _NEVER
        self._has_surplus_rows = False

    # Any thread

    def note_appended(self, byte_count: int) -> bool:
        """Events were committed; says whether the keeper's thread has to be woken."""
        now = self._monotonic()
        with self._lock:
            self._waiting_bytes += byte_count
            due = now if self._waiting_bytes >= self._settings.sync_bytes else now + self._settings.sync_interval_s
            sooner = due < self._write_at
            self._write_at = min(due, self._write_at)
        return sooner

    def note_pruned(self) -> None:
        """Events were removed."""
        with self._lock:
            self._erase_at = min(self._erase_at, self._monotonic() + self._settings.erase_delay_s)

    # The keeper's thread

    def warm_up(self) -> bool:
        """Loads the index, and repairs what cannot be loaded; False where records.db could not be read."""
        return self._attempt("loading", self._load)

    def turn(self) -> None:
        """Does what is due, and takes a step of what takes long."""
        now = self._monotonic()
        if self._damaged:
            self._attempt("repair", self._repair_damaged)
        if now >= self._roll_at:
            self._attempt("rolling", self._roll_aged)
        if now >= self._erase_at:
            self._attempt("erasing", self._erase)
        if now >= self._write_at:
            self._attempt("writing", self._write)
        if now >= self._note_at:
            self._attempt("noting", self._flush)
        if self._has_surplus_rows:
            self._attempt("rows", self._remove_rows)
        if now >= self._scrub_at:
            self._scrub_at = now + self._settings.scrub_interval_s
            self._jobs.add(Job(name="scrub", begin=self._scrub, share_max=self._settings.scrub_share_max))
        if now >= self._job_at and (job := self._jobs.current):
            self._advance(job)
        if self._backoff.is_due("telling"):
            (self._backoff.succeeded if self.health.tell() else self._backoff.failed)("telling")

    def seconds_until_due(self) -> float | None:
        """How long there is nothing to do; None where only others can change that."""
        now = self._monotonic()
        with self._lock:
            due = min(self._write_at, self._erase_at, self._roll_at, self._note_at, self._scrub_at)
        if self._has_surplus_rows:
            due = min(due, now + _ROWS_PAUSE_S)
        if self._jobs.current:
            due = min(due, self._job_at)
        if self._backoff.next_due < _NEVER:
            # What is due by itself may be what has to wait.
            due = min(max(due, now + _ROWS_PAUSE_S), self._backoff.next_due)
        return None if due == _NEVER else max(0.0, due - now)

    def repair(self, segment_id: int) -> None:
        """Reads a segment, and rewrites it where it is damaged; where that fails it is tried again later."""
        self._damaged.add(segment_id)
        self._attempt("repair", self._repair_damaged)

    def start_scrub(self, done: "Future[None]") -> None:
        """Reads everything, at full speed."""
        self._jobs.add(Job(name="scrub", begin=self._scrub, done=done))

    def start_compaction(
        self, report: Callable[[CompactionProgress], None], done: "Future[CompactionProgress]"
    ) -> None:
        """Compacts as much as there is."""
        self._jobs.add(Job(name="compaction", begin=partial(self._compact_all, report), done=done))

    def finish(self) -> None:
        """Writes what was committed, so that the next start has less to do."""
        self._attempt("writing", self._write)
        self._attempt("noting", self._flush)

    def close(self, error: MnemonError) -> None:
        """Ends what has begun; whoever waits for it gets the error."""
        self._jobs.close(error)
        self._drafts.close()

    def _attempt(self, name: str, chore: Callable[[], None]) -> bool:
        """Does something now, unless it failed a moment ago; says whether it was done."""
        if not self._backoff.is_due(name):
            return False
        try:
            self._store.settle()
            chore()
        except StorageFullError:
            problem = full_warning()
        except StorageFailedError as error:
            problem = failed_warning(str(error))
        except Exception:
            log.exception("%s failed", name)
            problem = failed_warning("of an unexpected error, which the log names")
        else:
            self._backoff.succeeded(name)
            self.health.clear(name)
            return True
        self._backoff.failed(name)
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
        now = self._monotonic()
        with self._lock:
            self._write_at = self._erase_at = now
        self._scrub_at = now
        self._has_surplus_rows = True

    def _count_loaded(self) -> None:
        self.loaded_count += 1

    def _write(self) -> None:
        """Writes what was committed, and seals what was rolled."""
        with self._lock:
            self._waiting_bytes, self._write_at = 0, _NEVER
        try:
            for row in self._unsealed():
                if not self._write_segment(row):
                    self._write_again()
        except BaseException:
            self._write_again()
            raise
        self._note_at = min(self._note_at, self._monotonic() + self._settings.note_interval_s)

    def _write_again(self) -> None:
        with self._lock:
            self._write_at = self._monotonic()

    def _write_segment(self, row: SegmentRow) -> bool:
        if row.state is SegmentState.OPEN:
            self._drafts.write(row)
            self._schedule_rolling(row)
            return True
        sealed = seal_segment(self._store, self._drafts, row)
        if sealed:
            self._has_surplus_rows = True
            self._add_compaction()
        return sealed

    def _unsealed(self) -> list[SegmentRow]:
        return [row for row in self._store.manifest.segments() if not row.is_sealed]

    def _schedule_rolling(self, row: SegmentRow) -> None:
        """A clock that was set back does not keep a segment open for longer than its age."""
        age_max = self._settings.segment_age_max_s
        age = (to_microseconds(self._clock()) - row.create_time_us) / 1e6
        self._roll_at = self._monotonic() + min(max(age_max - age, 0.0), age_max)

    def _roll_aged(self) -> None:
        self._roll_at = _NEVER
        self._roll_open()

    def _roll_open(self) -> None:
        for row in self._unsealed():
            if row.state is SegmentState.OPEN:
                self._store.manifest.roll(row.segment_id)
                self._write_again()

    def _flush(self) -> None:
        self._store.manifest.flush()
        self._note_at = _NEVER

    def _remove_rows(self) -> None:
        self._has_surplus_rows = self._store.manifest.delete_sealed_rows()

    # What takes long

    def _advance(self, job: Job) -> None:
        started = self._monotonic()
        if not self._attempt(f"{job.name} of segments", partial(self._take_step, job)):
            return
        spent = self._monotonic() - started
        self._job_at = started + spent / job.share_max if job.share_max < 1 else started

    def _take_step(self, job: Job) -> None:
        """The error of a job that somebody waits for is theirs alone."""
        try:
            if not job.advance():
                self._jobs.drop(job)
        except SegmentDamagedError as damage:
            # The job begins anew, once the segment is repaired.
            self._damaged.add((parse_segment_name(damage.name) or (0, 0))[0])
            self._repair_damaged()
        except Exception as error:
            if job.done is None:
                raise
            self._jobs.drop(job)
            job.fail(error)

    def _erase(self) -> None:
        """What was removed leaves the disk: an open segment is ended for that."""
        with self._lock:
            self._erase_at = _NEVER
        try:
            for row in self._unsealed():
                if row.state is SegmentState.OPEN and self._store.manifest.dead(row.segment_id):
                    self._store.manifest.roll(row.segment_id)
            self._write_again()
        except BaseException:
            self.note_pruned()
            raise
        self._add_compaction()

    def _add_compaction(self) -> None:
        share_max = self._settings.compaction_share_max
        self._jobs.add(Job(name="compaction", begin=self._compact_some, share_max=share_max))

    def _compact_some(self) -> Steps:
        yield from Compaction(self._store, self._settings, joined_min=self._settings.joined_min).run()

    def _compact_all(self, report: Callable[[CompactionProgress], None]) -> Steps:
        self._roll_open()
        self._write()
        yield
        compaction = Compaction(self._store, self._settings, joined_min=2, report=report)
        yield from compaction.run()
        return compaction.progress

    def _scrub(self) -> Steps:
        started = self._clock()
        yield from read_all(self._store, self.repair)
        if not self._damaged:
            self._store.manifest.commit(Change(scrub_time=started))

    def _repair_damaged(self) -> None:
        for segment_id in sorted(self._damaged):
            row = self._store.find(segment_id)
            if row is not None and row.is_sealed and self._repairer.repair(row):
                self.health.note_warned()
            self._damaged.discard(segment_id)
