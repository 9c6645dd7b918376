"""Power cuts and failing calls while segments are sealed, erased, merged or repaired."""

import errno
import json
import random
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from mnemon_server.domain.clock import to_microseconds
from mnemon_server.domain.errors import MnemonError
from mnemon_server.domain.events import PruneReason
from mnemon_server.engines.events import tables
from mnemon_server.engines.events.engine import EventRecords
from mnemon_server.engines.events.incoming import prepare
from mnemon_server.engines.events.reads import Reads
from mnemon_server.engines.events.upkeep import Upkeep
from mnemon_server.engines.events.writes import EventWrites, removal
from mnemon_server.engines.promises.events import EventWrite
from mnemon_server.engines.sqlite.change_log import SQLiteChangeLog
from mnemon_server.engines.sqlite.connections import Connections
from mnemon_server.engines.sqlite.journal import Journal
from mnemon_server.engines.vault_key import VaultKeyFile

from tests.contract.test_segments import PAGE, TOLD, damage_event, segments
from tests.contract.timeline_suite import ALL, SETTINGS, happening, told
from tests.contract.vault_suite import ManualClock
from tests.support.databases import content_of, files_below
from tests.support.faulty_disk import FaultyDisk

LONG = [pytest.mark.slow, pytest.mark.timeout(3_600)]
FEW = replace(SETTINGS, segment_events_max=6, joined_min=2, erase_delay_s=0.0)


@dataclass
class Promised:
    """The callers' knowledge."""

    stored: set[str] = field(default_factory=set)
    maybe_stored: set[str] = field(default_factory=set)
    """Their calls failed, or are running."""
    removed: set[str] = field(default_factory=set)
    maybe_removed: set[str] = field(default_factory=set)

    @property
    def surely_there(self) -> set[str]:
        return self.stored - self.removed - self.maybe_removed

    @property
    def possibly_there(self) -> set[str]:
        return (self.stored | self.maybe_stored) - self.removed


class Trial:
    """The events of a vault, whose upkeep runs when a test says so, on a clock of the test."""

    def __init__(self, folder: Path, promised: Promised | None = None, settings: Any = FEW) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.promised = folder, promised or Promised()
        self.clock, self.seconds = ManualClock(), 0.0
        journal = Journal(self.clock)
        keys = VaultKeyFile(folder)
        self.connections = Connections(folder / "records.db", keys)
        self.records = records = EventRecords(keys, journal, self.connections)
        self.upkeep = Upkeep(
            records.store,
            self.connections,
            journal,
            clock=self.clock,
            settings=settings,
            monotonic=lambda: self.seconds,
        )
        records.follower.listen(self.upkeep.appended, lambda sequences: self.upkeep.pruned())
        self.connections.open([records.follower, journal])
        self.changes = SQLiteChangeLog(journal, self.connections)
        removals = self.connections.removals
        self._writes = EventWrites(
            journal, records.catalogue, records.follower, removals, settings, self.upkeep.repair_soon
        )
        self.reads = Reads(records.catalogue, self.connections, self.upkeep.repair, 1_000)

    def close(self) -> None:
        self.upkeep.close()
        self.connections.close()

    def append(self, *numbers: int, context: str = "") -> None:
        for number in numbers:
            name = f"e{number:03}"
            event = prepare(EventWrite(happening(name, context=context), id_is_new=False))
            self.promised.maybe_stored.add(name)
            with suppress(MnemonError):
                self.connections.submit(lambda records, event=event: self._writes.append(records, [event])).result()
                self.promised.stored.add(name)

    def remove(self, *numbers: int) -> None:
        """Removes the events that are found."""
        names = [f"e{number:03}" for number in numbers]
        with suppress(MnemonError):
            found = [one for one in self.reads.get(names) if one]
            self.promised.maybe_removed.update(one.position.event_id for one in found)
            removals = [removal(one) for one in found]
            self.connections.submit(
                lambda records: self._writes.prune(records, removals, PruneReason.REQUESTED, None, None)
            ).result()
            self.promised.removed.update(one.position.event_id for one in found)

    def compact(self) -> None:
        with suppress(MnemonError):
            self.upkeep.compact(lambda progress: None)

    def run(self, turns: int = 4) -> None:
        """Runs what is due within a few seconds."""
        for _ in range(turns):
            self.upkeep.turn()
            self.seconds += 0.5

    def settle(self) -> None:
        """Lets minutes pass, so that all failed work is done again."""
        self.connections.recover()
        for _ in range(12):
            self.seconds += 40.0
            self.upkeep.turn()

    def found(self) -> set[str]:
        return {one.position.event_id for one in self.reads.window(ALL, limit=1_000).events}

    def lost(self) -> int:
        """The number of events reported as lost."""
        with self.connections.lend() as records:
            return sum(one.event_count for one in tables.lost_ranges(records))

    def told(self) -> list[str]:
        """The warnings in the feed, and that all is well again."""
        return [json.loads(change.details)["severity"] for change in told(self, *TOLD)]

    def check(self, losable: frozenset[str] = frozenset()) -> None:
        """Checks all promises, once the work is done. Lost events must be `losable` and reported."""
        found, promised = self.found(), self.promised
        missing = promised.surely_there - found
        assert missing <= losable and self.lost() == len(missing)
        assert found <= promised.possibly_there
        assert self.upkeep.failure() is None and self.records.store.holed() == []
        assert self.told()[-1:] in ([], ["info"])
        names = {row.file_name for row in self.records.store.rows() if row.is_sealed}
        assert {path.name for path in (self.folder / "timeline").glob("*")} == names


