"""What the keeper of a timeline asks of records.db: its list of segments, the rows of events, and what is wrong."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol

from mnemon_server.domain.episodic import LostRange
from mnemon_server.engines.promises.timeline import TimelineWarning
from mnemon_server.engines.timeline.index.rows import EventRow


class SegmentState(StrEnum):
    """How far a segment is."""

    OPEN = "open"
    """Events are added to it: there is one at most, the newest."""
    ROLLED = "rolled"
    """It gets no more events, and its file has yet to be sealed."""
    SEALED = "sealed"
    """Its file holds it, and needs no rows."""


class SegmentRow(NamedTuple):
    """What records.db says of a segment. Times in microseconds."""

    segment_id: int
    """The sequence of the first event that it ever had."""
    generation: int
    state: SegmentState
    first_sequence: int
    """Of the segment's events; of a rewritten one, of those that are left."""
    last_sequence: int
    event_count: int
    """Events in it, removed ones too until it is rewritten."""
    byte_count: int
    """Of its file once it is sealed; before that, of the frames of its events."""
    create_time_us: int
    seed: int = 0
    """What the header of its file says; 0 before there is one."""
    synced_offset: int = 0
    """Bytes of its file that are on the disk for sure; 0 before there is one."""
    synced_sequence: int = 0
    """The last event among them; 0 where there is none."""
    min_time_us: int | None = None
    """Of its events; None before it is sealed."""
    max_time_us: int | None = None
    sha256: bytes | None = None
    """See `Footer.sha256`; None before it is sealed."""

    @property
    def is_sealed(self) -> bool:
        """Whether its file holds it."""
        return self.state is SegmentState.SEALED


class SyncedFile(NamedTuple):
    """How far the file of an unsealed segment is on the disk; the fields are those of SegmentRow."""

    segment_id: int
    generation: int
    seed: int
    synced_offset: int
    synced_sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one transaction does to the list of segments."""

    put: tuple[SegmentRow, ...] = ()
    """Sealed segments that are new, or take the place of what was known of them."""
    dropped: tuple[int, ...] = ()
    """Segments that are no longer there."""
    erased: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """By segment, removed events whose bytes are gone: their marks go. The others' of what was dropped ..."""
    joined_into: int | None = None
    """... are from now on those of this segment."""
    synced: SyncedFile | None = None
    """A new file of an unsealed segment."""
    lost: tuple[LostRange, ...] = ()
    """What damage took along; it is remembered, and left out of the count of events."""
    warning: TimelineWarning | None = None
    """Noted in the feed as `memory:episodic:warning`."""
    healthy: bool = False
    """Noted in the feed as `memory:episodic:healthy`."""
    scrub_time: datetime | None = None
    """When everything was last read and found sound."""


class Manifest(Protocol):
    """The list of segments, and the rows of events whose segment is not sealed. Any thread may call any method.

    What writes returns once it is durable, and is done wholly or not at all. Every method may raise StorageFullError,
    where no space is left for it, or StorageFailedError.
    """

    @property
    def epoch(self) -> bytes:
        """What the files of this vault say of it: 16 bytes, see `epoch_digest`."""

    def is_warned(self) -> bool:
        """Whether the feed's newest word on the timeline is a warning."""

    def segments(self) -> list[SegmentRow]:
        """All segments, ascending."""

    def bodies(self, segment_id: int, after: int) -> list[tuple[int, bytes]]:
        """A run of the rows of a segment behind a sequence: (sequence, body), ascending; empty where none is left."""

    def index_rows(self, segment_id: int) -> Iterator[Sequence[EventRow]]:
        """The rows of a segment as the index takes them, run by run, ascending."""

    def dead(self, segment_id: int) -> list[int]:
        """Removed events whose bytes the segment's file may still hold, ascending."""

    def dead_counts(self) -> dict[int, int]:
        """How many of those each segment has; segments without any are left out."""

    def note_synced(self, synced: SyncedFile) -> None:
        """Has this written with the next transaction, whosever that is; returns at once."""

    def flush(self) -> None:
        """Writes what was noted, where it was not yet written."""

    def roll(self, segment_id: int) -> None:
        """Ends a segment where it is open: the next event begins a new one.

        Once it returns, everything that was committed to the segment is in the index, too: what is read here may have
        been committed a moment before the index hears of it.
        """

    def commit(self, change: Change) -> None:
        """One transaction."""

    def delete_sealed_rows(self) -> bool:
        """Removes some rows of events whose segment is sealed; False where none was left."""
