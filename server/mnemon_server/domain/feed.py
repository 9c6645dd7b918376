"""The change feed: what watchers and readers of the log ask for, and what they are told."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from mnemon_server.domain.changes import BATCH_DEFAULT, Change, ChangeFilter
from mnemon_server.domain.documents import Document
from mnemon_server.domain.episodic import StoredEvent
from mnemon_server.domain.facts import Fact
from mnemon_server.domain.memories import Memory
from mnemon_server.domain.semantic import SemanticMemory

HEARTBEAT_DEFAULT_S, HEARTBEAT_MIN_S, HEARTBEAT_MAX_S = 15.0, 5.0, 60.0
PAGE_DEFAULT = 100
TYPES_MAX = 64
EVERYTHING = ChangeFilter()


class Edge(StrEnum):
    """An end of the log."""

    EARLIEST = "earliest"
    NOW = "now"


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place that an earlier answer named; what it says is the feed's own."""

    text: str


Start: TypeAlias = Edge | Cursor | datetime
"""Where to begin: at an end of the log, behind a cursor, or with the first change at or after a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchQuery:
    """What to watch. `heartbeat_s`, in seconds, is the longest silence; `batch_max` counts changes of a message."""

    start: Start = Edge.NOW
    where: ChangeFilter = EVERYTHING
    heartbeat_s: float | None = None
    batch_max: int = BATCH_DEFAULT
    full: bool = False
    """With the records, as they are when the changes are sent."""


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
    """Said once, first: everything committed from now on will be told. `cursor` is where the watch begins."""

    cursor: str
    heartbeat_s: float
    retained_since: datetime | None
    """Commit time of the oldest change that is kept; None if the log is empty."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes in log order, at least one."""

    cursor: str
    changes: tuple[Change, ...]
    records: tuple[Record | None, ...]
    """One for each change, None where it is gone; empty without the full view."""
    caught_up: bool
    """Nothing newer was in the log when this was read."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Nothing matched; the cursor may have moved."""

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
