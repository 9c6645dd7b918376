"""The maintenance of the timeline: seals segments, rewrites those with removed events, merges small ones, and finds and
repairs damage. Failures are reported by `failure` and in the feed, and are retried.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import apsw

from mnemon_server.domain.clock import Clock, to_microseconds
from mnemon_server.domain.errors import (
    NotServingError,
    RecordDamagedError,
    StorageFailedError,
    StorageFullError,
)
from mnemon_server.domain.events import CompactionProgress
from mnemon_server.domain.records import INT64_MAX
from mnemon_server.engines.allocator import release_free_memory
from mnemon_server.engines.events import tables
from mnemon_server.engines.events.health import MaintenanceHealth
from mnemon_server.engines.events.schedule import Schedule
from mnemon_server.engines.events.segment_files import SegmentDamagedError
from mnemon_server.engines.events.segments import Group, SegmentStore
from mnemon_server.engines.events.settings import EventEngineSettings
from mnemon_server.engines.events.tables import SegmentRow, SegmentState
from mnemon_server.engines.events.warning_texts import failed_warning, full_warning, unrepaired_warning
from mnemon_server.engines.sqlite.connections import Connections
from mnemon_server.engines.sqlite.journal import Journal
from mnemon_server.engines.turns import next_turn

_LOOK_S = 0.2
"""The delay between storing events and checking whether to seal their segment."""
_ROWS_PAUSE_S = 0.01
"""Pause between two steps of deleting rows, so that other writes get their turn."""

log = logging.getLogger(__name__)

T = TypeVar("T")


class Upkeep:
    """One thread that runs the tasks that are due. Other threads may ask for a task, and run it themselves, when the
    thread has ended its own. Any thread may call any method.
    """

    def __init__(
        self,
        store: SegmentStore,
        connections: Connections,
        journal: Journal,
        *,
        clock: Clock,
        settings: EventEngineSettings,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Does nothing yet. The clock is for the age of segments and the time of losses."""
        self.store = store
        self._connections = connections
        self._clock = clock
        self._settings = settings
        self._monotonic = monotonic
        self._health = MaintenanceHealth(
            lambda warning: connections.submit(lambda records: tables.note_health(records, journal, warning)).result()
        )
        self._schedule = Schedule(settings.retry_s, settings.retry_s_max, monotonic)
        self._tasks: dict[str, Callable[[], object]] = {
            "repair": self._repair_damaged,
            "sealing": self._seal_next,
            "rows": self._remove_rows,
            "erasing": self._erase_next,
            "joining": self._join_next,
            "clearing": self._clear_files,
            "scrub": self._scrub_next,
        }
        """The tasks in order of their urgency. A task that returns False does not count as recovered yet."""
        self._damaged: set[str] = set()
        self._scrubbing: Iterator[None] | None = None
        self._changing = threading.RLock()
        """Held while segments change."""
        self._wake, self._warm, self._closing = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="timeline-upkeep", daemon=True)
        self.loaded_count = 0
        """The number of segments that were read since the start."""

    # For any thread

    def start(self) -> None:
        """Starts the thread, which first reads the summaries of all segments."""
        self._thread.start()

    @property
    def is_warm(self) -> bool:
        """Whether the summaries are read."""
        return self._warm.is_set()

    def wait_until_warm(self, timeout_s: float) -> bool:
        """Waits until they are, or the timeout ends; returns `is_warm`."""
        return self._warm.wait(timeout_s)

    def failure(self) -> str | None:
        """The current problem with the files, as a sentence; None without a problem."""
        return self._health.failure()

    def appended(self) -> None:
        """Must be called after a commit of events."""
        if self._schedule.put("sealing", _LOOK_S):
            self._wake.set()

    def pruned(self) -> None:
        """Must be called after a commit of removals."""
        self._schedule.put("erasing", self._settings.erase_delay_s)
        self._schedule.put("sealing", _LOOK_S)
        self._wake.set()

    def repair(self, name: str) -> None:
        """Has a segment read whose file has this name, and rewritten if it is damaged; returns when that is done.

        If the new file cannot be written, `failure` says so, and intact events are read from memory.
        """
        with self._changing:
            if self.store.find(name) is not None:
                self._damaged.add(name)
                self._attempt("repair")

    def repair_soon(self, name: str) -> None:
        """Like `repair`, without waiting."""
        self._damaged.add(name)
        self._schedule.put("repair")
        self._wake.set()

    def scrub(self) -> None:
        """Reads all segments, and repairs damage; returns when that is done. Raises the same errors as `compact`."""
        for _ in self._scrubbed():
            self._require_open()

    def compact(self, report: Callable[[CompactionProgress], None]) -> CompactionProgress:
        """Seals the open segment, rewrites segments with removed events, and merges small ones. Calls `report` on the
        way, and returns the final progress.

        Raises:
            NotServingError: the timeline is closing.
            StorageFullError: the disk is full.
            StorageFailedError: the disk failed.
        """
        done = reclaimed = 0
        # Events that are recorded from now on are left to the next compaction.
        last = max((row.segment_id for row in self.store.rows()), default=0)
        self._step(self._roll_open)
        while self._step(partial(self._seal_one, last)):
            self._require_open()
        while True:
            self._require_open()
            groups = self.store.groups(self._settings, count_min=2, last=last)
            progress = CompactionProgress(
                processed_bytes=done,
                total_bytes=done + sum(segment.row.byte_count for group in groups for segment in group),
                segment_count=len(self.store.rows()),
                reclaimed_bytes=reclaimed,
                done=not groups,
            )
            report = _told(report, progress)
            if not groups:
                return progress
            before, after = self._step(partial(self._rewrite_first, last))
            done += before
            reclaimed += max(0, before - after)

    def close(self) -> None:
        """Stops the thread. Further calls have no effect."""
        self._closing.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()
        with self._changing:
            self.store.files.close()

    def _require_open(self) -> None:
        if self._closing.is_set():
            raise NotServingError("the timeline is closing")

    def _step(self, step: Callable[[], T]) -> T:
        """Runs a step for a caller who waits. If it finds damage, the segment is repaired, and the step repeated."""
        with self._changing:
            self._settle()
            try:
                return step()
            except SegmentDamagedError as damage:
                self.repair(damage.name)
                if self.store.find(damage.name) is not None:
                    # The step would run into it forever.
                    raise StorageFailedError(str(damage)) from damage
            return step()

    # The thread

    def _run(self) -> None:
        while next_turn(self._wake, self._closing):
            self.turn()
            self._wake.wait(self._schedule.seconds_until_due())

    def turn(self) -> None:
        """Runs the tasks that are due, the first of which reads the summaries of all segments."""
        if not self.is_warm and self._attempt("loading"):
            self._warm.set()
        for name in self._tasks if self.is_warm else ():
            if self._schedule.is_due(name) and not self._closing.is_set():
                self._attempt(name)
        if self._schedule.is_due("telling") or (self._health.is_unsaid and not self._schedule.is_held("telling")):
            self._schedule.drop("telling")
            (self._schedule.succeeded if self._health.tell() else self._schedule.failed)("telling")

    def _attempt(self, name: str) -> bool:
        """Runs a task, unless it failed recently; returns whether it succeeded."""
        if self._schedule.is_held(name):
            return False
        self._schedule.drop(name)
        task = self._load if name == "loading" else self._tasks[name]
        try:
            with self._changing:
                self._settle()
                proved = task()
        except SegmentDamagedError as damage:
            log.warning("%s", damage)
            self.repair_soon(damage.name)
            # Not a problem to report: the repair reports it. But it may find nothing.
            self._schedule.failed(name)
            return False
        except StorageFullError:
            problem = full_warning()
        except StorageFailedError as error:
            problem = (unrepaired_warning if name == "repair" else failed_warning)(str(error))
        except (RecordDamagedError, apsw.Error) as error:
            problem = failed_warning(str(error))
        except Exception:
            log.exception("%s failed", name)
            problem = failed_warning("of an unexpected error; see the log")
        else:
            if proved is not False:
                self._schedule.succeeded(name)
                self._health.clear(name)
            return True
        self._schedule.failed(name)
        self._health.report(name, problem)
        return False

    def _settle(self) -> None:
        """Brings the files in line with records.db after a failure whose outcome was unknown."""
        if self.store.is_unsettled:
            self._tidy()

    def _tidy(self) -> list[StorageFullError | StorageFailedError]:
        """Cleans up the files. Files that cannot be deleted are left to a separate task, since they hinder no other."""
        errors = self.store.tidy(spared=self._damaged)
        if errors:
            self._schedule.put("clearing")
        return errors

    def _clear_files(self) -> None:
        if errors := self._tidy():
            raise errors[0]

    def _load(self) -> None:
        self._health.load(is_warned=self.store.is_warned())
        self.loaded_count = 0
        for segment in self.store.sealed():
            if not self.store.load(segment.row):
                self._damaged.add(segment.row.file_name)
            self.loaded_count += 1
        # Unsealed segments need no summary.
        self.loaded_count = len(self.store.rows())
        self._tidy()
        if self._damaged:
            self._attempt("repair")
        for name in ("sealing", "rows", "erasing", "scrub"):
            self._schedule.put(name)

    # Sealing

    def _seal_next(self) -> None:
        """Seals a segment that receives no more events. Further ones are left to the next turns."""
        opened = next((row for row in self.store.rows() if row.state is SegmentState.OPEN), None)
        if opened is not None and self._seconds_to_live(opened) == 0:
            self._roll_open()
        if self._seal_one():
            self._schedule.put("sealing")
            self._schedule.put("rows")
            self._schedule.put("joining")
        elif opened is not None:
            self._schedule.put("sealing", self._seconds_to_live(opened))

    def _seal_one(self, last: int = INT64_MAX) -> bool:
        """Seals the first segment up to `last` that receives no more events; returns False without one."""
        rows = (row for row in self.store.rows() if row.segment_id <= last)
        rolled = next((row for row in rows if row.state is SegmentState.ROLLED), None)
        if rolled is not None:
            self.store.seal(rolled)
        return rolled is not None

    def _roll_open(self) -> None:
        self.store.commit(tables.roll_open)

    def _seconds_to_live(self, row: SegmentRow) -> float:
        """Seconds until an open segment is too old. A clock that was set back does not prolong this."""
        age_max = self._settings.segment_age_max_s
        age = (to_microseconds(self._clock()) - row.create_time_us) / 1e6
        return min(max(age_max - age, 0.0), age_max)

    def _remove_rows(self) -> None:
        with self._connections.lend() as records:
            sealed = tables.sealed_events(records)
        if sealed:
            self.store.commit(lambda records: tables.delete_events(records, sealed))
            self._schedule.put("rows", _ROWS_PAUSE_S)

    # Rewriting

    def _erase_next(self) -> None:
        """Rewrites a segment without its removed events."""
        self._rewrite_next("erasing", [[segment] for segment in self.store.holed()])

    def _join_next(self) -> None:
        """Merges a run of small segments."""
        self._rewrite_next("joining", self.store.joinable(self._settings, count_min=self._settings.joined_min))

    def _rewrite_next(self, name: str, groups: Sequence[Group]) -> None:
        if groups:
            started = self._monotonic()
            self.store.rewrite(groups[0])
            self._pause(name, started, self._settings.rewriting_share_max)

    def _rewrite_first(self, last: int) -> tuple[int, int]:
        """Rewrites the first of the groups up to a segment; returns its bytes before and after."""
        groups = self.store.groups(self._settings, count_min=2, last=last)
        if not groups:
            return 0, 0
        return sum(segment.row.byte_count for segment in groups[0]), self.store.rewrite(groups[0])

    def _pause(self, name: str, started: float, share_max: float) -> None:
        """Schedules the next step of a task so that it takes no more than a share of the time."""
        spent = self._monotonic() - started
        self._schedule.put(name, spent / share_max - spent)

    # Damage

    def _repair_damaged(self) -> None:
        for name in sorted(self._damaged):
            row = self.store.find(name)
            if row is not None and self.store.repair(row, self._clock()):
                self._health.note_warned()
            self._damaged.discard(name)

    def _scrub_next(self) -> bool:
        """Reads the next segment; returns whether it was the last. A problem ends only then, since it may be the end of
        a scrub that fails each time.
        """
        started = self._monotonic()
        # After a failure it starts again.
        scrubbing, self._scrubbing = self._scrubbing or self._scrubbed(), None
        for _ in scrubbing:
            self._scrubbing = scrubbing
            self._pause("scrub", started, self._settings.scrub_share_max)
            return False
        self._schedule.put("scrub", self._settings.scrub_interval_s)
        return True

    def _scrubbed(self) -> Iterator[None]:
        """Reads every sealed segment, one per step, and repairs damaged ones."""
        started = self._clock()
        sealed = [row for row in self.store.rows() if row.is_sealed]
        for row in sealed:
            self.repair(row.file_name)
            yield
        if sealed:
            # The C library would keep what was read for this.
            release_free_memory()
        # Do not write to a vault that has no timeline.
        if not self._damaged and self.store.rows():
            self.store.commit(lambda records: tables.set_scrub_time(records, to_microseconds(started)))


def _told(
    report: Callable[[CompactionProgress], None], progress: CompactionProgress
) -> Callable[[CompactionProgress], None]:
    """Reports progress; returns what to report the next progress to."""
    try:
        report(progress)
    except Exception:
        log.warning("the progress of the compaction can no longer be reported; it continues", exc_info=True)
        return lambda _: None
    return report
