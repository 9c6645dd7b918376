"""What the keeper of a timeline has to do, and when; each failure is told, and what failed is tried again."""

import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from mnemon_server.domain.clock import Clock, to_microseconds
from mnemon_server.domain.episodic import CompactionProgress
from mnemon_server.domain.errors import MnemonError, StorageFailedError, StorageFullError
from mnemon_server.engines.timeline.format.layout import SegmentDamagedError, parse_segment_name
from mnemon_server.engines.timeline.settings import TimelineSettings
from mnemon_server.engines.timeline.upkeep.active_files import Drafts
from mnemon_server.engines.timeline.upkeep.compaction import Compaction
from mnemon_server.engines.timeline.upkeep.health import KeeperHealth
from mnemon_server.engines.timeline.upkeep.long_tasks import Job, Jobs, Steps
from mnemon_server.engines.timeline.upkeep.manifest import Change, SegmentRow, SegmentState
from mnemon_server.engines.timeline.upkeep.recovery import load_index, tidy
from mnemon_server.engines.timeline.upkeep.repair import Repairer
from mnemon_server.engines.timeline.upkeep.schedule import Agenda
from mnemon_server.engines.timeline.upkeep.scrubbing import read_all
from mnemon_server.engines.timeline.upkeep.sealing import seal_segment
from mnemon_server.engines.timeline.upkeep.store import SegmentStore
from mnemon_server.engines.timeline.upkeep.warning_texts import failed_warning, full_warning, unrepaired_warning

