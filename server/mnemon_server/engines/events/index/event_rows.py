"""Creates an event's row for the index from its body."""

from mnemon_server.domain.clock import to_microseconds
from mnemon_server.domain.events import content_digest
from mnemon_server.engines.events.index.hashes import id_hash, key_hash
from mnemon_server.engines.events.index.rows import NO_OFFSET, EventRow
from mnemon_server.wire.events import decode


def event_row(sequence: int, body: bytes, offset: int = NO_OFFSET) -> EventRow:
    """The index row of an event whose frame starts at `offset`."""
    event = decode(body)
    scope, time_us = event.scope, to_microseconds(event.event_time)
    digest = content_digest(event.content)
    return EventRow(
        sequence=sequence,
        time_us=time_us,
        id_hash=id_hash(event.event_id),
        key_hash=key_hash(scope.user, scope.persona, event.event_type, time_us, digest),
        scope=scope,
        event_type=event.event_type,
        importance=event.importance,
        offset=offset,
    )
