"""The sealed segments in files and in records.db, and the changes that keep both consistent.

A new file is complete and synced before records.db refers to it, and an old file is deleted after that. So a power
failure can only leave files that records.db does not refer to.
"""

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeAlias, TypeVar

import apsw
import numpy as np

from mnemon_server.domain.backup import RECORDS
from mnemon_server.domain.errors import RecordDamagedError, StorageFailedError, StorageFullError
from mnemon_server.domain.events import LostRange
from mnemon_server.domain.records import INT64_MAX
from mnemon_server.engines.events import tables
from mnemon_server.engines.events.catalogue import Catalogue, SealedSegment
from mnemon_server.engines.events.segment_files import (
    DRAFT_SUFFIX,
    Draft,
    SegmentDamagedError,
    SegmentFiles,
    Summary,
    damage_of,
)
from mnemon_server.engines.events.settings import EventEngineSettings
from mnemon_server.engines.events.tables import SegmentRow
from mnemon_server.engines.events.warning_texts import repaired_warning
from mnemon_server.engines.promises.events import Sequences
from mnemon_server.engines.sqlite.connections import Connections
from mnemon_server.engines.sqlite.journal import Journal
from mnemon_server.engines.sqlite.query import ids_from_text, runs_of
from mnemon_server.engines.vault_key import VaultKeyFile

Group: TypeAlias = list[SealedSegment]
"""Neighbouring segments that become one."""

_NOTHING: Sequences = np.empty(0, np.int64)
_NAME = re.compile(r"(\d{20})-(\d{4,})\.segment")

T = TypeVar("T")

log = logging.getLogger(__name__)


