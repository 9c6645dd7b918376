"""New events, with everything that can be computed before they are stored, and the hashes by which events are found."""

import hashlib
from struct import Struct
from typing import NamedTuple, TypeAlias

from mnemon_server.domain.clock import to_microseconds
from mnemon_server.domain.events import Event, content_digest
from mnemon_server.domain.records import RequestKey, Scope
from mnemon_server.engines.promises.events import EventWrite
from mnemon_server.wire.events import encode

KeyTexts: TypeAlias = tuple[str, str, str, str, int, bytes, str]
"""The fields that identify duplicates: user, household, persona, type, microseconds, SHA-256 of the content, and of an
event of a conversation its id.
"""

_HASH_BYTES = 8
_FRAME = Struct("<IIIIq").pack


class PreparedEvent(NamedTuple):
    """An event to store, with everything that can be computed in advance."""

    event_id: str
    id_is_new: bool
    id_hash: int
    key: KeyTexts
    key_hash: int
    scope: Scope
    importance: float | None
    conversation: str
    body: bytes
    request: RequestKey | None
    is_imported: bool
    within: tuple[Scope, ...] | None


def prepare(write: EventWrite) -> PreparedEvent:
    """Encodes an event and computes its hashes."""
    event = write.event
    key = key_texts(event)
    return PreparedEvent(
        event.event_id,
        write.id_is_new,
        id_hash(event.event_id),
        key,
        key_hash(key),
        event.scope,
        event.importance,
        event.conversation,
        encode(event),
        write.request,
        write.is_imported,
        write.within,
    )


def key_texts(event: Event) -> KeyTexts:
    """The fields that identify duplicates of this event."""
    scope = event.scope
    time_us, digest = to_microseconds(event.event_time), content_digest(event.content)
    name = event.event_id if event.conversation else ""
    return scope.user, scope.household, scope.persona, event.event_type, time_us, digest, name


def id_hash(event_id: str) -> int:
    """64 bits of an event's id, signed."""
    return _hash(event_id.encode())


def key_hash(key: KeyTexts) -> int:
    """64 bits of an event's key, signed."""
    *texts, time_us, digest, name = key
    user, household, persona, event_type = (text.encode() for text in texts)
    # With the lengths, so that no two keys give the same bytes.
    frame = _FRAME(len(user), len(household), len(persona), len(event_type), time_us)
    return _hash(b"".join((frame, digest, user, household, persona, event_type, name.encode())))


def _hash(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=_HASH_BYTES).digest(), "little", signed=True)
