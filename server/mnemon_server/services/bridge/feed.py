"""Turns entries of the log and events of the timeline into items for the bridge."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from mnemon_server.domain.bridge import RoutingPolicy
from mnemon_server.domain.changes import Change, ChangeFilter, ChangeType
from mnemon_server.domain.clock import to_microseconds
from mnemon_server.domain.events import Event, StoredEvent
from mnemon_server.domain.records import Scope
from mnemon_server.engines.promises.events import EventEngine
from mnemon_server.services.bridge.pending import StoredMessage
from mnemon_server.services.bridge.routing import Skip, is_extracted, skip_reason
from mnemon_server.services.bridge.saving import Item
from mnemon_server.services.bridge.state import Suspension
from mnemon_server.services.feed.identity import details_of, is_told_of
from mnemon_server.wire.events import decode

FOLLOWED = ChangeFilter(
    types=frozenset(
        {
            ChangeType.EPISODIC_SAVED,
            ChangeType.EPISODIC_PRUNED,
            ChangeType.EPISODIC_WARNING,
            ChangeType.EPISODIC_HEALTHY,
        }
    )
)


Hides = Callable[[Scope], bool]
"""Whether records with the origin of a scope are in quarantine."""


def runs_of(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """The changes in their order: consecutive saved events together, every other change on its own."""
    for kind, run in groupby(changes, key=lambda change: change.type):
        if kind is ChangeType.EPISODIC_SAVED:
            yield list(run)
        else:
            yield from ([change] for change in run)


def items_of_log(
    events: EventEngine, changes: Sequence[Change], policy: RoutingPolicy, hides: Hides, *, taken_through: int
) -> list[Item]:
    """The items for saved events; those up to `taken_through` were handled before. Reads the timeline."""
    said = [details_of(change) for change in changes]
    extracted = [is_extracted(policy, one["event_type"], one.get("conversation", "")) for one in said]
    skips = [_skip_reason(policy, one, is_message) for one, is_message in zip(said, extracted, strict=True)]
    wanted = [change.record_id for change, skip in zip(changes, skips, strict=True) if skip is None]
    # The last one is always looked up: its sequence says how far the timeline was handled.
    ids = list(dict.fromkeys([*wanted, changes[-1].record_id]))
    stored = {one.position.event_id: one for one in events.get(ids) if one is not None}
    decoded = {event_id: decode(one.body) for event_id, one in stored.items()}
    items = []
    for change, one, is_message, skip in zip(changes, said, extracted, skips, strict=True):
        # The id may have been used again for a later event, which has another entry in the log.
        is_meant = change.record_id in stored and is_told_of(change, one, decoded[change.record_id])
        found = stored[change.record_id] if is_meant else None
        progress = {
            "position": change.sequence,
            "lag_us": one["lag_us"],
            "segment_count": one["segment_count"],
            "handled_us": to_microseconds(change.time),
        }
        if found is not None:
            progress["timeline_sequence"] = found.sequence
        if found is not None and found.sequence <= taken_through:
            items.append(Item({"position": change.sequence}))
        elif skip is None and found is not None:
            items.append(_item_of(decoded[change.record_id], found.sequence, progress, hides, is_message=is_message))
        else:
            items.append(Item(progress, skip=skip or Skip.GONE))
    return items


def items_of_timeline(
    events: Sequence[StoredEvent], policy: RoutingPolicy, hides: Hides, *, segment_count: int
) -> list[Item]:
    """The items for events that the log no longer names."""
    items = []
    for stored in events:
        event = decode(stored.body)
        recorded_us = to_microseconds(event.record_time)
        progress = {
            "timeline_sequence": stored.sequence,
            "lag_us": max(0, recorded_us - stored.position.time_us),
            "segment_count": segment_count,
            "handled_us": recorded_us,
        }
        is_message = is_extracted(policy, event.event_type, event.conversation)
        skip = None if is_message else skip_reason(policy, event.event_type, event.importance)
        item = _item_of(event, stored.sequence, progress, hides, is_message=is_message)
        items.append(Item(progress, skip=skip) if skip else item)
    return items


def suspension_of(change: Change) -> Suspension:
    """The warning that a change holds."""
    said = details_of(change)
    return Suspension(said["severity"], said["message"], said["remediation"])


def _skip_reason(policy: RoutingPolicy, said: dict[str, Any], is_message: bool) -> Skip | None:  # noqa: FBT001
    if said.get("imported"):
        return Skip.IMPORTED
    if is_message:
        return None
    return skip_reason(policy, said["event_type"], said["importance"])


def _item_of(event: Event, sequence: int, progress: dict[str, Any], hides: Hides, *, is_message: bool) -> Item:
    if hides(event.scope):
        return Item(progress, skip=Skip.QUARANTINED)
    if not event.content.strip():
        return Item(progress, skip=Skip.NO_CONTENT)
    if not is_message:
        return Item(progress, event=event)
    if not event.scope.user:
        return Item(progress, skip=Skip.INVALID)
    return Item(progress, message=StoredMessage(event, sequence))
