"""A timeline without records.db and without a thread: its maintenance does what is due when told to, step by step."""

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from mnemon_server.domain.errors import MnemonError, StorageFailedError
from mnemon_server.domain.events import CompactionProgress, Event, LostRange
from mnemon_server.domain.records import Scope
from mnemon_server.engines.events.format.files import ReadFile
from mnemon_server.engines.events.format.layout import SegmentDamagedError
from mnemon_server.engines.events.index.event_rows import event_row
from mnemon_server.engines.events.index.index import TimelineIndex
from mnemon_server.engines.events.index.rows import NO_OFFSET, EventRef, EventRow
from mnemon_server.engines.events.index.selection import Selection
from mnemon_server.engines.events.settings import EventEngineSettings
from mnemon_server.engines.events.upkeep.maintenance_thread import MaintenanceThread
from mnemon_server.engines.events.upkeep.manifest import Change, SegmentRow, SegmentState, SyncedFile
from mnemon_server.engines.events.upkeep.store import file_name
from mnemon_server.engines.file_errors import translated
from mnemon_server.engines.promises.events import EventsWarning
from mnemon_server.wire.events import encode

from tests.support.faulty_files import FaultyFiles, Operation

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
SETTINGS = EventEngineSettings(
    segment_events_max=4,
    segment_age_max_s=3_600.0,
    sync_interval_s=0.0,
    note_interval_s=0.0,
    erase_delay_s=0.0,
    joined_min=1_000,
    compaction_share_max=1.0,
    scrub_share_max=1.0,
)
"""Everything is done at once, and nothing is joined unasked."""


class TrialClocks:
    """The time of day, and the monotonic seconds."""

    def __init__(self) -> None:
        self.now = START
        self.seconds = 1_000.0

    def pass_time(self, seconds: float) -> None:
        """Moves both forward."""
        self.now += timedelta(seconds=seconds)
        self.seconds += seconds


