"""The bridge from the timeline to semantic memory: its routing policy and its status."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from mnemon_server.domain.bridge.extraction import ExtractMode
from mnemon_server.domain.semantic import ConflictPolicy

EVENT_TYPES_DEFAULT = frozenset({"task", "reminder", "conversation"})
CONTENT_MAX_DEFAULT, CONTENT_MAX_MIN, CONTENT_MAX_MAX = 512, 16, 65_536
RECOVERED_LAG_S = 10.0
"""A saved event at most this old ends a suspension."""

LINK_KEY = "episodic_event_ids"
"""The metadata key under which a statement keeps the ids of its source events: a list of strings."""


class RoutingMode(StrEnum):
    """How the conditions of a policy are combined."""

    ALL = "all"
    ANY = "any"


class PruneAction(StrEnum):
    """The action on a statement whose events were pruned."""

    DELETE = "delete"
    DEMOTE = "demote"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingPolicy:
    """Which events become statements, and how. See `RoutingPolicy` in the protos."""

    min_importance: float = 0.6
    event_types: frozenset[str] = EVENT_TYPES_DEFAULT
    mode: RoutingMode = RoutingMode.ALL
    content_max: int = CONTENT_MAX_DEFAULT
    on_prune: PruneAction = PruneAction.DELETE
    demoted_importance: float = 0.1
    conflict_policy: ConflictPolicy = ConflictPolicy.IGNORE
    extract: ExtractMode = ExtractMode.OFF
    revision: int = field(default=1, compare=False)


@dataclass(frozen=True, slots=True)
class UpdatedPolicy:
    """The policy after an update."""

    policy: RoutingPolicy
    replayed: bool = False


class BridgeActivity(StrEnum):
    """The activity of the bridge."""

    RUNNING = "running"
    SUSPENDED = "suspended"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionCounts:
    """Counts of extractions from conversations since the vault was created."""

    waiting: int = 0
    """Messages that wait for the extractor now."""
    messages: int = 0
    """Messages whose statements were saved."""
    statements: int = 0
    """Statements that were saved."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Answers that were refused, by reason."""
    calls: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeStatus:
    """The status of the bridge; see `GetBridgeStatusResponse` in the protos. Counts start when the vault is created."""

    activity: BridgeActivity
    is_waiting: bool = False
    """The bridge waits before it retries a failed write."""
    message: str = ""
    routed_count: int = 0
    skipped_counts: Mapping[str, int] = field(default_factory=dict)
    linked_count: int = 0
    deleted_count: int = 0
    demoted_count: int = 0
    queue_depth: int = 0
    timeline_lag_s: float | None = None
    segment_count: int = 0
    handled_time: datetime | None = None
    policy: RoutingPolicy = RoutingPolicy()
    extraction: ExtractionCounts = ExtractionCounts()
    extraction_message: str = ""
    """Why messages wait for the extractor longer than usual."""