class SegmentStore:
    """The segments. One thread at a time may change them; any thread may call the methods that read."""

    def __init__(self, files: SegmentFiles, catalogue: Catalogue, connections: Connections, journal: Journal) -> None:
        """Reads nothing yet."""
        self.files = files
        self.catalogue = catalogue
        self._connections = connections
        self._journal = journal
        self.is_unsettled = False
        """Whether a change is running, or `tidy` must clean up after a failed one."""
        self.erasing_count = 0
        """The number of removed events in files that records.db no longer refers to, but that still exist."""

    # Reads

    def rows(self) -> list[SegmentRow]:
        """All segments, ascending."""
        with self._connections.lend() as records:
            return tables.segments(records)

    def sealed(self) -> tuple[SealedSegment, ...]:
        """The sealed segments, ascending."""
        with self._connections.lend() as records:
            return self.catalogue.at(records).segments

    def find(self, name: str) -> SegmentRow | None:
        """The segment whose file has this name, if there is one."""
        return next((row for row in self.rows() if row.is_sealed and row.file_name == name), None)

    def is_warned(self) -> bool:
        """Whether the feed's last entry about the timeline's health is a warning."""
        with self._connections.lend() as records:
            return tables.is_warned(records)

    def holed(self) -> list[SealedSegment]:
        """The segments with removed events in their files."""
        return [segment for segment in self.sealed() if len(segment.dead)]

    def joinable(self, settings: EventEngineSettings, *, count_min: int, last: int = INT64_MAX) -> list[Group]:
        """Runs of at least `count_min` neighbours up to a segment, each less than half full, that fit into one."""
        runs: list[Group] = []
        run: Group = []
        for segment in self.sealed():
            is_small = segment.row.segment_id <= last and _fits([segment, segment], settings)
            if not is_small or not _fits([*run, segment], settings):
                runs.append(run)
                run = []
            if is_small:
                run.append(segment)
        return [run for run in [*runs, run] if len(run) >= count_min]

    def groups(self, settings: EventEngineSettings, *, count_min: int, last: int) -> list[Group]:
        """All segments to rewrite up to one: runs of small neighbours, and those with removed events."""
        runs = self.joinable(settings, count_min=count_min, last=last)
        joined = {segment.row.segment_id for run in runs for segment in run}
        holed = [segment for segment in self.holed() if segment.row.segment_id <= last]
        return [*runs, *([segment] for segment in holed if segment.row.segment_id not in joined)]

    # Changes

    def commit(self, operation: Callable[[apsw.Connection], T]) -> T:
        """Runs an operation in a transaction of records.db."""
        return self._connections.submit(operation).result()

    def load(self, row: SegmentRow) -> bool:
        """Reads the summary of a sealed segment; returns False if it is damaged."""
        try:
            self.catalogue.add(row.file_name, self.files.summary(row))
        except SegmentDamagedError as damage:
            log.warning("%s", damage)
            return False
        return True

    def _draft(self, row: SegmentRow) -> Draft:
        self.is_unsettled = True
        return self.files.draft(row)

    def seal(self, row: SegmentRow) -> None:
        """Writes the file of a segment that receives no more events, whose rows may then be deleted.

        Raises:
            RecordDamagedError: records.db is damaged.
            StorageFullError, StorageFailedError: the disk is full, failed, or gives back other data.
        """
        draft = self._draft(row)
        try:
            with draft.attached(self.files.keys.folder / RECORDS):
                draft.copy(row.segment_id, row.last_sequence, _NOTHING)
            added = draft.seal(row) if len(draft.sequences()) else None
        except SegmentDamagedError as damage:
            raise RecordDamagedError(RECORDS) from damage
        finally:
            draft.abandon()
        self._swap([row], added)
        log.info("sealed segment %d: %d events", row.segment_id, added[0].event_count if added else 0)

    def rewrite(self, group: Group) -> int:
        """Replaces neighbouring segments by one without their removed events; returns the size of its file.

        Raises:
            SegmentDamagedError: one is damaged and must be repaired first.
            StorageFullError, StorageFailedError: the disk is full, failed, or gives back other data.
        """
        rows = [segment.row for segment in group]
        erased = np.concatenate([segment.dead for segment in group])
        row = _next_generation(rows)
        added: tuple[SegmentRow, Summary] | None = None
        if any(segment.event_count for segment in group):
            draft = self._draft(row)
            try:
                for segment in group:
                    with draft.attached(self.files.folder / segment.row.file_name):
                        draft.copy(segment.row.segment_id, segment.row.last_sequence, segment.dead)
                added = draft.seal(row)
            finally:
                draft.abandon()
        self._swap(rows, added, erased)
        size = added[0].byte_count if added else 0
        log.info("rewrote %d segments as one of %d bytes", len(rows), size)
        return size

    def repair(self, row: SegmentRow, now: datetime) -> bool:
        """Reads a whole segment, and rewrites it if it is damaged; returns whether it was.

        If the new file cannot be written, intact events are read from memory until it can, and the error is raised.

        Raises:
            StorageFullError: the disk is too full for the new file.
            StorageFailedError: the disk failed.
        """
        problem = damage_of(self.files.folder / row.file_name, self.files.keys)
        if problem is None and self.load(row):
            return False
        log.warning("%s: %s", row.file_name, problem)
        dead = next(segment.dead for segment in self.sealed() if segment.row == row)
        renewed = _next_generation([row])
        try:
            with_file = self._salvaged(row, renewed, dead, in_memory=False)
        except (StorageFullError, StorageFailedError):
            self._keep_in_memory(row, dead)
            raise
        self._replace_damaged(row, with_file, dead, now)
        return True

    def _replace_damaged(self, row: SegmentRow, draft: Draft, dead: Sequences, now: datetime) -> None:
        held = np.setdiff1d(row.sequences(), dead)
        found = draft.sequences()
        lost = tuple(
            LostRange(row.segment_id, first, last, count, now) for first, last, count in _runs_of_lost(held, found)
        )
        try:
            added = draft.seal(_next_generation([row])) if len(found) else None
        finally:
            draft.abandon()
        self.files.forget(row.file_name)
        is_there = (self.files.folder / row.file_name).exists()
        warning = repaired_warning(row, lost, "in the quarantine" if is_there else "")

        def note(records: apsw.Connection) -> None:
            tables.note_lost(records, lost)
            tables.note_health(records, self._journal, warning)

        self._swap([row], added, dead, note=note, is_damaged=True)

    def _salvaged(self, row: SegmentRow, renewed: SegmentRow, dead: Sequences, *, in_memory: bool) -> Draft:
        """A draft with the events of a damaged segment that can be read, or that records.db still has."""
        draft = self.files.draft(renewed, in_memory=True) if in_memory else self._draft(renewed)
        try:
            with draft.attached(self.files.keys.folder / RECORDS):
                draft.copy(row.segment_id, row.last_sequence, dead)
            _salvage_all(draft, self.files.folder, row, dead)
        except BaseException:
            draft.abandon()
            raise
        return draft

    def _keep_in_memory(self, row: SegmentRow, dead: Sequences) -> None:
        draft = self._salvaged(row, row, dead, in_memory=True)
        _, summary = draft.seal(row)
        self.files.hold(row.file_name, draft.connection)
        self.catalogue.add(row.file_name, summary)

    def _swap(
        self,
        replaced: Sequence[SegmentRow],
        added: tuple[SegmentRow, Summary] | None,
        erased: Sequences = _NOTHING,
        *,
        note: Callable[[apsw.Connection], None] = lambda records: None,
        is_damaged: bool = False,
    ) -> None:
        """Replaces segments by one whose file is complete.

        If the transaction fails, its outcome may be unknown; `tidy` determines it once records.db works again.
        """
        # Before records.db deletes the marks, so that a crash in between does not lose them.
        self._clear_quarantine(replaced, erased)
        if added:
            self.catalogue.add(added[0].file_name, added[1])

        discarded = [row.file_name for row in replaced if row.is_sealed and not is_damaged]

        def swap(records: apsw.Connection) -> None:
            tables.replace_segments(records, replaced, added[0] if added else None, erased)
            if discarded:
                left = [name for name in tables.discarded_files(records) if (self.files.folder / name).exists()]
                tables.set_discarded_files(records, [*left, *discarded])
            if added and not replaced[0].is_sealed:
                _mark_removed_meanwhile(records, added[0])
            note(records)

        self.is_unsettled = True
        self.erasing_count += len(erased)
        self.commit(swap)
        for row in replaced:
            if row.is_sealed:
                self.catalogue.drop(row.file_name)
                if not is_damaged or not self.files.set_aside(row.file_name):
                    self.files.discard(row.file_name)
        self.is_unsettled = False
        self.erasing_count -= len(erased)

    def tidy(self, spared: Collection[str] = ()) -> list[StorageFullError | StorageFailedError]:
        """Cleans up files that are not in records.db: deletes drafts, replaced files and the remains of interrupted
        rewrites, whose events are in the current file, and moves all others to the quarantine. Returns an error for
        each file that stays where it is, which hinders no other change.

        Of the segments whose damaged files are `spared`, other generations are kept.

        Raises:
            StorageFullError, StorageFailedError: records.db or the folder cannot be read or written.
        """
        if self.is_unsettled:
            # The commit whose outcome is unknown has ended once another one has.
            self.commit(lambda records: None)
        rows = self.rows()
        named = {row.file_name for row in rows if row.is_sealed}
        with self._connections.lend() as records:
            discarded = tables.discarded_files(records)
        owners = [row for row in rows if row.file_name not in spared]
        self.catalogue.keep(named)
        errors: list[StorageFullError | StorageFailedError] = []
        for name in self.files.names(self.files.folder):
            if name not in named:
                is_remnant = name in discarded or name.endswith(DRAFT_SUFFIX) or _owner(name, owners) is not None
                try:
                    self._clear(name, is_remnant=is_remnant)
                except (StorageFullError, StorageFailedError) as error:
                    errors.append(error)
        self.is_unsettled = False
        if not errors:
            self.erasing_count = 0
        return errors

    def _clear(self, name: str, *, is_remnant: bool) -> None:
        if is_remnant:
            log.info("%s is the remains of an interrupted rewrite and is deleted", name)
            self.files.discard(name)
        else:
            self.files.set_aside(name)

    def _clear_quarantine(self, rows: Iterable[SegmentRow], erased: Sequences) -> None:
        """Deletes the copies of damaged segments that may contain removed events. Their intact events are in the
        segments.
        """
        if not len(erased):
            return
        found: list[str] = []
        for name in self.files.names(self.files.quarantine):
            # Copies of merged segments have their former numbers.
            owner = _owner(name, rows)
            if owner is not None and np.any((erased >= _first(name)) & (erased <= owner.last_sequence)):
                found.append(name)
                log.warning("%s is deleted from the quarantine: it may contain a removed event", name)
        self.files.discard_copies(found)