class MemoryManifest:
    """See Manifest. Kept in memory and durable once committed. `fail` may refuse a commit."""

    def __init__(self) -> None:
        self.epoch = bytes(range(16))
        self.list: dict[int, SegmentRow] = {}
        self.rows: dict[int, tuple[int, bytes]] = {}
        self.marks: set[tuple[int, int]] = set()
        self.lost: list[LostRange] = []
        self.notes: list[EventsWarning | None] = []
        self.scrub_time: datetime | None = None
        self.last_sequence = 0
        self.noted: dict[int, SyncedFile] = {}
        self.flushes = 0
        self.before_commit: Callable[[Change], MnemonError | None] = lambda change: None
        self.after_commit: Callable[[Change], None] = lambda change: None

    def is_warned(self) -> bool:
        return bool(self.notes) and self.notes[-1] is not None

    def segments(self) -> list[SegmentRow]:
        return [self.list[segment_id] for segment_id in sorted(self.list)]

    def bodies(self, segment_id: int, after: int) -> list[tuple[int, bytes]]:
        found = [(one, body) for one, (owner, body) in sorted(self.rows.items()) if owner == segment_id and one > after]
        return found[:3]

    def index_rows(self, segment_id: int) -> Iterator[Sequence[EventRow]]:
        after = 0
        while run := self.bodies(segment_id, after):
            yield [event_row(sequence, body) for sequence, body in run]
            after = run[-1][0]

    def dead(self, segment_id: int) -> list[int]:
        return sorted(sequence for owner, sequence in self.marks if owner == segment_id)

    def dead_counts(self) -> dict[int, int]:
        return dict(Counter(owner for owner, _ in self.marks))

    def note_synced(self, synced: SyncedFile) -> None:
        self.noted[synced.segment_id] = synced

    def flush(self) -> None:
        if self.noted:
            self.flushes += 1
            self.commit(Change())

    def roll(self, segment_id: int) -> None:
        row = self.list[segment_id]
        if row.state is SegmentState.OPEN:
            self.list[segment_id] = row._replace(state=SegmentState.ROLLED)

    def commit(self, change: Change) -> None:
        if (error := self.before_commit(change)) is not None:
            raise error
        for synced in [*self.noted.values(), *([change.synced] if change.synced else [])]:
            self._note(synced)
        self.noted.clear()
        self.marks -= {(owner, one) for owner, erased in change.erased.items() for one in erased}
        for segment_id in change.dropped:
            del self.list[segment_id]
        moved = {(owner, one) for owner, one in self.marks if owner in change.dropped}
        self.marks -= moved
        if change.joined_into is not None:
            self.marks |= {(change.joined_into, one) for _, one in moved}
        self.list |= {row.segment_id: row for row in change.put}
        self.lost += change.lost
        self.notes += [change.warning] if change.warning else []
        self.notes += [None] if change.healthy else []
        self.scrub_time = change.scrub_time or self.scrub_time
        self.after_commit(change)

    def delete_sealed_rows(self) -> bool:
        sealed = [one for one, (owner, _) in sorted(self.rows.items()) if self._is_sealed(owner)]
        for sequence in sealed[:2]:
            del self.rows[sequence]
        return len(sealed) > 2

    def add(self, body: bytes, limit: int, now: datetime) -> tuple[int, int]:
        """Commits an event. Returns its sequence and segment."""
        self.last_sequence += 1
        sequence = self.last_sequence
        row = next((row for row in self.list.values() if row.state is SegmentState.OPEN), None)
        if row is not None and row.event_count >= limit:
            self.roll(row.segment_id)
            row = None
        if row is None:
            created = int(now.timestamp() * 1e6)
            row = SegmentRow(sequence, 1, SegmentState.OPEN, sequence, sequence, 0, 0, created)
        self.list[row.segment_id] = row._replace(last_sequence=sequence, event_count=row.event_count + 1)
        self.rows[sequence] = row.segment_id, body
        return sequence, row.segment_id

    def remove(self, sequences: Sequence[int]) -> None:
        """Commits a removal."""
        for sequence in sequences:
            self.rows.pop(sequence, None)
            owner = max(one for one in self.list if one <= sequence)
            self.marks.add((owner, sequence))

    def _note(self, synced: SyncedFile) -> None:
        row = self.list.get(synced.segment_id)
        if row is not None and not row.is_sealed:
            self.list[row.segment_id] = row._replace(**synced._asdict())

    def _is_sealed(self, segment_id: int) -> bool:
        return segment_id not in self.list or self.list[segment_id].is_sealed


class StoppedError(BaseException):
    """The process was killed."""


