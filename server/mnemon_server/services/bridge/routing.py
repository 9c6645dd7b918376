"""Which events of the timeline become statements, and with which content. Nothing here reads or writes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

from mnemon_server.domain.bridge import (
    CONTENT_MAX_MAX,
    CONTENT_MAX_MIN,
    EVENT_TYPES_DEFAULT,
    LINK_KEY,
    PruneAction,
    RoutingMode,
    RoutingPolicy,
)
from mnemon_server.domain.bridge.extraction import ExtractMode
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.events import EVENT_TYPE_BYTES_MAX, EVENT_TYPES_MAX, MESSAGE_TYPE, Event
from mnemon_server.domain.semantic import ConflictPolicy, SemanticMemory
from mnemon_server.domain.validation import BLANK_PROBLEM, id_violations, share_violations

POLICY_FIELDS = (
    "min_importance",
    "event_types",
    "mode",
    "content_max",
    "on_prune",
    "demoted_importance",
    "conflict_policy",
    "extract",
)
"""The fields of a policy that can be changed."""
SOURCE_DEFAULT = "conversation"
ELLIPSIS = "…"


class Skip(StrEnum):
    """Why an event did not become a statement."""

    IMPORTANCE = "importance"
    EVENT_TYPE = "event_type"
    NO_CONTENT = "no_content"
    GONE = "gone"
    """It was pruned before it was handled."""
    KNOWN = "known"
    """A caller saved the same statement directly; it stands on its own, and gets no link."""
    REJECTED = "rejected"
    """The merge rule decided for the known statement."""
    INVALID = "invalid"
    """No valid statement can be made from it, for example because it has no user."""
    IMPORTED = "imported"
    """It came with an import that keeps its events from the bridge."""
    FAILED = "failed"
    """It could not be saved in any attempt, although others could; the log says why."""
    NOT_EXTRACTED = "not_extracted"
    """The extractor's answers about its conversation were refused in every attempt."""
    QUARANTINED = "quarantined"
    """Its source was in quarantine."""


def skip_reason(policy: RoutingPolicy, event_type: str, importance: float | None) -> Skip | None:
    """Why a policy does not let an event through; None if it does. An unknown importance is never enough."""
    is_important = importance is not None and importance >= policy.min_importance
    is_of_type = event_type in policy.event_types
    if policy.mode is RoutingMode.ANY:
        return None if is_important or is_of_type else Skip.IMPORTANCE
    if not is_important:
        return Skip.IMPORTANCE
    return None if is_of_type else Skip.EVENT_TYPE


def is_extracted(policy: RoutingPolicy, event_type: str, conversation: str) -> bool:
    """Whether an event is a message that the policy gives to the extractor."""
    return policy.extract is not ExtractMode.OFF and event_type == MESSAGE_TYPE and bool(conversation)


def statement_of(event: Event, policy: RoutingPolicy) -> SemanticMemory:
    """The statement for an event that has content."""
    return SemanticMemory(
        memory_id="",
        content=shortened(event.content, policy.content_max),
        scope=event.scope,
        importance=event.importance,
        source=event.source or SOURCE_DEFAULT,
        metadata={LINK_KEY: (event.event_id,)},
        create_time=event.event_time,
    )


def shortened(content: str, characters_max: int) -> str:
    """The content, or its beginning up to the end of a word, with an ellipsis; at most `characters_max` characters."""
    if len(content) <= characters_max:
        return content
    text = content.strip()
    if len(text) <= characters_max:
        return text
    beginning = text[: characters_max - len(ELLIPSIS)]
    words = beginning.rstrip()
    if len(words) == len(beginning) and not text[len(beginning)].isspace():
        # The last, incomplete word is left out, unless hardly anything would remain.
        whole = beginning[: _end_of_words(beginning)].rstrip()
        words = whole if 2 * len(whole) >= len(beginning) else beginning
    return words + ELLIPSIS


def policy_violations(policy: RoutingPolicy) -> Iterable[FieldViolation]:
    """Violations in a policy."""
    for name in ("min_importance", "demoted_importance"):
        yield from share_violations(getattr(policy, name), f"policy.{name}")
    if not CONTENT_MAX_MIN <= policy.content_max <= CONTENT_MAX_MAX:
        yield FieldViolation("policy.content_max", f"must be {CONTENT_MAX_MIN} to {CONTENT_MAX_MAX:,}")
    if len(policy.event_types) > EVENT_TYPES_MAX:
        yield FieldViolation("policy.event_types", f"must be at most {EVENT_TYPES_MAX}")
        return
    for event_type in sorted(policy.event_types):
        if not event_type:
            yield FieldViolation("policy.event_types", BLANK_PROBLEM)
        yield from id_violations(event_type, "policy.event_types", EVENT_TYPE_BYTES_MAX)


def change_violations(change: RoutingPolicy, mask: Sequence[str]) -> Iterable[FieldViolation]:
    """Violations in a change of the fields that the mask names."""
    fields = ", ".join(POLICY_FIELDS)
    if not mask:
        yield FieldViolation("update_mask", f"must name what to change: {fields}")
    for path in mask:
        if path not in POLICY_FIELDS:
            yield FieldViolation(
                "update_mask", f"{path[:80]!r} is not a field that can be changed; these can: {fields}"
            )
    yield from policy_violations(changed(RoutingPolicy(), change, set(mask).intersection(POLICY_FIELDS)))


def changed(policy: RoutingPolicy, change: RoutingPolicy, mask: Iterable[str]) -> RoutingPolicy:
    """The policy with the fields that the mask names taken from `change`, and the next revision if that changes it."""
    after = replace(policy, **{name: getattr(change, name) for name in mask})
    after = replace(after, event_types=frozenset(after.event_types) or EVENT_TYPES_DEFAULT)
    return policy if after == policy else replace(after, revision=policy.revision + 1)


def policy_values(policy: RoutingPolicy) -> dict[str, Any]:
    """The policy as JSON values."""
    values = {name: getattr(policy, name) for name in ("revision", *POLICY_FIELDS)}
    return {**values, "event_types": sorted(policy.event_types)}


def policy_of(values: Mapping[str, Any]) -> RoutingPolicy:
    """The policy that `policy_values` wrote."""
    read = {
        "event_types": frozenset,
        "mode": RoutingMode,
        "on_prune": PruneAction,
        "conflict_policy": ConflictPolicy,
        "extract": ExtractMode,
    }
    return RoutingPolicy(**{name: read[name](value) if name in read else value for name, value in values.items()})


def _end_of_words(text: str) -> int:
    """Where the last space begins; 0 if there is no space."""
    return next((i for i in range(len(text) - 1, -1, -1) if text[i].isspace()), 0)
