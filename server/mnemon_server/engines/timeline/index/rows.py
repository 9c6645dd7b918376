"""What goes into the timeline's index, and what comes out of it."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.records import Scope

Times = NDArray[np.int64]
Hashes = NDArray[np.uint64]
ShortHashes = NDArray[np.uint32]
"""The upper halves of hashes, which have the order of the whole: all that a sealed segment keeps."""
Codes = NDArray[np.uint32]
Importances = NDArray[np.float32]
Flags = NDArray[np.bool_]
Positions = NDArray[np.intp]

NO_OFFSET = -1
"""The offset of an event that is in no sealed file yet: its row is read by its sequence."""


def shortened(hashes: Hashes) -> ShortHashes:
    """The upper halves of hashes."""
    return (hashes >> np.uint64(32)).astype(np.uint32)


def lengthened(hashes: ShortHashes) -> Hashes:
    """Hashes of which `shortened` makes these again."""
    return hashes.astype(np.uint64) << np.uint64(32)


class EventRow(NamedTuple):
    """What the index is told of one event."""

    sequence: int
    time_us: int
    id_hash: int
    key_hash: int
    scope: Scope
    event_type: str
    importance: float | None
    """Kept in single precision; None where it is unknown."""
    offset: int = NO_OFFSET
    """Where its frame starts in the segment's file, below 2**32."""


class EventKey(NamedTuple):
    """By what an equal event is looked for."""

    user: str
    time_us: int
    key_hash: int


class EventRef(NamedTuple):
    """Where one event is."""

    time_us: int
    sequence: int
    segment_id: int
    offset: int
    """NO_OFFSET while its segment is not sealed."""


class Counts(NamedTuple):
    """How many events there are, how many of them pass scope, types and importance, and how many the window, too."""

    total: int
    in_context: int
    in_window: int

    @property
    def filtered_by_context(self) -> int:
        """How many are of another scope or type, or not important enough."""
        return self.total - self.in_context

    @property
    def filtered_by_window(self) -> int:
        """How many of the right context are of another time."""
        return self.in_context - self.in_window


@dataclass(frozen=True, slots=True)
class Summary:
    """What some events are like as a whole."""

    count: int
    earliest_us: int | None
    latest_us: int | None
    per_type: dict[str, int]
    per_day: dict[int, int]
    """By day since 1970-01-01 (UTC), in order of time."""


@dataclass(frozen=True, slots=True)
class Expired:
    """Events older than some time: the oldest of them, and how many there are."""

    oldest: list[EventRef]
    count: int