class TrialFiles(FaultyFiles):
    """Files of a process that may be killed, on a disk with some unreadable bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.stop_at: int | None = None
        """The process is killed before its change of this number, counted from 1."""
        self.changes = 0
        self.bad_bytes: dict[str, range] = {}
        """By file, bytes that cannot be read."""
        self.unopenable: dict[str, int] = {}
        """By file, the error number with which it cannot be opened for reading."""
        self.rotten: dict[str, int] = {}
        """By file, a byte that is another on the disk than in memory."""
        self.bad_cached: dict[str, int] = {}
        """By file, a byte that is another in memory than on the disk."""

    def check(self, operation: Operation) -> None:
        """Refuses any operation once the process is dead."""
        if operation != "pread":
            self.changes += 1
        if self.stop_at is not None and self.changes >= self.stop_at:
            raise StoppedError
        super().check(operation)

    def open_read(self, name: str, *, uncached: bool = False) -> ReadFile:
        if (error := self.unopenable.get(name)) is not None:
            with translated("open", name):
                raise OSError(error, os.strerror(error))
        rotten = (self.rotten if uncached else self.bad_cached).get(name)
        return _TrialReadFile(super().open_read(name, uncached=uncached), self.bad_bytes.get(name, range(0)), rotten)


class _TrialReadFile:
    def __init__(self, file: ReadFile, unreadable: range, rotten: int | None) -> None:
        self._file = file
        self._unreadable = unreadable
        self._rotten = rotten

    def pread(self, size: int, offset: int) -> bytes:
        if offset < self._unreadable.stop and self._unreadable.start < offset + size:
            raise StorageFailedError("the disk failed")
        data = bytearray(self._file.pread(size, offset))
        if self._rotten is not None and offset <= self._rotten < offset + len(data):
            data[self._rotten - offset] ^= 1
        return bytes(data)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


@dataclass(slots=True)
class Trial:
    """A timeline, its acknowledged events, and the ways in which it can end."""

    settings: EventEngineSettings
    clocks: TrialClocks
    files: TrialFiles
    quarantine: FaultyFiles
    manifest: MemoryManifest
    index: TimelineIndex
    maintenance: MaintenanceThread
    expected: dict[int, bytes]
    """What must be there, by sequence."""
    context: str = ""
    """Of the events to come; it makes them longer."""

    @classmethod
    def begin(cls, settings: EventEngineSettings = SETTINGS, files: TrialFiles | None = None) -> "Trial":
        """An empty timeline that is warm."""
        clocks, manifest = TrialClocks(), MemoryManifest()
        files, quarantine = files or TrialFiles(), FaultyFiles()
        parts = open_maintenance(settings, clocks, files, quarantine, manifest)
        trial = cls(settings, clocks, files, quarantine, manifest, *parts, {})
        trial.run()
        return trial

    def append(self, count: int, *, at: datetime | None = None) -> list[int]:
        """Commits events. Returns their sequences."""
        return [self.append_one(at or START + timedelta(minutes=7 * number)) for number in range(count)]

    def append_one(self, at: datetime) -> int:
        """Commits an event."""
        number = self.manifest.last_sequence + 1
        scope = Scope(user=f"u{number % 2}")
        event = Event(f"e{number}", "task", at, content=content_of(number), context=self.context, scope=scope)
        body = encode(event)
        sequence, segment_id = self.manifest.add(body, self.settings.segment_events_max, self.clocks.now)
        if segment_id == sequence:
            self.index.add_open(segment_id)
        self.index.append(segment_id, [event_row(sequence, body)])
        self.expected[sequence] = body
        self.maintenance.appended(len(body))
        return sequence

    def remove(self, *sequences: int) -> None:
        """Commits a removal."""
        self.manifest.remove(sequences)
        self.index.mark_dead(sequences)
        for sequence in sequences:
            del self.expected[sequence]
        self.maintenance.pruned()

    def run(self, turns_max: int = 2_000) -> None:
        """Lets the maintenance thread do all that is due."""
        for _ in range(turns_max):
            self.maintenance.turn()
            due = self.maintenance.tasks.seconds_until_due()
            if due is None or due > 0.02:
                return
            self.clocks.pass_time(due)
        raise AssertionError("the maintenance thread does not come to an end")

    def seal_all(self) -> None:
        """Seals all segments."""
        for row in self.manifest.segments():
            self.manifest.roll(row.segment_id)
        self.maintenance.appended(0)
        self.run()

    def compact(self, report: Callable[[CompactionProgress], None] = lambda progress: None) -> CompactionProgress:
        """Compacts as a caller would request it."""
        done = Future[CompactionProgress]()
        self.maintenance.tasks.start_compaction(report, done)
        self.run()
        return done.result(0)

    def scrub(self) -> None:
        """Checks all files as a caller would request it."""
        done = Future[None]()
        self.maintenance.tasks.start_scrub(done)
        self.run()
        done.result(0)

    def reopen(self, *, run: bool = True) -> None:
        """Ends the process as if it were killed, and starts a new one."""
        self.manifest.noted.clear()
        parts = open_maintenance(self.settings, self.clocks, self.files, self.quarantine, self.manifest)
        self.index, self.maintenance = parts
        if run:
            self.run()

    def crash(self, rng: random.Random) -> None:
        """The power fails and returns."""
        self.files.crash(rng)
        self.quarantine.crash(rng)

    def crash_and_reopen(self, seed: int) -> None:
        """Both a crash and a reopening."""
        self.crash(random.Random(seed))
        self.reopen()

    def found(self) -> dict[int, bytes]:
        """What a reader gets, by sequence. Damage that it finds is repaired, as it is for real readers."""
        for _ in range(10):
            bodies: dict[int, bytes] = {}
            damaged = False
            for ref in self.index.page(Selection(), limit=10_000):
                try:
                    bodies[ref.sequence] = self._body(ref)
                except (SegmentDamagedError, StorageFailedError):
                    self.maintenance.tasks.repair(ref.segment_id)
                    damaged = True
                    break
            if not damaged:
                return bodies
        raise AssertionError("a segment stays damaged")

    def name_of(self, segment_id: int) -> str:
        """The file of a segment."""
        return file_name(self.manifest.list[segment_id])

    @property
    def lost(self) -> list[tuple[int, int, int]]:
        """First and last sequence, and count, of each range that is recorded as lost."""
        return [(run.first_sequence, run.last_sequence, run.event_count) for run in self.manifest.lost]

    @property
    def severities(self) -> list[str]:
        """The severity of each warning in the feed, and "healthy"."""
        return [note.severity if note else "healthy" for note in self.manifest.notes]

    def check(self) -> None:
        """Checks that acknowledged events are stored, removed ones are not, and no unexpected file exists."""
        assert self.found() == self.expected
        assert set(self.files.names()) == {file_name(row) for row in self.manifest.segments()}
        assert self.removed_in_files() == []

    def removed_in_files(self) -> list[int]:
        """Removed events whose text is still in a file."""
        removed = [one for one in range(1, self.manifest.last_sequence + 1) if one not in self.expected]
        contents = [self.files.content(name) for name in self.files.names()]
        return [one for one in removed if any(content_of(one).encode() in content for content in contents)]

    def damage(self, segment_id: int, offset: int, *, bit: int = 0) -> None:
        """Flips a bit of a segment's file on disk."""
        name = self.name_of(segment_id)
        content = bytearray(self.files.content(name))
        content[offset] ^= 1 << bit
        self.files.put(name, bytes(content))

    def span(self, sequence: int) -> tuple[int, int]:
        """The start and end of the frame of an event in a sealed segment."""
        owner = max(one for one in self.manifest.list if one <= sequence)
        offsets = {ref.sequence: ref.offset for ref in self.index.page(Selection(), limit=10_000)}
        frame = self.maintenance.store.readers.get(self.name_of(owner)).read(offsets[sequence])
        return frame.offset, frame.end

    def _body(self, ref: EventRef) -> bytes:
        if ref.offset == NO_OFFSET:
            return self.manifest.rows[ref.sequence][1]
        frame = self.maintenance.store.readers.get(self.name_of(ref.segment_id)).read(ref.offset)
        assert frame.sequence == ref.sequence
        return frame.body


def content_of(sequence: int) -> str:
    """The text of an event."""
    return f"what {sequence} was"


def open_maintenance(
    settings: EventEngineSettings,
    clocks: TrialClocks,
    files: FaultyFiles,
    quarantine: FaultyFiles,
    manifest: MemoryManifest,
    *,
    monotonic: Callable[[], float] | None = None,
) -> tuple[TimelineIndex, MaintenanceThread]:
    """The maintenance of these, and the index that it fills. Its seconds are those of the clocks unless given."""
    index = TimelineIndex()
    maintenance = MaintenanceThread(
        files=files,
        quarantine=quarantine,
        manifest=manifest,
        index=index,
        clock=lambda: clocks.now,
        settings=settings,
        monotonic=monotonic or (lambda: clocks.seconds),
    )
    return index, maintenance
