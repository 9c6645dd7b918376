"""The body of a frame: the published message `mnemon.v1.EpisodicEvent`, so that any protobuf tool can read a
segment.
"""

from collections.abc import Callable, Mapping
from datetime import datetime

from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import episodic_pb2

from mnemon_server.domain.clock import EPOCH
from mnemon_server.domain.events import Event
from mnemon_server.domain.records import MetadataValue
from mnemon_server.wire.values import (
    fill_metadata,
    fill_scope,
    fill_time,
    metadata_from_pb,
    scope_from_pb,
    time_from_pb,
)

_EVENT_ID_TAG = episodic_pb2.EpisodicEvent.EVENT_ID_FIELD_NUMBER << 3 | 2
_LONG_LENGTH = 0x80
"""Varint lengths from here on take more than one byte."""


def encode(event: Event) -> bytes:
    """Serialises the event. Equal events give equal bytes, whatever the order of their metadata."""
    # Only fields that are set, one by one: arguments take half as long again, and every recorded event passes here.
    message = episodic_pb2.EpisodicEvent()
    message.event_id = event.event_id
    message.event_type = event.event_type
    message.content = event.content
    if event.context:
        message.context = event.context
    if event.importance is not None:
        message.importance = event.importance
    if event.source:
        message.source = event.source
    fill_scope(message, event.scope)
    fill_time(message.event_time, event.event_time)
    fill_time(message.record_time, event.record_time)
    if event.metadata:
        fill_metadata(message.metadata, event.metadata)
    if event.conversation:
        message.conversation = event.conversation
    if event.payload:
        message.payload = event.payload
    return message.SerializeToString(deterministic=True)


def decode(body: bytes) -> Event:
    """Deserialises the output of `encode`.

    Raises:
        google.protobuf.message.DecodeError: the bytes are not such a message. A frame's checksum makes this impossible.
    """
    message = episodic_pb2.EpisodicEvent.FromString(body)
    return Event(
        event_id=message.event_id,
        event_type=message.event_type,
        event_time=_time(message.event_time),
        content=message.content,
        context=message.context,
        scope=scope_from_pb(message.scope),
        importance=message.importance if message.HasField("importance") else None,
        source=message.source,
        metadata=metadata_from_pb(message.metadata, list_max=None),
        record_time=_time(message.record_time),
        conversation=message.conversation,
        payload=message.payload,
    )


def event_id_of(body: bytes) -> str:
    """The id of an event without parsing the rest. `encode` writes that field first."""
    if len(body) > 2 and body[0] == _EVENT_ID_TAG and body[1] < _LONG_LENGTH:
        return body[2 : 2 + body[1]].decode()
    return str(episodic_pb2.EpisodicEvent.FromString(body).event_id)


def text_of(body: bytes, head: Callable[[Mapping[str, MetadataValue], str], str]) -> str:
    """The searchable text of an event: its head, its content, and its context on a new line; "" if it has neither of
    the last two.
    """
    message = episodic_pb2.EpisodicEvent.FromString(body)
    text = "\n".join(part for part in (message.content, message.context) if part)
    return head(metadata_from_pb(message.metadata, list_max=None), text) + text if text else ""


def _time(message: Timestamp) -> datetime:
    # Only `encode` writes them, so that each is a time.
    return time_from_pb(message) or EPOCH
