"""What the log and the timeline say, as what the bridge has to handle."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from mnemon_server.domain.bridge import RoutingPolicy
from mnemon_server.domain.changes import Event, EventFilter, EventType
from mnemon_server.domain.clock import to_microseconds
from mnemon_server.domain.episodic import EpisodicEvent, StoredEvent
from mnemon_server.engines.promises.timeline import Timeline
from mnemon_server.services.bridge.routing import Skip, skip_reason
from mnemon_server.services.bridge.saving import Item
from mnemon_server.services.bridge.state import Suspension
from mnemon_server.services.feed.identity import details_of, is_told_of
from mnemon_server.wire.events import decode

FOLLOWED = EventFilter(
    types=frozenset(
        {
            EventType.EPISODIC_SAVED,
            EventType.EPISODIC_PRUNED,
            EventType.EPISODIC_WARNING,
            EventType.EPISODIC_HEALTHY,
        }
    )
)


def runs_of(events: Sequence[Event]) -> Iterator[list[Event]]:
    """The events in their order: saved ones that follow each other together, every other one by itself."""
    for kind, run in groupby(events, key=lambda event: event.type):
        if kind is EventType.EPISODIC_SAVED:
            yield list(run)
        else:
            yield from ([event] for event in run)


def items_of_log(
    timeline: Timeline, events: Sequence[Event], policy: RoutingPolicy, *, taken_through: int
) -> list[Item]:
    """What is to be done about saved events; those up to `taken_through` were handled before. Reads the timeline."""
    said = [details_of(event) for event in events]
    skips = [_skip_reason(policy, one) for one in said]
    wanted = [event.record_id for event, skip in zip(events, skips, strict=True) if skip is None]
    # The last one is looked up in any case, to know how far the timeline was handled.
    ids = list(dict.fromkeys([*wanted, events[-1].record_id]))
    stored = {one.position.event_id: one for one in timeline.get(ids) if one is not None}
    decoded = {event_id: decode(one.body) for event_id, one in stored.items()}
    items = []
    for event, one, skip in zip(events, said, skips, strict=True):
        # An id may have been used again, for an event that comes later, and that other words of the log are about.
        is_meant = event.record_id in stored and is_told_of(event, one, decoded[event.record_id])
        found = stored[event.record_id] if is_meant else None
        progress = {
            "position": event.sequence,
            "lag_us": one["lag_us"],
            "segment_count": one["segment_count"],
            "handled_us": to_microseconds(event.time),
        }
        if found is not None:
            progress["timeline_sequence"] = found.sequence
        if found is not None and found.sequence <= taken_through:
            items.append(Item({"position": event.sequence}))
        elif skip is None and found is not None:
            items.append(_item_of(decoded[event.record_id], progress))
        else:
            items.append(Item(progress, skip=skip or Skip.GONE))
    return items


def items_of_timeline(events: Sequence[StoredEvent], policy: RoutingPolicy, *, segment_count: int) -> list[Item]:
    """What is to be done about events that the log no longer tells of."""
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
        skip = skip_reason(policy, event.event_type, event.importance)
        items.append(Item(progress, skip=skip) if skip else _item_of(event, progress))
    return items


def suspension_of(event: Event) -> Suspension:
    """The warning that an event is."""
    said = details_of(event)
    return Suspension(said["severity"], said["message"], said["remediation"])


def _skip_reason(policy: RoutingPolicy, said: dict[str, Any]) -> Skip | None:
    if said.get("imported"):
        return Skip.IMPORTED
    return skip_reason(policy, said["event_type"], said["importance"])


def _item_of(event: EpisodicEvent, progress: dict[str, Any]) -> Item:
    if not event.content.strip():
        return Item(progress, skip=Skip.NO_CONTENT)
    return Item(progress, event=event)