@contextmanager
def opened(folder: Path, promised: Promised | None = None, settings: Any = FEW) -> Iterator[Trial]:
    with closing(Trial(folder, promised, settings)) as trial:
        yield trial


def work(trial: Trial) -> None:
    """Seals, erases, merges, and deletes a segment without events."""
    trial.append(*range(1, 8))
    trial.run()
    trial.remove(2, 3, 4, 5)
    trial.run()
    trial.append(*range(8, 14))
    trial.remove(8)
    trial.run()
    trial.remove(9, 10)
    trial.run()
    trial.append(14)
    trial.compact()
    trial.remove(13, 14)
    trial.run()
    trial.append(15)
    trial.run()


def goes_on(folder: Path, promised: Promised, losable: frozenset[str] = frozenset()) -> None:
    """Opens a vault after a failure: all promises hold, and the work goes on."""
    with opened(folder, promised) as trial:
        trial.settle()
        trial.check(losable)
        trial.append(90, 91)
        trial.compact()
        trial.upkeep.scrub()
        trial.settle()
        trial.check(losable)
        assert promised.stored >= {"e090", "e091"}
    for path, content in files_below(folder, content_of):
        left = [name for name in promised.removed if f"content of {name}".encode() in content]
        assert not left, path.name


def after_power_cuts(disk: FaultyDisk, trial: Trial, seed: int) -> list[tuple[dict[str, bytes], Promised]]:
    """Gets what each power cut from now on would leave, with what was promised by then."""
    images: list[tuple[dict[str, bytes], Promised]] = []
    rng = random.Random(seed)
    disk.on_call = lambda: images.append((disk.left(rng), deepcopy(trial.promised)))
    return images


def restored(folder: Path, image: dict[str, bytes]) -> Path:
    for name, content in image.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize(("seed", "step"), [(1, 7), *(pytest.param(seed, 1, marks=LONG) for seed in range(2, 7))])
def test_a_power_cut_at_any_moment_loses_no_event_and_keeps_no_removed_one(
    tmp_path: Path, seed: int, step: int
) -> None:
    with FaultyDisk(tmp_path / "vault").used() as disk, opened(tmp_path / "vault") as trial:
        images = after_power_cuts(disk, trial, seed)
        work(trial)
        trial.settle()
        trial.check()
    assert len(images) > 60
    for number, (image, promised) in list(enumerate(images))[seed % step :: step]:
        goes_on(restored(tmp_path / str(number), image), promised)


# Failing calls


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize(("step", "failures"), [(97, 1), *(pytest.param(1, many, marks=LONG) for many in (1, 3, 20))])
def test_a_call_that_fails_at_any_time_loses_nothing(tmp_path: Path, error: int, step: int, failures: int) -> None:
    for at in range(1, 10_000, step):
        folder = tmp_path / str(at)
        with FaultyDisk(folder).used() as disk, opened(folder) as trial:
            disk.error, disk.fail_at, disk.failures = error, disk.calls + at, failures
            work(trial)
            is_reached = disk.calls >= disk.fail_at
            disk.heal()
            trial.settle()
            trial.check()
            assert len(trial.told()) <= 6
        goes_on(folder, trial.promised)
        if not is_reached:
            return
    pytest.fail("every run failed: the end was never reached")


def test_retries_become_rarer_while_the_disk_is_full_and_one_warning_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with FaultyDisk(tmp_path / "vault").used() as disk, opened(tmp_path / "vault") as trial:
        trial.run()
        disk.failing, disk.error = disk.folder / "timeline", errno.ENOSPC
        disk.calls, disk.fail_at, disk.failures = 0, 1, 10**9
        trial.append(*range(1, 8))
        tries = []
        for _ in range(600):
            before = disk.calls
            trial.seconds += 0.25
            trial.upkeep.turn()
            if disk.calls > before:
                tries.append(trial.seconds)
        assert [late - early for early, late in pairwise(tries)] == [1, 2, 4, 8, 16, 30, 30, 30]
        assert trial.told() == ["warning"] and "no space is left" in str(trial.upkeep.failure())
        assert len(caplog.records) <= len(tries)
        assert trial.found() == trial.promised.stored
        disk.heal()
        trial.settle()
        trial.check()
        assert trial.told() == ["warning", "info"]


