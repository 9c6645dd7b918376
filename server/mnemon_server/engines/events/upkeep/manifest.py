"""The maintenance thread's interface to records.db: the list of segments, the rows of events, and the health."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol

from mnemon_server.domain.events import LostRange
from mnemon_server.engines.events.index.rows import EventRow
from mnemon_server.engines.promises.events import EventsWarning


class SegmentState(StrEnum):
    """The state of a segment."""

    OPEN = "open"
    """Events are added to it. There is at most one, the newest."""
    ROLLED = "rolled"
    """It receives no more events, but its file is not sealed yet."""
    SEALED = "sealed"
    """Its file is complete, and its rows are no longer needed."""


class SegmentRow(NamedTuple):
    """A segment according to records.db. Times are in microseconds."""

    segment_id: int
    """The sequence of its first event in its first generation."""
    generation: int
    state: SegmentState
    first_sequence: int
    """The last sequence of its events; after a rewrite, of the remaining ones."""
    last_sequence: int
    event_count: int
    """The number of its events, including removed ones until it is rewritten."""
    byte_count: int
    """The size of its file if it is sealed, otherwise of the frames of its events."""
    create_time_us: int
    seed: int = 0
    """The seed in the header of its file; 0 before there is a file."""
    synced_offset: int = 0
    """The number of bytes of its file that are certainly on the disk; 0 before there is a file."""
    synced_sequence: int = 0
    """The last event within these bytes; 0 if they contain no event."""
    min_time_us: int | None = None
    """The times of its events; None before it is sealed."""
    max_time_us: int | None = None
    sha256: bytes | None = None
    """See `Footer.sha256`; None before it is sealed."""

    @property
    def is_sealed(self) -> bool:
        """Whether its file is complete."""
        return self.state is SegmentState.SEALED


class SyncedFile(NamedTuple):
    """How far the file of an unsealed segment is synced. The fields are those of SegmentRow."""

    segment_id: int
    generation: int
    seed: int
    synced_offset: int
    synced_sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The changes of one transaction to the list of segments."""

    put: tuple[SegmentRow, ...] = ()
    """Sealed segments that are new or replace earlier rows."""
    dropped: tuple[int, ...] = ()
    """Segments that no longer exist."""
    erased: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """By segment: removed events that are no longer in any file. Their marks are deleted."""
    joined_into: int | None = None
    """The segment to which the remaining marks of dropped segments are moved."""
    synced: SyncedFile | None = None
    """A new file of an unsealed segment."""
    lost: tuple[LostRange, ...] = ()
    """Lost events. They are recorded, and no longer counted."""
    warning: EventsWarning | None = None
    """A warning for the feed, as `memory:episodic:warning`."""
    healthy: bool = False
    """Whether to add `memory:episodic:healthy` to the feed."""
    scrub_time: datetime | None = None
    """When all data was last read and found intact."""


class Manifest(Protocol):
    """The list of segments, and the rows of events whose segment is not sealed. Any thread may call any method.

    Writing methods are atomic, and return once their changes are durable. Every method may raise StorageFullError if
    the disk is full, or StorageFailedError.
    """

    @property
    def epoch(self) -> bytes:
        """The identification of the vault in its files: 16 bytes, see `epoch_digest`."""

    def is_warned(self) -> bool:
        """Whether the feed's last entry about the timeline's health is a warning."""

    def segments(self) -> list[SegmentRow]:
        """All segments, ascending."""

    def bodies(self, segment_id: int, after: int) -> list[tuple[int, bytes]]:
        """Some rows of a segment after a sequence: (sequence, body), ascending; empty if there are no more."""

    def index_rows(self, segment_id: int) -> Iterator[Sequence[EventRow]]:
        """The rows of a segment in the form for the index, in groups, ascending."""

    def dead(self, segment_id: int) -> list[int]:
        """Removed events that the segment's file may still contain, ascending."""

    def dead_counts(self) -> dict[int, int]:
        """The number of such events per segment, without segments that have none."""

    def note_synced(self, synced: SyncedFile) -> None:
        """Writes this with the next transaction of any kind; returns at once."""

    def flush(self) -> None:
        """Writes what was noted, unless a transaction has written it already."""

    def roll(self, segment_id: int) -> None:
        """Closes a segment if it is open, so that the next event starts a new one.

        When it returns, the index has all committed events of the segment. Without it, rows read here may be slightly
        ahead of the index.
        """

    def commit(self, change: Change) -> None:
        """Applies the change in one transaction."""

    def delete_sealed_rows(self) -> bool:
        """Deletes some rows of events whose segment is sealed; returns False if none were left."""
