"""The change feed: the requests and answers of watches and of lists of the change log."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from mnemon_server.domain.changes import BATCH_DEFAULT, Change, ChangeFilter
from mnemon_server.domain.documents import Document
from mnemon_server.domain.events import StoredEvent
from mnemon_server.domain.facts import Fact
from mnemon_server.domain.memories import Memory
from mnemon_server.domain.semantic import SemanticMemory

HEARTBEAT_DEFAULT_S, HEARTBEAT_MIN_S, HEARTBEAT_MAX_S = 15.0, 5.0, 60.0
PAGE_DEFAULT = 100
TYPES_MAX = 64
EVERYTHING = ChangeFilter()


class Edge(StrEnum):
    """The oldest or the newest end of the log."""

    EARLIEST = "earliest"
    NOW = "now"


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position that an earlier answer returned. Its content is private to the feed."""

    text: str


Start: TypeAlias = Edge | Cursor | datetime
"""Where to start: at an end of the log, after a cursor, or with the first change at or after a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchQuery:
    """A watch of changes. `heartbeat_s` is the longest time without a message, in seconds; `batch_max` limits the
    changes in one message.
    """

    start: Start = Edge.NOW
    where: ChangeFilter = EVERYTHING
    heartbeat_s: float | None = None
    batch_max: int = BATCH_DEFAULT
    full: bool = False
    """Include the records, in their state when the changes are sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """A page of the log to read; `limit` counts changes."""

    start: Start = Edge.EARLIEST
    where: ChangeFilter = EVERYTHING
    limit: int = PAGE_DEFAULT
    full: bool = False


Record: TypeAlias = Document | Memory | SemanticMemory | StoredEvent | Fact


@dataclass(frozen=True, slots=True)
class Started:
    """The first message of a watch: every change committed from now on will be sent. `cursor` is the starting
    position.
    """

    cursor: str
    heartbeat_s: float
    retained_since: datetime | None
    """Commit time of the oldest kept change; None if the log is empty."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One or more changes, in log order."""

    cursor: str
    changes: tuple[Change, ...]
    records: tuple[Record | None, ...]
    """One record per change, None if it no longer exists; empty without the full view."""
    caught_up: bool
    """The log had no newer change when this batch was read."""


@dataclass(frozen=True, slots=True)
class Progress:
    """No change matched. The cursor may still have moved."""

    cursor: str
    head_time: datetime | None
    """Commit time of the newest change; None if the log is empty."""
    caught_up: bool


FeedMessage: TypeAlias = Started | Batch | Progress


@dataclass(frozen=True, slots=True)
class ChangePage:
    """One page of the log; `records` as in a batch."""

    cursor: str
    changes: tuple[Change, ...]
    records: tuple[Record | None, ...]
    caught_up: bool
