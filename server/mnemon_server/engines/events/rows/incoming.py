"""New events, with everything that can be computed before they are stored."""

from typing import NamedTuple, TypeAlias

from mnemon_server.domain.clock import to_microseconds
from mnemon_server.domain.events import Event, content_digest
from mnemon_server.domain.records import RequestKey, Scope
from mnemon_server.engines.events.index.hashes import id_hash, key_hash
from mnemon_server.engines.events.named_tuples import maker
from mnemon_server.engines.promises.events import EventWrite
from mnemon_server.wire.events import encode

KeyTexts: TypeAlias = tuple[str, str, str, str, int, bytes]
"""The fields that identify duplicates: user, household, persona, type, microseconds, and SHA-256 of the content."""


class KnownEvent(NamedTuple):
    """A stored event."""

    event_id: str
    sequence: int
    segment_id: int
    user: str


class PreparedEvent(NamedTuple):
    """An event to store, with everything that can be computed in advance."""

    event_id: str
    id_is_new: bool
    id_hash: int
    key: KeyTexts
    key_hash: int
    scope: Scope
    importance: float | None
    body: bytes
    request: RequestKey | None
    is_imported: bool


_new_event = maker(PreparedEvent)


def prepare(write: EventWrite) -> PreparedEvent:
    """Encodes an event and computes its hashes."""
    event = write.event
    key = user, _, persona, event_type, time_us, digest = key_texts(event)
    return _new_event(
        (
            event.event_id,
            write.id_is_new,
            id_hash(event.event_id),
            key,
            key_hash(user, persona, event_type, time_us, digest),
            event.scope,
            event.importance,
            encode(event),
            write.request,
            write.is_imported,
        )
    )


def key_texts(event: Event) -> KeyTexts:
    """The fields that identify duplicates of this event."""
    scope = event.scope
    return (
        scope.user,
        scope.household,
        scope.persona,
        event.event_type,
        to_microseconds(event.event_time),
        content_digest(event.content),
    )
