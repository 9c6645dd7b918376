"""The values of the bridge from the timeline to what is known of users."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypedDict

from mnemon._values.documents import JsonValue
from mnemon._values.semantic import ConflictPolicy


class RoutingMode(StrEnum):
    """How the conditions of a policy are joined: importance and type must both fit, or one of them is enough."""

    ALL = "all"
    ANY = "any"


class PruneAction(StrEnum):
    """What becomes of a statement whose events were pruned.

    `delete`: it is removed for good. `demote`: it stays, with the importance that the policy says, at most.
    """

    DELETE = "delete"
    DEMOTE = "demote"


@dataclass(frozen=True, slots=True)
class RoutingPolicy(JsonValue):
    """Which events become statements, and how. An event without content never does.

    None and no types at all mean the server's default; what the server answers has the defaults filled in.
    """

    min_importance: float | None = None
    """Events at least so important pass, 0 to 1; 0.6 unless given. Unknown importance does not pass."""
    event_types: Sequence[str] = ()
    """Events of these types pass; "task", "reminder" and "conversation" unless given."""
    mode: str = RoutingMode.ALL
    content_max: int | None = None
    """Most characters of a statement's content; longer content is shortened. 512 unless given."""
    on_prune: str = PruneAction.DELETE
    demoted_importance: float | None = None
    """The importance that "demote" leaves at most; 0.1 unless given."""
    conflict_policy: str = ConflictPolicy.IGNORE
    """What a save does about conflicts; see `save_semantic`."""
    revision: int = field(default=0, compare=False)
    """The server's; it grows by one with every change."""


class PolicyChanges(TypedDict, total=False):
    """What of a policy is to be changed, as keyword arguments; None and no types at all mean the server's default."""

    min_importance: float | None
    event_types: Sequence[str]
    mode: str
    content_max: int | None
    on_prune: str
    demoted_importance: float | None
    conflict_policy: str


class BridgeState(StrEnum):
    """How the bridge is.

    `ready`: it runs. `degraded`: it is suspended, or waits to try again what failed. `unavailable`: it is paused.
    """

    UNKNOWN = "unknown"
    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    UNAVAILABLE = "unavailable"


class BridgeActivity(StrEnum):
    """What the bridge does.

    `suspended`: a warning of the timeline stops it, until the timeline is healthy again. `paused`: until it is resumed.
    """

    UNKNOWN = "unknown"
    RUNNING = "running"
    SUSPENDED = "suspended"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class BridgeStatus(JsonValue):
    """How the bridge is, and what it did since the vault was created."""

    state: BridgeState
    message: str
    """Why, where it is not ready; or what it is doing first."""
    activity: BridgeActivity
    routed_count: int
    """Events that were saved as statements."""
    skipped_counts: Mapping[str, int]
    """Events that were not, by reason, such as "importance", "event_type", "no_content" or "gone"."""
    linked_count: int
    """Statements that were known, and got a link to the event."""
    deleted_count: int
    """Statements removed because their events were pruned."""
    demoted_count: int
    queue_depth: int
    """Events of the feed that have yet to be handled."""
    timeline_lag_s: float | None
    """Of the last event that was handled: how long after it happened it was saved."""
    segment_count: int
    """Segments that the timeline had then."""
    handled_time: datetime | None
    """When the last event that was handled was committed."""
    policy: RoutingPolicy
