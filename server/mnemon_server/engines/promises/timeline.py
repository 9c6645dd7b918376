"""What a timeline promises: the contract that `tests/contract/timeline.py` holds every engine to."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.episodic import (
    CompactionProgress,
    EpisodicEvent,
    EventPosition,
    EventReceipt,
    EventSelection,
    PruneReason,
    RangeSummary,
    StoredEvent,
    TimelineStatus,
)
from mnemon_server.domain.errors import MnemonError
from mnemon_server.domain.records import RequestKey, SearchMode
from mnemon_server.engines.promises.values import Fits, Vector

Sequences = NDArray[np.int64]
"""Positions of events in the order of storing, ascending."""

SLICE_BYTES_MAX = 3 << 20
"""A slice ends before the event with which its bodies would have more bytes, but for its first."""
SLICE_READS_MAX = 100_000
"""A slice ends after so many events were read for its expression."""


@dataclass(slots=True)
class EventWrite:
    """An event to store, with its id and all that the server sets. Not frozen, since many are made."""

    event: EpisodicEvent
    id_is_new: bool
    """The id was drawn at random: no stored event can have it."""
    request: RequestKey | None = None
    is_imported: bool = False
    """It was recorded elsewhere before, and the feed says so: `"imported": true` in the details."""


@dataclass(frozen=True, slots=True)
class WindowSlice:
    """A run of events, newest first, and how many there were on the way."""

    events: tuple[StoredEvent, ...]
    next_position: EventPosition | None
    """Where to go on; None where nothing is left. There may be fewer events than wanted before that."""
    total: int
    """All events."""
    in_context: int
    """Of those, what passes scope, types and importance."""
    in_window: int
    """Of those, what lies in the window."""
    rejected: int
    """Of those, what the expression rejected, as far as was read."""
    truncated: bool = False
    """It ended because of SLICE_BYTES_MAX."""


@dataclass(frozen=True, slots=True)
class Expired:
    """What retention would take."""

    count: int
    total: int
    oldest: tuple[StoredEvent, ...]


@dataclass(frozen=True, slots=True)
class TextScores:
    """Scores of events by sequence: arrays of one length, ascending by sequence; `similarity` NaN where unknown."""

    sequences: Sequences
    relevance: NDArray[np.float64]
    similarity: NDArray[np.float64]
    keyword: NDArray[np.float64]
    mode: SearchMode
    """The mode that was used."""
    pending: int
    """Events of those asked about that the text index has yet to take."""


@dataclass(frozen=True, slots=True)
class TimelineWarning:
    """What is wrong with the timeline, and what helps."""

    severity: str
    """"warning" or "critical"."""
    message: str
    remediation: str


class Timeline(Protocol):
    """The events of a vault, in the order of (time, id). Any thread may call any method; reads block.

    Reads see everything acknowledged before they began. Until it is warm, all but `status`, `is_warm`, `subscribe` and
    `close` raise IndexWarmingError. What was damaged on the disk is never returned, and never hides anything else: a
    read that meets it has the segment repaired, and answers with what is left.
    """

    @property
    def is_warm(self) -> bool:
        """Whether the index is loaded."""

    def wait_until_warm(self, timeout_s: float) -> bool:
        """Waits until it is; returns whether it is."""

    def append(self, writes: Sequence[EventWrite]) -> Future[list[EventReceipt | MnemonError]]:
        """Stores events in their order, in one transaction, each with its `memory:episodic:saved` in the feed.

        For the feed each is a commit of its own: they may come from many calls. One result per write: a receipt, or
        RequestIdReusedError. An event with a stored id, or else of the same user, persona, type, time and content as a
        stored one (or as an earlier one of the same call) is a duplicate: its receipt names the stored event, and
        nothing but the answer to its request is written. The future raises StorageFullError or
        StorageFailedError as writes of the records do; then none is stored.
        """

    def window(self, where: EventSelection, *, after: EventPosition | None = None, limit: int) -> WindowSlice:
        """Up to `limit` events that match, newest first, behind `after`.

        An expression is applied last, to events that are read for it; after SLICE_READS_MAX of them, or before the
        event with which the results would have more than SLICE_BYTES_MAX, the slice ends early. The counts do not
        depend on `after`, but for `rejected`.
        """

    def count(self, where: EventSelection) -> int:
        """How many events match."""

    def get(self, event_ids: Sequence[str], *, fits: Fits | None = None) -> list[StoredEvent | None]:
        """The events with these ids, in their order; None for each that does not exist.

        `fits` is asked about each with its size, one after the other; what it turns down is None, too.
        """

    def summarize(self, where: EventSelection) -> RangeSummary:
        """Counts of the events that match."""

    def sequences(self, where: EventSelection) -> Sequences:
        """The sequences of the events that match."""

    def read(self, sequences: Sequence[int], *, bytes_max: int | None = None) -> list[StoredEvent]:
        """The events with these sequences, in their order; those that are gone are left out.

        With `bytes_max`, it ends before the event with which their bodies would have more, but for the first.
        """

    def expired(self, before: datetime, *, limit: int) -> Expired:
        """Events that happened before a time: how many, and the first `limit` in the order of storing."""

    def prune(
        self,
        events: Sequence[StoredEvent],
        reason: PruneReason,
        *,
        answer: Callable[[], str] | None = None,
        request: RequestKey | None = None,
    ) -> Future[int]:
        """Removes events for good, in one transaction with `memory:episodic:pruned`; returns how many were there.

        They are in no answer from then on; their bytes leave the disk when the keeper has rewritten their segments,
        which begins soon after. With `request`, `answer` gives what is kept for it; a request that has an answer
        removes nothing, and another's raises RequestIdReusedError. Pass at most 2,000 events: nothing else is written
        meanwhile.
        """

    def kept_answer(self, request: RequestKey) -> str | None:
        """What was kept for a request id of a pruning; raises RequestIdReusedError where it was another request's."""

    def search_text(self, query: str, vector: Vector | None, among: Sequences, mode: SearchMode) -> TextScores:
        """How well the events `among` fit a text; those that share nothing with it are left out.

        Without embeddings of events, or without a `vector`, by word. Relevance in hybrid mode is the mean of both.
        """

    @property
    def has_embeddings(self) -> bool:
        """Whether events get embeddings."""

    def compact(self, report: Callable[[CompactionProgress], None]) -> CompactionProgress:
        """Seals the active segment, rewrites what was pruned, joins small segments; reports, and returns the last."""

    def scrub(self) -> None:
        """Reads everything, and repairs what is damaged; returns when that is done."""

    def warn(self, warning: TimelineWarning | None) -> Future[None]:
        """Notes `memory:episodic:warning` in the feed, or with None `memory:episodic:healthy`."""

    def status(self) -> TimelineStatus:
        """How it is; never raises."""

    def failure(self) -> str | None:
        """What is wrong now, as a sentence; None where nothing is."""

    def close(self) -> None:
        """Ends the background work. Calling it again does nothing."""