def _fits(run: Group, settings: EventEngineSettings) -> bool:
    return (
        sum(segment.row.byte_count for segment in run) <= settings.segment_bytes_max
        and sum(segment.event_count for segment in run) <= settings.segment_events_max
    )


def _next_generation(rows: Sequence[SegmentRow]) -> SegmentRow:
    """The first row of a file that replaces the files of neighbouring segments."""
    return rows[0]._replace(generation=rows[0].generation + 1, last_sequence=rows[-1].last_sequence)


def _mark_removed_meanwhile(records: apsw.Connection, row: SegmentRow) -> None:
    """Marks the events that were removed from records.db while the file was written from it."""
    bounds = row.segment_id, row.last_sequence
    source = "FROM timeline_event WHERE sequence BETWEEN ? AND ?"
    if records.execute(f"SELECT count(*) {source}", bounds).get != row.event_count:
        left = ids_from_text(records.execute(f"SELECT group_concat(sequence) {source}", bounds).get)
        tables.mark_dead(records, np.setdiff1d(row.sequences(), left).tolist())


def lost_count(keys: VaultKeyFile, records: apsw.Connection, names: Collection[str], *, is_at_rest: bool) -> int:
    """The number of events that a repair of these files, damaged or missing, would lose. Nothing is changed.

    `is_at_rest` says whether records.db has no journal.

    Raises:
        SegmentDamagedError: records.db cannot be read.
    """
    files, dead, lost = SegmentFiles(keys), tables.dead_sequences(records), 0
    for row in tables.segments(records):
        if row.is_sealed and row.file_name in names:
            draft = files.draft(row, in_memory=True)
            try:
                with draft.attached(keys.folder / RECORDS, is_at_rest=is_at_rest):
                    draft.copy(row.segment_id, row.last_sequence, dead)
                _salvage_all(draft, files.folder, row, dead)
                lost += len(np.setdiff1d(np.setdiff1d(row.sequences(), dead), draft.sequences()))
            finally:
                draft.abandon()
    return lost


