"""The contract of a timeline. `tests/contract/timeline.py` runs the same tests against every engine."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.conversations import Conversation
from mnemon_server.domain.errors import MnemonError
from mnemon_server.domain.events import (
    CompactionProgress,
    Event,
    EventPosition,
    EventReceipt,
    EventSelection,
    EventsStatus,
    PruneReason,
    RangeSummary,
    StoredEvent,
)
from mnemon_server.domain.records import NO_FLOORS, RelevanceFloors, RequestKey, Scope, SearchMode
from mnemon_server.engines.promises.values import Fits, Vector

Sequences = NDArray[np.int64]
"""Ascending positions of events in storage order."""

SLICE_BYTES_MAX = 3 << 20
"""Maximum total size of the bodies in a slice, in bytes. Its first event may be larger."""
SLICE_READS_MAX = 100_000
"""Maximum number of events read to evaluate an expression for one slice."""


@dataclass(slots=True)
class EventWrite:
    """An event to store, with its id and the values that the server sets. Not frozen, for speed: many are created."""

    event: Event
    id_is_new: bool
    """The id was drawn at random, so it need not be compared with stored ids."""
    request: RequestKey | None = None
    is_imported: bool = False
    """The event was imported. The feed shows it as `"imported": true` in the details."""
    within: tuple[Scope, ...] | None = None
    """The scopes whose events exist for the writer: others are not told as duplicates. None means all."""


@dataclass(frozen=True, slots=True)
class WindowSlice:
    """A run of events, newest first, and the number of events at each stage of the query."""

    events: tuple[StoredEvent, ...]
    next_position: EventPosition | None
    """Where to continue; None after the last event. A slice may end before `limit` events and still have a next one."""
    total: int
    """The number of all events."""
    in_context: int
    """How many of them match scope, types and importance."""
    in_window: int
    """How many of those are within the time window."""
    rejected: int
    """How many of those that were read did not match the expression."""
    truncated: bool = False
    """The slice ended early because of SLICE_BYTES_MAX."""


@dataclass(frozen=True, slots=True)
class Expired:
    """The events that retention would remove."""

    count: int
    total: int
    oldest: tuple[StoredEvent, ...]


@dataclass(frozen=True, slots=True)
class TextScores:
    """Scores of events: arrays of equal length, ascending by sequence. `similarity` is NaN if unknown."""

    sequences: Sequences
    relevance: NDArray[np.float64]
    similarity: NDArray[np.float64]
    keyword: NDArray[np.float64]
    mode: SearchMode
    """The search mode that was used."""
    pending: int
    """The number of requested events that are not yet in the text index."""
    exact: bool = True
    """Whether all of them were compared."""
    floors: RelevanceFloors = NO_FLOORS
    of_messages: NDArray[np.float64] | None = None
    """The relevance if the events are messages to and from an assistant; None if it would be the same."""


@dataclass(frozen=True, slots=True)
class EventsWarning:
    """A problem of the timeline, and what would help."""

    severity: str
    """"warning" or "critical"."""
    message: str
    remediation: str


class EventEngine(Protocol):
    """The events of a vault, ordered by (time, id). Any thread may call any method; reads block.

    Reads see everything acknowledged before they began. Until the timeline is warm, all methods except `status`,
    `is_warm` and `close` raise IndexWarmingError. Data that was damaged on disk is never returned, and
    does not affect other data: a read that finds damage has the segment repaired, and answers with what remains.
    """

    @property
    def is_warm(self) -> bool:
        """Whether the index is loaded."""

    def wait_until_warm(self, timeout_s: float) -> bool:
        """Waits until the index is loaded or the timeout ends; returns `is_warm`."""

    def append(self, writes: Sequence[EventWrite]) -> Future[list[EventReceipt | MnemonError]]:
        """Stores events in order, in one transaction, each with an entry `memory:episodic:saved` in the feed.

        For the feed each event is a commit of its own, because they may come from many calls. Returns one result per
        write: a receipt, RequestIdReusedError, or EventExistsError if an event of another user has the id. An event is
        a duplicate if a stored event (or an earlier one of the same call) of the same user has its id, or the same
        household, persona, type, time and content. The receipt of a duplicate names the stored event, and only the
        answer to its request is written. If the storage fails, the future raises StorageFullError or StorageFailedError
        as for other records, and no event is stored.
        """

    def may_record(self, origin: str) -> bool:
        """Whether the caller may record events of this origin."""

    def window(self, where: EventSelection, *, after: EventPosition | None = None, limit: int) -> WindowSlice:
        """Up to `limit` events that match, newest first, after the position `after`.

        An expression is evaluated last, on events that are read for it. The slice ends early after reading
        SLICE_READS_MAX events, or before its bodies would exceed SLICE_BYTES_MAX. All counts except `rejected` are
        independent of `after`.
        """

    def count(self, where: EventSelection) -> int:
        """The number of events that match."""

    def get(self, event_ids: Sequence[str], *, fits: Fits | None = None) -> list[StoredEvent | None]:
        """The events with these ids, in the given order; None for each that does not exist.

        `fits` is called for each existing event in turn, with its size. An event that it rejects is None in the result.
        """

    def get_stored(self, event_ids: Sequence[str]) -> list[StoredEvent | None]:
        """Like `get`, but includes quarantined events, to compare with what the caller writes; never show them."""

    def summarize(self, where: EventSelection, zone: tzinfo = UTC) -> RangeSummary:
        """Counts of the events that match, by the days of a time zone."""

    def conversations(self, where: EventSelection) -> list[Conversation]:
        """The conversations that have events of the selection, which must have no expression, in no order."""

    def sequences(self, where: EventSelection) -> Sequences:
        """The sequences of the events that match."""

    def read(self, sequences: Sequence[int], *, bytes_max: int | None = None) -> list[StoredEvent]:
        """The events with these sequences, in the given order, without those that no longer exist.

        With `bytes_max`, the result ends before its bodies would exceed it; the first event is always returned.
        """

    def expired(self, before: datetime, *, limit: int) -> Expired:
        """The number of events that happened before a time, and the first `limit` of them in storage order."""

    def prune(
        self,
        events: Sequence[StoredEvent],
        reason: PruneReason,
        *,
        answer: Callable[[], str] | None = None,
        request: RequestKey | None = None,
    ) -> Future[int]:
        """Removes events permanently, in one transaction with `memory:episodic:pruned`; returns how many existed.

        From then on no answer contains them. Their bytes leave the disk once the background thread has rewritten their
        segments, which it starts soon after. With `request`, `answer` returns the answer that is kept for it; a request
        that already has an answer removes nothing, and another request with its id raises RequestIdReusedError. Pass at
        most 2,000 events, since other writes wait meanwhile.
        """

    def kept_answer(self, request: RequestKey) -> str | None:
        """The answer kept for the request id of a pruning. Raises RequestIdReusedError if another request used
        the id.
        """

    def search_text(self, query: str, vector: Vector | None, among: Sequences, mode: SearchMode) -> TextScores:
        """How well the events in `among` match a text. Events with nothing in common with it are left out.

        Without embeddings of events, or without a `vector`, only keywords count. In hybrid mode, relevance is the mean
        of both; among very many events, only the newest and those with the best words are compared.
        """

    @property
    def has_embeddings(self) -> bool:
        """Whether events have embeddings."""

    def compact(self, report: Callable[[CompactionProgress], None]) -> CompactionProgress:
        """Seals the active segment, rewrites segments with pruned events, and merges small ones. Calls `report` on the
        way, and returns the final progress.
        """

    def scrub(self) -> None:
        """Reads all stored data and repairs damage. Returns when that is done."""

    def status(self) -> EventsStatus:
        """The current status. Does not raise."""

    def failure(self) -> str | None:
        """The current problem, as a sentence; None without a problem."""

    def close(self) -> None:
        """Stops the background work. Further calls have no effect."""
