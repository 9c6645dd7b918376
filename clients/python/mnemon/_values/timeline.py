"""The values that callers of the timeline pass and receive."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from mnemon._values.documents import (
    SCOPE_FIELDS,
    Answer,
    JsonValue,
    MetadataValue,
    Relevance,
    Scope,
    ScopeFields,
    SearchMode,
)
from mnemon._values.filters import FilterLike
from mnemon.shared.errors import MnemonError

TAGS = (*SCOPE_FIELDS, "source", "conversation")
"""The short texts that describe an event, beside its type."""
TEXTS = ("event_id", "event_type", "content", "context", "source", "conversation", "payload")
"""All texts that a caller sets on an event, except those of its scope."""


@dataclass(frozen=True, slots=True)
class EpisodicEvent(JsonValue):
    """Something that happened. `record_time` is the server's; it is ignored when an event is recorded."""

    event_type: str
    """"conversation", "task", "reminder", "emotion", "preference", "custom", or anything else."""
    content: str = ""
    event_id: str = ""
    """Unique in the timeline; empty means a new UUID."""
    user: str = ""
    """Required, to record it."""
    household: str = ""
    persona: str = ""
    agent: str = ""
    project: str = ""
    event_time: datetime | None = None
    """When it happened, to the microsecond; None means when it is recorded."""
    context: str = ""
    """The context of the event."""
    importance: float | None = None
    """How much it matters, 0 to 1; None if that is unknown."""
    source: str = ""
    """Where it comes from: "user", "conversation", "skill", "system", "inferred", or anything else."""
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    record_time: datetime | None = None
    """When the server recorded it."""
    conversation: str = ""
    """The user's conversation that it belongs to. Such an event is a duplicate only by its id."""
    payload: str = ""
    """Data of your program; never searched."""
    origin: str = ""
    """"user", "agent", "tool", "import" or "web", the most trusted first; empty counts like "agent"."""
    origin_name: str = ""
    """Which tool, file or site; only together with `origin`."""

    @property
    def scope(self) -> Scope:
        """Its scope as one value."""
        return Scope(**{name: getattr(self, name) for name in SCOPE_FIELDS})


class EventFilters(ScopeFields, total=False):
    """A filter of events, as keyword arguments: all that are given must match.

    A text must not be empty. `event_types` are joined by OR; events of unknown importance do not pass `min_importance`.
    """

    where: FilterLike
    """Anything else, as an expression of `F` or a mapping. It is the slow one: the events that pass the others are
    read."""
    event_types: Sequence[str]
    min_importance: float
    conversation: str
    min_trust: str
    """Excludes records from less trusted origins: "user", "agent", "tool", "import" or "web"."""


@dataclass(frozen=True, slots=True)
class EventReceipt(JsonValue):
    """The server's receipt for an event."""

    event_id: str
    """The id of the stored event, if it is a duplicate."""
    sequence: int
    """Its position in the order of storing: 1, 2, 3, ..."""
    segment_id: int
    """The segment that it belongs to: the sequence of that segment's first event."""
    commit_time: datetime | None
    duplicate: bool
    """The event was known; nothing was written."""
    replayed: bool
    """It had been stored by an earlier try of the same call."""
    duplicate_of: EpisodicEvent | None = None
    """From `add`: the stored event, if it was known."""


@dataclass(frozen=True, slots=True)
class RecordResult(JsonValue):
    """The result of one event of `add_many`: a receipt, or the error that `add` would have raised."""

    position: int
    """Its position among all items, from 0."""
    receipt: EventReceipt | None = None
    error: MnemonError | None = None

    @property
    def event_id(self) -> str:
        """The id of the stored event; empty if it failed."""
        return self.receipt.event_id if self.receipt else ""

    @property
    def duplicate(self) -> bool:
        """The event was known; nothing was written."""
        return self.receipt is not None and self.receipt.duplicate


@dataclass(frozen=True, slots=True)
class EventScore(JsonValue):
    """How well an event fits a text."""

    relevance: float
    """0 to 1, by which events are ordered."""
    similarity: float | None = None
    """Cosine similarity of the embeddings, 0 to 1; None if meaning was not compared."""
    keyword: float | None = None
    """BM25 relative to what the query's own text would score, 0 to 1; None if words were not compared."""


