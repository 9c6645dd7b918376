"""Which segments there are, as a transaction of records.db sees them, with the summaries of their files in memory."""

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import apsw
import numpy as np

from mnemon_server.domain.records import INT64_MAX
from mnemon_server.engines.events.segment_files import SegmentFiles, Summary
from mnemon_server.engines.events.tables import (
    SegmentRow,
    dead_sequences,
    first_unsealed,
    segments,
    version,
)
from mnemon_server.engines.promises.events import Sequences


@dataclass(frozen=True, eq=False)
class SealedSegment:
    """A sealed segment, without the removed events that are still in its file."""

    row: SegmentRow
    summary: Summary | None
    """None if its file could not be read at the start."""
    dead: Sequences
    """The removed events, ascending."""

    @property
    def event_count(self) -> int:
        """The number of its events."""
        return self.row.event_count - len(self.dead)

    @cached_property
    def dead_set(self) -> frozenset[int]:
        """The removed events."""
        return frozenset(self.dead.tolist())

    def sequences(self, first: int = 0, last: int = INT64_MAX) -> Sequences:
        """Its events between two sequences, ascending."""
        found = self.row.sequences(first, last)
        return np.setdiff1d(found, self.dead, assume_unique=True) if len(self.dead) else found

    def has(self, sequence: int) -> bool:
        """Whether it has an event."""
        return bool(len(self.row.sequences(sequence, sequence))) and sequence not in self.dead_set

    def may_have(self, number: int) -> bool:
        """Whether one of its events may have this hash."""
        return self.summary is None or self.summary.hashes.may_have(number)

    def count_of(self, user: str) -> int | None:
        """The number of a user's events; None if only the file can tell."""
        if self.summary is None:
            return None
        count = self.summary.users.get(user, 0)
        return count if not count or not len(self.dead) else None


@dataclass(frozen=True, eq=False)
class SealedSegments:
    """All sealed segments, ascending."""

    segments: tuple[SealedSegment, ...] = ()

    @cached_property
    def ids(self) -> list[int]:
        """The number of each."""
        return [segment.row.segment_id for segment in self.segments]

    @cached_property
    def event_count(self) -> int:
        """The number of their events."""
        return sum(segment.event_count for segment in self.segments)

    @property
    def last_id(self) -> int:
        """The number of the newest segment; -1 without any."""
        return self.ids[-1] if self.ids else -1

    def of_sequence(self, sequence: int) -> SealedSegment | None:
        """The segment that has an event, if any has."""
        place = bisect_right(self.ids, sequence) - 1
        return self.segments[place] if place >= 0 and sequence <= self.segments[place].row.last_sequence else None


@dataclass(frozen=True, eq=False)
class Snapshot:
    """All events at one moment: sealed segments are in their files, newer events in records.db."""

    records: apsw.Connection
    files: SegmentFiles
    sealed: SealedSegments
    unsealed: Sequence[SegmentRow]

    @cached_property
    def first_unsealed(self) -> int:
        """The first sequence whose event is in records.db alone."""
        return first_unsealed(self.unsealed)

    @cached_property
    def event_count(self) -> int:
        """The number of events."""
        return self.sealed.event_count + sum(row.event_count for row in self.unsealed)

    @cached_property
    def segment_ids(self) -> list[int]:
        """All segments, ascending; those without a file come last."""
        return [*self.sealed.ids, *(row.segment_id for row in self.unsealed)]

    def place(self, sequence: int) -> SealedSegment | None:
        """The sealed segment whose file has an event; None if records.db has it, or if there is no such event."""
        return None if sequence >= self.first_unsealed else self.sealed.of_sequence(sequence)

    def segment_id(self, sequence: int) -> int:
        """The segment of an event that exists."""
        return self.segment_ids[bisect_right(self.segment_ids, sequence) - 1]


class Catalogue:
    """The summaries of all sealed segments. Any thread may call any method."""

    def __init__(self, files: SegmentFiles) -> None:
        """Starts without summaries."""
        self.files = files
        self._summaries: dict[str, Summary] = {}
        self._last: tuple[int, SealedSegments] = -1, SealedSegments()

    @property
    def count(self) -> int:
        """The number of segments with a summary."""
        return len(self._summaries)

    @property
    def nbytes(self) -> int:
        """Its approximate size."""
        return sum(len(one.hashes.content) + 64 * len(one.users) for one in [*self._summaries.values()])

    def add(self, name: str, summary: Summary) -> None:
        """Adds a segment, before a transaction that adds its row."""
        self._summaries[name] = summary
        self._last = -1, SealedSegments()

    def drop(self, name: str) -> None:
        """Removes a segment, after the transaction that has removed its row."""
        self._summaries.pop(name, None)

    def keep(self, names: Collection[str]) -> None:
        """Removes all other segments."""
        for name in [*self._summaries]:
            if name not in names:
                self.drop(name)

    def at(self, records: apsw.Connection) -> SealedSegments:
        """The sealed segments as a connection sees them."""
        known, last = self._last
        if (now := version(records)) == known:
            return last
        rows = [row for row in segments(records) if row.is_sealed]
        dead = dead_sequences(records)
        found = SealedSegments(
            tuple(
                SealedSegment(
                    row,
                    self._summaries.get(row.file_name),
                    dead[dead.searchsorted(row.segment_id) : dead.searchsorted(row.last_sequence, "right")],
                )
                for row in rows
            )
        )
        self._last = now, found
        return found

    def snapshot(self, records: apsw.Connection) -> Snapshot:
        """All events as a connection sees them, which must be in a transaction."""
        sealed = self.at(records)
        return Snapshot(records, self.files, sealed, segments(records, after=sealed.last_id))