def _salvage_all(draft: Draft, folder: Path, row: SegmentRow, dead: Sequences) -> None:
    """Copies all events of a damaged segment that can be read."""
    try:
        with draft.attached(folder / row.file_name):
            for first, last in np.frombuffer(row.runs, np.int64).reshape(-1, 2).tolist():
                _salvage(draft, first, last, dead)
    except SegmentDamagedError as damage:
        log.warning("nothing can be read from it: %s", damage)


def _salvage(draft: Draft, first: int, last: int, dead: Sequences) -> None:
    """Copies all events between two sequences that can be read: halves of a range that cannot be read as a whole."""
    try:
        draft.copy(first, last, dead)
    except SegmentDamagedError:
        if first < last:
            middle = (first + last) // 2
            _salvage(draft, first, middle, dead)
            _salvage(draft, middle + 1, last, dead)


def _runs_of_lost(held: Sequences, found: Sequences) -> Iterator[tuple[int, int, int]]:
    """The runs of lost events among all events of a segment: the first, the last, and how many. Neighbours among all
    events form one run.
    """
    for first, last in runs_of(np.flatnonzero(np.isin(held, found, invert=True))).tolist():
        yield int(held[first]), int(held[last]), last - first + 1


def _first(name: str) -> int:
    """The segment's number in the name of a file; -1 if it is another file."""
    match = _NAME.fullmatch(name.removesuffix(DRAFT_SUFFIX))
    return int(match[1]) if match else -1


def _owner(name: str, rows: Iterable[SegmentRow]) -> SegmentRow | None:
    """The segment that has the events of a file, under this number or merged with others; None if none has."""
    first = _first(name)
    return next((row for row in rows if row.segment_id <= first <= row.last_sequence), None)
