"""Episodic events, and the requests and answers of the timeline."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from mnemon_server.domain.clock import EPOCH
from mnemon_server.domain.collections import FieldType
from mnemon_server.domain.encoding import SCOPE_FIELDS
from mnemon_server.domain.filters import Expression, FilterFields
from mnemon_server.domain.origins import Provenance
from mnemon_server.domain.records import MetadataValue, Relevance, Scope, SearchMode

LIMIT_DEFAULT, LIMIT_MAX = 50, 1_000
LAST_DAYS_DEFAULT, LAST_DAYS_MAX = 30, 36_500
MESSAGE_TYPE = "message"
"""The type of events that are messages of a conversation."""
EVENT_ID_BYTES_MAX = 256
EVENT_TYPE_BYTES_MAX, EVENT_TYPES_MAX = 128, 64
CONTEXT_BYTES_MAX = 65_536
SOURCE_BYTES_MAX = 256
CONVERSATION_BYTES_MAX = 256
PAYLOAD_BYTES_MAX = 1 << 20
EVENTS_PER_MESSAGE_MAX = 10_000
IDS_MAX = 1_000

FILTER_FIELDS = FilterFields(
    "event",
    {
        **dict.fromkeys(("event_id", *SCOPE_FIELDS, "event_type", "content", "context"), FieldType.TEXT),
        **dict.fromkeys(("source", "conversation"), FieldType.TEXT),
        "importance": FieldType.NUMBER,
        **dict.fromkeys(("event_time", "record_time"), FieldType.TIME),
    },
)
"""The fields that a filter can name, in addition to "metadata." with a key."""


@dataclass(slots=True)
class Event:
    """Something that happened; see `Event` in the protos.

    Treat it as immutable after it has been passed on. It is not frozen because creating a frozen instance takes four
    times as long, and the timeline creates many.
    """

    event_id: str
    event_type: str
    event_time: datetime
    content: str = ""
    context: str = ""
    scope: Scope = Scope()
    importance: float | None = None
    source: str = ""
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    record_time: datetime = EPOCH
    """When the server received it."""
    conversation: str = ""
    """The conversation of its user that it belongs to, if any."""
    payload: str = ""
    """Data of the program that recorded it; never searched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSelection:
    """Selects events. All fields that are set must match. Times are inclusive."""

    scope: Scope = Scope()
    event_types: frozenset[str] = frozenset()
    min_importance: float | None = None
    conversation: str = ""
    whole_scope: bool = False
    """Whether the fields of the owner that are empty must be empty, too."""
    start: datetime | None = None
    end: datetime | None = None
    expression: Expression | None = None
    without: tuple[Provenance, ...] = ()
    """Where the events do not come from."""

    def __bool__(self) -> bool:
        """False if it selects everything."""
        return self != EventSelection()


class EventPosition(NamedTuple):
    """A position in the order of events: by time, then by the UTF-8 bytes of the id."""

    time_us: int
    event_id: str


class StoredEvent(NamedTuple):
    """An event as stored. `body` is a serialized `mnemon.v1.EpisodicEvent`."""

    position: EventPosition
    sequence: int
    segment_id: int
    body: bytes


class EventReceipt(NamedTuple):
    """The confirmation of a stored event. Its promises hold once a caller has it."""

    event_id: str
    """For a duplicate: the time of the stored event."""
    sequence: int
    segment_id: int
    commit_time: datetime
    duplicate: bool = False
    replayed: bool = False


@dataclass(slots=True)
class RecordEvent:
    """An event to store. Values that only the server sets are ignored; if the id is empty, the server chooses one."""

    event: Event
    request_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowQuery:
    """Selects a window of events: the newest, or the best matches for `text`.

    The default is the last 30 days, if neither `last_days` nor `start` or `end` in `where` is set.
    """

    where: EventSelection = EventSelection()
    last_days: int | None = None
    has_range: bool = False
    """If true, `start` and `end` in `where` were given, and one that is None is open."""
    limit: int = LIMIT_DEFAULT
    after: EventPosition | None = None
    """The last event of the previous page."""
    text: str | None = None
    vector: Sequence[float] | None = None
    """A vector of the server's model to compare instead of the text's; only with a text, which may be empty."""
    mode: SearchMode = SearchMode.HYBRID


@dataclass(frozen=True, slots=True)
class EventScore:
    """How well an event matches a text. All scores are 0 to 1; None if that comparison was not made."""

    relevance: float
    similarity: float | None = None
    keyword: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowDiagnostics:
    """Number of events at each stage of a query; see `SearchDiagnostics` in the protos."""

    total_scanned: int = 0
    filtered_by_context: int = 0
    filtered_by_window: int = 0
    returned: int = 0
    duration_s: float = 0.0
    mode: SearchMode | None = None
    pending: int = 0
    exact: bool = True
    relevance: Relevance | None = None


@dataclass(frozen=True, slots=True)
class WindowPage:
    """A page of events. `next_position` is None after the last page. `scores` has one score per event for a text
    query.
    """

    events: tuple[StoredEvent, ...]
    next_position: EventPosition | None
    diagnostics: WindowDiagnostics
    scores: tuple[EventScore, ...] = ()
    truncated: bool = False
    """The page ended early because of its size in bytes."""


@dataclass(frozen=True, slots=True)
class RangeSummary:
    """Counts of the events in a range. `days` are counted from 1970, in ascending order, without empty days."""

    event_count: int
    earliest: datetime | None
    latest: datetime | None
    types: tuple[tuple[str, int], ...] = ()
    """Most frequent first, then by name."""
    days: tuple[tuple[int, int], ...] = ()


class PruneReason(StrEnum):
    """Why events were pruned."""

    RETENTION = "retention"
    REQUESTED = "requested"


@dataclass(frozen=True, slots=True)
class PrunedEvents:
    """The result of a pruning, or of its dry run. `event_ids` has the first 1,000."""

    count: int
    event_ids: tuple[str, ...] = ()
    earliest: datetime | None = None
    latest: datetime | None = None
    segment_count: int = 0
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class CompactionProgress:
    """Progress of a compaction."""

    processed_bytes: int = 0
    total_bytes: int = 0
    segment_count: int = 0
    reclaimed_bytes: int = 0
    done: bool = False
    replayed: bool = False


class EventsState(StrEnum):
    """The state of the timeline."""

    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class LostRange:
    """A run of events that were lost with a damaged segment."""

    segment_id: int
    first_sequence: int
    last_sequence: int
    event_count: int
    notice_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsStatus:
    """The status of the timeline; see `GetTimelineStatusResponse` in the protos."""

    state: EventsState
    message: str = ""
    event_count: int = 0
    segment_count: int = 0
    active_segment_id: int = 0
    segment_bytes: int = 0
    unsealed_count: int = 0
    earliest: datetime | None = None
    latest: datetime | None = None
    index_bytes: int = 0
    loaded_segment_count: int = 0
    removal_pending_count: int = 0
    lost: tuple[LostRange, ...] = ()
    scrub_time: datetime | None = None
    retention_s: float | None = None
    text_pending_count: int = 0


def content_digest(content: str) -> bytes:
    """SHA-256 of an event's content in UTF-8: 32 bytes."""
    return hashlib.sha256(content.encode()).digest()
