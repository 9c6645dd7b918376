"""Whether the log and the timeline speak of the same event: an id may be used again once its event was pruned."""

import json
from typing import Any

from mnemon_server.domain.changes import Change
from mnemon_server.domain.clock import to_microseconds
from mnemon_server.domain.episodic import EpisodicEvent, content_digest


def details_of(change: Change) -> dict[str, Any]:
    """What a change of the log says beyond its type."""
    details: dict[str, Any] = json.loads(change.details)
    return details


def is_told_of(change: Change, said: dict[str, Any], stored: EpisodicEvent) -> bool:
    """Whether the log's word of a saved event, with these details, is about the one that now has its id."""
    return (
        change.scope == stored.scope
        and said["event_type"] == stored.event_type
        and said["event_time"] == to_microseconds(stored.event_time)
        and said["importance"] == stored.importance
        and said["content_hash"] == content_digest(stored.content).hex()
    )
