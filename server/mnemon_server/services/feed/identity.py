"""The identity of an event in the details of a change: after an event is pruned, its id may be used again."""

import json
from typing import Any

from mnemon_server.domain.changes import Change, ChangeType
from mnemon_server.domain.clock import to_microseconds
from mnemon_server.domain.events import Event, StoredEvent, content_digest
from mnemon_server.wire.events import decode


def details_of(change: Change) -> dict[str, Any]:
    """The decoded details of a change."""
    details: dict[str, Any] = json.loads(change.details)
    return details


def is_told_of(change: Change, said: dict[str, Any], stored: Event) -> bool:
    """Whether the log's change for a saved event, with these details, is about the event that has its id now."""
    return (
        change.scope == stored.scope
        and said["event_type"] == stored.event_type
        and said["event_time"] == to_microseconds(stored.event_time)
        and said["importance"] == stored.importance
        and said["content_hash"] == content_digest(stored.content).hex()
    )


def with_content(change: Change, record: object) -> Change:
    """The change for a saved event with the content in its details; the change itself if there is no such event."""
    if not isinstance(record, StoredEvent):
        return change
    return change._replace(details=json.dumps(details_of(change) | {"content": decode(record.body).content}))


def without_foreign(change: Change) -> Change:
    """The change without what concerns others: whose call it was, and how many segments all events have."""
    details = change.details
    if change.type is ChangeType.EPISODIC_SAVED:
        details = json.dumps(details_of(change) | {"segment_count": 0})
    return change._replace(request_id="", details=details)
