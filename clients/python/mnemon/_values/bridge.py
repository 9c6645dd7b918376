"""The values of the bridge from the timeline to semantic memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypedDict

from mnemon._values.decisions import Decision
from mnemon._values.documents import JsonValue
from mnemon._values.semantic import ConflictPolicy, SemanticMemory


class RoutingMode(StrEnum):
    """How the conditions of a policy are joined: importance and type must both match, or one of them."""

    ALL = "all"
    ANY = "any"


class PruneAction(StrEnum):
    """The action on a statement whose events were pruned.

    `delete`: it is removed for good. `demote`: it stays, with at most the importance that the policy sets.
    """

    DELETE = "delete"
    DEMOTE = "demote"


class ExtractMode(StrEnum):
    """How the messages of conversations become statements.

    `off`: messages stay events like all others. `model`: a chat model that the operator configured. `service`: the
    operator's own ExtractorService.
    """

    OFF = "off"
    MODEL = "model"
    SERVICE = "service"


@dataclass(frozen=True, slots=True)
class RoutingPolicy(JsonValue):
    """Which events become statements, and how. An event without content never does.

    None and an empty `event_types` mean the server's default. Answers have the defaults filled in.
    """

    min_importance: float | None = None
    """Events of at least this importance pass, 0 to 1. Default 0.6. An unknown importance does not pass."""
    event_types: Sequence[str] = ()
    """Events of these types pass. Default "task", "reminder" and "conversation"."""
    mode: str = RoutingMode.ALL
    content_max: int | None = None
    """Maximum length of a statement's content in characters; longer content is shortened. Default 512."""
    on_prune: str = PruneAction.DELETE
    demoted_importance: float | None = None
    """The maximum importance after "demote". Default 0.1."""
    conflict_policy: str = ConflictPolicy.IGNORE
    """How a save handles conflicts; see `semantic.add`. Conflicts of extracted statements are always resolved."""
    extract: str = ExtractMode.OFF
    """How the messages of conversations become statements; unless it is off, the other fields do not apply to them."""
    revision: int = field(default=0, compare=False)
    """Set by the server; every change increases it by one."""


class PolicyChanges(TypedDict, total=False):
    """Changes of a policy, as keyword arguments. None and an empty `event_types` mean the server's default."""

    min_importance: float | None
    event_types: Sequence[str]
    mode: str
    content_max: int | None
    on_prune: str
    demoted_importance: float | None
    conflict_policy: str
    extract: str


class BridgeState(StrEnum):
    """The state of the bridge.

    `ready`: it runs. `degraded`: it is suspended, or waits to retry. `unavailable`: it is paused.
    """

    UNKNOWN = "unknown"
    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    UNAVAILABLE = "unavailable"


class BridgeActivity(StrEnum):
    """The activity of the bridge.

    `suspended`: a warning of the timeline stops it, until the timeline is healthy again. `paused`: until it is resumed.
    """

    UNKNOWN = "unknown"
    RUNNING = "running"
    SUSPENDED = "suspended"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class ExtractionStatus(JsonValue):
    """The extraction from conversations, with its counts since the vault was created."""

    message: str
    """Why messages wait longer than until their batch ends; empty if they do not."""
    waiting_count: int
    """Messages that wait for the extractor."""
    extracted_count: int
    """Messages whose statements were saved."""
    statement_count: int
    """Statements that were saved."""
    refused_counts: Mapping[str, int]
    """Answers that were refused, by reason: "not_json", "wrong_shape", "unknown_id", "too_long" or "rejected"."""
    call_count: int
    """Calls that were answered."""
    token_count: int
    """Tokens that they took."""


@dataclass(frozen=True, slots=True)
class BridgeStatus(JsonValue):
    """The state of the bridge, and its counts since the vault was created."""

    state: BridgeState
    message: str
    """The reason if it is not ready, or what it does before it is."""
    activity: BridgeActivity
    routed_count: int
    """Events that were saved as statements."""
    skipped_counts: Mapping[str, int]
    """Events that were not saved, by reason, such as "importance", "event_type", "no_content" or "gone"."""
    linked_count: int
    """Known statements that got a link to the event."""
    deleted_count: int
    """Statements removed because their events were pruned."""
    demoted_count: int
    queue_depth: int
    """Events of the feed that are not yet handled."""
    timeline_lag_s: float | None
    """How long after it happened the last handled event was saved."""
    segment_count: int
    """Number of segments of the timeline at that time."""
    handled_time: datetime | None
    """When the last handled event was committed."""
    policy: RoutingPolicy
    extraction: ExtractionStatus | None = None
    """None if nothing is or was extracted."""


@dataclass(frozen=True, slots=True)
class ExtractedStatement(JsonValue):
    """A statement that an extractor made, and what a save would make of it."""

    content: str
    """The text as the extractor wrote it."""
    message_ids: Sequence[str]
    """The messages that say so."""
    updates: str
    """The id of the known statement that it updates, according to the extractor; empty if it updates none."""
    memory: SemanticMemory | None
    """The statement that would be stored; None if it would be rejected."""
    duplicate: bool
    """The same content is already stored, as `memory`."""
    decision: Decision | None
    """None without a conflict."""


@dataclass(frozen=True, slots=True)
class ExtractionPreview(JsonValue):
    """The statements that an extraction would save."""

    statements: Sequence[ExtractedStatement]
    summary: str
    """The summary of the conversation that would be recorded; empty without one."""
    refusal: str | None
    """Why the answer was refused, such as "not_json"; None if it was not."""
    refusal_message: str
    message_count: int
    """Messages that the extractor was asked about."""
    token_count: int