@dataclass(frozen=True, slots=True)
class EventMatch(JsonValue):
    """One event of a window."""

    event: EpisodicEvent
    """In the view "ids", its id alone."""
    score: EventScore | None = None
    """How well it matches the text; None without a text."""


@dataclass(frozen=True, slots=True)
class WindowDiagnostics(Relevance):
    """The number of events at each step of a query."""

    total_scanned: int
    """All events of the timeline."""
    filtered_by_context: int
    """Left out by scope, types, importance and `where`."""
    filtered_by_window: int
    """Left out by the window."""
    returned: int
    duration_s: float
    mode: SearchMode | None
    """How the text found events; None without a text."""
    pending: int
    """Events of the window that the text index does not yet have; the query missed them."""


@dataclass(frozen=True, slots=True)
class WindowAnswer(Answer[EpisodicEvent]):
    """The events of a window, newest first, or best first with a text. It is itself a sequence of the events."""

    results: tuple[EventMatch, ...]
    next_page_token: str
    """Empty after the last page."""
    diagnostics: WindowDiagnostics
    truncated: bool = False
    """The answer ended at 3 MiB: not all results fit."""

    @property
    def events(self) -> tuple[EpisodicEvent, ...]:
        """The events without their scores."""
        return tuple(match.event for match in self.results)

    @property
    def _items(self) -> tuple[EpisodicEvent, ...]:
        return self.events


@dataclass(frozen=True, slots=True)
class TimelinePage(JsonValue):
    """A page of events, newest first; `next_page_token` is empty after the last one."""

    events: tuple[EpisodicEvent, ...]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class EventSummary(JsonValue):
    """How many events there are, and when."""

    event_count: int
    earliest: datetime | None
    latest: datetime | None
    types: Mapping[str, int]
    """By type, most frequent first."""
    days: Mapping[str, int]
    """By day, such as "2026-01-31", in order; days without events are left out."""


@dataclass(frozen=True, slots=True)
class PruneReceipt(JsonValue):
    """Which events were removed for good; after a dry run, which would have been."""

    pruned_count: int
    event_ids: tuple[str, ...]
    """The first 1,000."""
    earliest: datetime | None
    latest: datetime | None
    segment_count: int
    """Segments that they were in."""
    replayed: bool


@dataclass(frozen=True, slots=True)
class CompactionProgress(JsonValue):
    """The progress of a compaction."""

    processed_bytes: int
    total_bytes: int
    segment_count: int
    """Segments there are now."""
    reclaimed_bytes: int
    """Given back to the disk so far."""
    done: bool
    replayed: bool = False
    """It is the end of the one that an earlier call with the same `request_id` asked for."""


class TimelineState(StrEnum):
    """The state of the timeline.

    `starting`: its index is being loaded, and calls are refused as unavailable. `degraded`: it serves, and something is
    wrong; acknowledged events are safe. `unavailable`: it cannot be read.
    """

    UNKNOWN = "unknown"
    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class LostRange(JsonValue):
    """A run of events that a damaged segment took along."""

    segment_id: int
    first_sequence: int
    last_sequence: int
    event_count: int
    notice_time: datetime | None


@dataclass(frozen=True, slots=True)
class TimelineStatus(JsonValue):
    """The state of the timeline, and which events were lost."""

    state: TimelineState
    message: str
    """The reason if it is not ready."""
    event_count: int
    segment_count: int
    """The active segment included."""
    active_segment_id: int
    """0 without an active segment."""
    segment_bytes: int
    unsealed_count: int
    """Committed events that are not yet in a sealed segment."""
    earliest: datetime | None
    latest: datetime | None
    index_bytes: int
    """Memory that the index uses on the server."""
    loaded_segment_count: int
    """While starting."""
    removal_pending_count: int
    """Removed events whose bytes are still on the disk."""
    lost: tuple[LostRange, ...]
    scrub_time: datetime | None
    """When every segment was last read and found sound."""
    retention_s: float | None
    """How long events are kept; None means for ever."""
    text_pending_count: int
    """Events that the text index does not yet have."""
