"""The event feed: what watchers and readers of the log ask for, and what they are told."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from mnemon_server.domain.changes import BATCH_DEFAULT, Event, EventFilter
from mnemon_server.domain.documents import Document
from mnemon_server.domain.episodic import StoredEvent
from mnemon_server.domain.facts import Fact
from mnemon_server.domain.memories import Memory
from mnemon_server.domain.semantic import SemanticMemory

HEARTBEAT_DEFAULT_S, HEARTBEAT_MIN_S, HEARTBEAT_MAX_S = 15.0, 5.0, 60.0
PAGE_DEFAULT, PAGE_MAX = 100, 1_000
TYPES_MAX = 64
EVERYTHING = EventFilter()


class Edge(StrEnum):
    """An end of the log."""

    EARLIEST = "earliest"
    NOW = "now"


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place that an earlier answer named; what it says is the feed's own."""

    text: str


Start: TypeAlias = Edge | Cursor | datetime
"""Where to begin: at an end of the log, behind a cursor, or with the first event at or after a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchQuery:
    """What to watch. `heartbeat_s`, in seconds, is the longest silence; `batch_max` counts events of a message."""

    start: Start = Edge.NOW
    where: EventFilter = EVERYTHING
    heartbeat_s: float | None = None
    batch_max: int = BATCH_DEFAULT
    full: bool = False
    """With the records, as they are when the events are sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """A page of the log to read; `limit` counts events."""

    start: Start = Edge.EARLIEST
    where: EventFilter = EVERYTHING
    limit: int = PAGE_DEFAULT
    full: bool = False


Record: TypeAlias = Document | Memory | SemanticMemory | StoredEvent | Fact


@dataclass(frozen=True, slots=True)
class Started:
    """Said once, first: everything committed from now on will be told. `cursor` is where the watch begins."""

    cursor: str
    heartbeat_s: float
    retained_since: datetime | None
    """Commit time of the oldest event that is kept; None where there is none."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Batch:
    """Events in log order, at least one. Watchers that see the same share one object, so it may be a key of a cache."""

    cursor: str
    events: tuple[Event, ...]
    records: tuple[Record | None, ...]
    """One for each event, None where it is gone; empty without the full view."""
    caught_up: bool
    """Nothing newer was in the log when this was read."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Nothing matched; the cursor may have moved."""

    cursor: str
    head_time: datetime | None
    """Commit time of the newest event; None where there is none."""
    caught_up: bool


FeedMessage: TypeAlias = Started | Batch | Progress


@dataclass(frozen=True, slots=True)
class EventPage:
    """One page of the log; `records` as in a batch."""

    cursor: str
    events: tuple[Event, ...]
    records: tuple[Record | None, ...]
    caught_up: bool