@pytest.mark.parametrize("interval_s", [0.25, 5.0])
def test_a_warning_that_cannot_be_told_yet_is_told_once_however_often_it_returns(
    long_events: Trial, interval_s: float
) -> None:
    with FaultyDisk(long_events.folder).used() as disk, opened(long_events.folder, long_events.promised) as trial:
        trial.run()
        disk.failing = disk.folder / "records.db-wal"
        disk.calls, disk.fail_at, disk.failures = 0, 1, 1
        trial.seconds += SETTINGS.scrub_interval_s
        for _ in range(40):
            trial.upkeep.turn()
            trial.seconds += interval_s
        assert "nothing more is written" in str(trial.upkeep.failure()) and trial.told() == []
        trial.settle()
        trial.check()
        assert trial.told() == ["warning", "info"]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_replaced_file_that_cannot_be_deleted_is_told_hinders_nothing_and_goes_as_soon_as_it_can(
    long_events: Trial, error: int
) -> None:
    folder = long_events.folder
    with FaultyDisk(folder).used() as disk, opened(folder, long_events.promised) as trial:
        trial.run()
        disk.error, disk.failing = error, segments(folder)[1]
        disk.calls, disk.fail_at, disk.failures = 0, 1, 10**9
        trial.remove(7, 8)
        trial.append(*range(13, 20))
        for _ in range(4):
            trial.settle()
            assert trial.told() == ["warning"] and trial.upkeep.failure()
            assert trial.records.store.erasing_count == 2
        assert sum(row.event_count for row in trial.records.store.rows() if row.is_sealed) == 16
        disk.heal()
        trial.settle()
        trial.check()
        assert trial.told() == ["warning", "info"] and trial.records.store.erasing_count == 0
    goes_on(folder, trial.promised)


# Damage


@pytest.fixture
def long_events(tmp_path: Path) -> Trial:
    """A closed vault with two sealed segments, whose events take several pages."""
    with opened(tmp_path / "vault") as trial:
        trial.append(*range(1, 13), context="long " * 200)
        trial.run()
        trial.compact()
        trial.settle()
        trial.check()
    return trial


LOSABLE = frozenset(f"e{number:03}" for number in range(7, 13))
"""The events of the second segment."""


@pytest.mark.parametrize(("seed", "step"), [(1, 4), *(pytest.param(seed, 1, marks=LONG) for seed in range(2, 7))])
def test_a_power_cut_during_or_after_a_repair_loses_only_what_was_damaged(
    long_events: Trial, tmp_path: Path, seed: int, step: int
) -> None:
    folder = long_events.folder
    damage_event(segments(folder)[1])
    with FaultyDisk(folder).used() as disk, opened(folder, long_events.promised) as trial:
        images = after_power_cuts(disk, trial, seed)
        trial.settle()
        trial.check(LOSABLE)
        lost = trial.lost()
        trial.remove(*range(7, 13))
        trial.settle()
        trial.check(LOSABLE)
    assert 0 < lost < 6 < len(images)
    for number, (image, promised) in list(enumerate(images))[seed % step :: step]:
        goes_on(restored(tmp_path / str(number), image), promised, LOSABLE)
        with opened(tmp_path / str(number), promised) as trial:
            trial.run()
            assert trial.lost() == lost


def test_a_sector_that_cannot_be_read_costs_only_the_events_on_it(long_events: Trial) -> None:
    folder = long_events.folder
    path = segments(folder)[1]
    with FaultyDisk(folder).used() as disk, opened(folder, long_events.promised) as trial:
        disk.bad_sector = path.name, 4 * PAGE
        trial.settle()
        trial.check(LOSABLE)
        assert 0 < trial.lost() < 6 and trial.told() == ["critical", "info"]
        assert (folder / "quarantine" / path.name).exists()


def test_damage_is_found_and_told_within_a_day_though_nothing_reads_the_event(long_events: Trial) -> None:
    with opened(long_events.folder, long_events.promised) as trial:
        trial.run()
        damage_event(segments(trial.folder)[1])
        trial.seconds = SETTINGS.scrub_interval_s - 10
        trial.run()
        assert trial.told() == []
        trial.seconds = SETTINGS.scrub_interval_s
        trial.run()
        assert trial.told() == ["critical", "info"]
        trial.check(LOSABLE)


def test_a_check_of_all_segments_that_failed_is_repeated_soon(long_events: Trial) -> None:
    def checked() -> int | None:
        with trial.connections.lend() as records:
            return tables.scrub_time_us(records)

    with FaultyDisk(long_events.folder).used() as disk, opened(long_events.folder, long_events.promised) as trial:
        trial.run()
        assert checked() == to_microseconds(trial.clock())
        trial.clock.now += timedelta(days=1)
        trial.seconds += SETTINGS.scrub_interval_s
        disk.error, disk.fail_at, disk.failures = errno.ENOSPC, disk.calls + 1, 10**9
        trial.run()
        disk.heal()
        trial.settle()
        assert checked() == to_microseconds(trial.clock())
