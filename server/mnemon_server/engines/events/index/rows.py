"""Input and output types of the timeline's index."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.records import Scope

Times = NDArray[np.int64]
Hashes = NDArray[np.uint64]
ShortHashes = NDArray[np.uint32]
"""The upper halves of hashes, which sort like the whole. Sealed segments store only these."""
Codes = NDArray[np.uint32]
Importances = NDArray[np.float32]
Flags = NDArray[np.bool_]
Positions = NDArray[np.intp]

NO_OFFSET = -1
"""The offset of an event that is not yet in a sealed file. Its row is read by sequence."""


def shortened(hashes: Hashes) -> ShortHashes:
    """The upper halves of hashes."""
    return (hashes >> np.uint64(32)).astype(np.uint32)


def lengthened(hashes: ShortHashes) -> Hashes:
    """Hashes that `shortened` turns into the given ones."""
    return hashes.astype(np.uint64) << np.uint64(32)


class EventRow(NamedTuple):
    """The index entry of an event."""

    sequence: int
    time_us: int
    id_hash: int
    key_hash: int
    scope: Scope
    event_type: str
    importance: float | None
    """In single precision; None if unknown."""
    offset: int = NO_OFFSET
    """Offset of its frame in the segment's file, below 2**32."""


class EventKey(NamedTuple):
    """The fields that identify duplicates."""

    user: str
    time_us: int
    key_hash: int


class EventRef(NamedTuple):
    """The location of an event."""

    time_us: int
    sequence: int
    segment_id: int
    offset: int
    """NO_OFFSET while its segment is not sealed."""


class Counts(NamedTuple):
    """The number of all events, of those that match scope, types and importance, and of those also within the
    window.
    """

    total: int
    in_context: int
    in_window: int

    @property
    def filtered_by_context(self) -> int:
        """The number left out by scope, type or importance."""
        return self.total - self.in_context

    @property
    def filtered_by_window(self) -> int:
        """The number that match otherwise but are outside the window."""
        return self.in_context - self.in_window


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary of events."""

    count: int
    earliest_us: int | None
    latest_us: int | None
    per_type: dict[str, int]
    per_day: dict[int, int]
    """Counts by day since 1970-01-01 (UTC), in ascending order."""


@dataclass(frozen=True, slots=True)
class Expired:
    """The oldest events before a time, and the number of all events before it."""

    oldest: list[EventRef]
    count: int