log = logging.getLogger(__name__)

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
        self._damaged: set[int] = set()
        self._jobs = Jobs()
        self._waiting_bytes = 0
        self._agenda = Agenda(settings.retry_s, settings.retry_s_max, monotonic)
        self._chores: dict[str, Callable[[], object]] = {
            "repair": self._repair_damaged,
            "rolling": self._roll_open,
            "erasing": self._erase,
            "writing": self._write,
            "noting": self._store.manifest.flush,
            "rows": self._remove_rows,
            "scrub": self._add_scrub,
            "jobs": self._take_step,
        }
        """What is done in a turn, in this order; False says that it has yet to prove itself, after a failure."""

    # Any thread

    def note_appended(self, byte_count: int) -> bool:
        """Events were committed; says whether the keeper's thread has to be woken."""
        # Two threads may lose some of the sum: it only makes the next write sooner.
        self._waiting_bytes += byte_count
        is_full = self._waiting_bytes >= self._settings.sync_bytes
        return self._agenda.put("writing", 0.0 if is_full else self._settings.sync_interval_s)

    def note_pruned(self) -> None:
        """Events were removed."""
        self._agenda.put("erasing", self._settings.erase_delay_s)

    # The keeper's thread

    def warm_up(self) -> bool:
        """Loads the index, and repairs what cannot be loaded; False where records.db could not be read."""
        return self._attempt("loading", self._load)

    def turn(self) -> None:
        """Does what is due, and takes a step of what takes long."""
        for name, chore in self._chores.items():
            if self._agenda.is_due(name):
                self._attempt(name, chore)
        if self._agenda.is_due("telling") or (self.health.is_unsaid and not self._agenda.is_held("telling")):
            self._agenda.drop("telling")
            (self._agenda.succeeded if self.health.tell() else self._agenda.failed)("telling")

    def seconds_until_due(self) -> float | None:
        """How long there is nothing to do; None where only others can change that."""
        return self._agenda.seconds_until_due()

    def repair(self, segment_id: int) -> None:
        """Reads a segment, and rewrites it where it is damaged; where that fails it is tried again later."""
        self._damaged.add(segment_id)
        self._attempt("repair", self._repair_damaged)

    def start_scrub(self, done: "Future[None]") -> None:
        """Reads everything, at full speed."""
        self._add(Job(name="scrub", begin=self._scrub, done=done))

    def start_compaction(
        self, report: Callable[[CompactionProgress], None], done: "Future[CompactionProgress]"
    ) -> None:
        """Compacts as much as there is."""
        self._add(Job(name="compaction", begin=partial(self._compact_all, report), done=done))

    def finish(self) -> None:
        """Writes what was committed, where that does not take long, so that the next start has less to do."""
        self._attempt("writing", self._write_last)
        self._attempt("noting", self._store.manifest.flush)

    def close(self, error: MnemonError) -> None:
        """Ends what has begun; whoever waits for it gets the error."""
        self._jobs.close(error)
        self._drafts.close()

    def _attempt(self, name: str, chore: Callable[[], object]) -> bool:
        """Does something now, unless it failed a moment ago; says whether it was done."""
        if self._agenda.is_held(name):
            return False
        self._agenda.drop(name)
        try:
            self._store.settle()
            proved = chore()
        except StorageFullError:
            problem = full_warning()
        except StorageFailedError as error:
            problem = (unrepaired_warning if name == "repair" else failed_warning)(str(error))
        except Exception:
            log.exception("%s failed", name)
            problem = failed_warning("of an unexpected error, which the log names")
        else:
            if proved is not False:
                self._agenda.succeeded(name)
                self.health.clear(name)
            return True
        self._agenda.failed(name)
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
            self._agenda.put(name)

    def _count_loaded(self) -> None:
        self.loaded_count += 1

    def _write(self) -> None:
        """Writes what was committed, or seals one segment that was rolled: the next one is the next turn's."""
        self._waiting_bytes = 0
        rows = self._unsealed()
        for row in rows[:1]:
            if row.state is SegmentState.OPEN:
                self._drafts.write(row)
                self._agenda.put_off("rolling", self._seconds_to_live(row))
            elif seal_segment(self._store, self._drafts, row):
                self._agenda.put("rows")
                self._add_compaction()
        if any(row.state is SegmentState.ROLLED for row in rows):
            self._agenda.put("writing")
        self._agenda.put("noting", self._settings.note_interval_s)

    def _write_last(self) -> None:
        if all(row.state is SegmentState.OPEN for row in self._unsealed()):
            self._write()

    def _unsealed(self) -> list[SegmentRow]:
        return [row for row in self._store.manifest.segments() if not row.is_sealed]

    def _seconds_to_live(self, row: SegmentRow) -> float:
        """Until an open segment is old; a clock that was set back does not keep it open for longer than that."""
        age_max = self._settings.segment_age_max_s
        age = (to_microseconds(self._clock()) - row.create_time_us) / 1e6
        return min(max(age_max - age, 0.0), age_max)

    def _roll_open(self) -> list[SegmentRow]:
        """Ends the open segment; returns what is to be sealed now."""
        rows = self._unsealed()
        for row in rows:
            if row.state is SegmentState.OPEN:
                self._roll(row)
        return rows

    def _roll(self, row: SegmentRow) -> None:
        self._store.manifest.roll(row.segment_id)
        self._agenda.drop("rolling")
        self._agenda.put("writing")

    def _remove_rows(self) -> None:
        if self._store.manifest.delete_sealed_rows():
            self._agenda.put("rows", _ROWS_PAUSE_S)

    def _erase(self) -> None:
        """What was removed leaves the disk: an open segment is ended for that."""
        for row in self._unsealed():
            if row.state is SegmentState.OPEN and self._store.manifest.dead(row.segment_id):
                self._roll(row)
        self._add_compaction()

    def _repair_damaged(self) -> None:
        for segment_id in sorted(self._damaged):
            self._repair_segment(segment_id)

    def _repair_segment(self, segment_id: int) -> bool:
        """Whether there was anything to repair."""
        row = self._store.find(segment_id)
        was_damaged = row is not None and row.is_sealed and self._repairer.repair(row)
        if was_damaged:
            self.health.note_warned()
        self._damaged.discard(segment_id)
        return was_damaged

    # What takes long

    def _add(self, job: Job) -> None:
        self._jobs.add(job)
        self._agenda.put("jobs")

    def _take_step(self) -> bool:
        """A step of the current job; the error of a job that somebody waits for is theirs alone."""
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
                self._agenda.put("repair")
        if is_over:
            self._jobs.drop(job)
        spent = self._monotonic() - started
        if self._jobs.current:
            self._agenda.put("jobs", spent / job.share_max - spent)
        return is_over

    def _advance(self, job: Job) -> bool:
        """Takes a step; False where that was the last. What meets damage begins anew, once the segment is repaired."""
        try:
            return job.advance()
        except SegmentDamagedError as damage:
            segment_id = (parse_segment_name(damage.name) or (0, 0))[0]
            self._damaged.add(segment_id)
            if not self._repair_segment(segment_id):
                # It would be met again, and again.
                raise StorageFailedError(str(damage)) from damage
            return True

    def _add_compaction(self) -> None:
        share_max = self._settings.compaction_share_max
        self._add(Job(name="compaction", begin=self._compact_some, share_max=share_max))

    def _add_scrub(self) -> None:
        self._agenda.put("scrub", self._settings.scrub_interval_s)
        self._add(Job(name="scrub", begin=self._scrub, share_max=self._settings.scrub_share_max))

    def _compact_some(self) -> Steps:
        yield from Compaction(self._store, self._settings, joined_min=self._settings.joined_min).run()

    def _compact_all(self, report: Callable[[CompactionProgress], None]) -> Steps:
        # What is recorded from now on begins a segment of its own, which may stay open for as long as it likes.
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
        # A vault without a timeline is not written to for it.
        if not self._damaged and self._store.manifest.segments():
            self._store.manifest.commit(Change(scrub_time=started))
