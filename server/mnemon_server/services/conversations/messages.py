"""Messages as events of the timeline, and back.

The id of an event is unique in the timeline, the id of a message only in its conversation. So the event's id is made
from both the conversation and the message's id. Fields that events lack are stored as JSON in the payload.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from hashlib import blake2b
from typing import Any

from mnemon_server.domain.conversations import (
    SPEAKER_KEY,
    ConversationKey,
    Message,
    StoredMessage,
    ToolCall,
)
from mnemon_server.domain.encoding import owner_values
from mnemon_server.domain.events import MESSAGE_TYPE, Event, StoredEvent
from mnemon_server.domain.origins import Origin, trust
from mnemon_server.domain.records import Scope
from mnemon_server.domain.validation import normalised_metadata
from mnemon_server.wire.events import decode

TITLE_CHARS_MAX = 80
_DIGEST_BYTES = 16
_ORIGINS = {"user": Origin.USER, "assistant": Origin.AGENT, "tool": Origin.TOOL}
"""The origins of messages by their roles."""


def event_id_of(conversation: ConversationKey, message_id: str) -> str:
    """The id of the event of a message. `conversation` has the whole scope of its messages."""
    named = json.dumps([*owner_values(conversation.scope), conversation.conversation_id, message_id])
    return f"message:{blake2b(named.encode(), digest_size=_DIGEST_BYTES).hexdigest()}"


def message_id_of(request_id: str, number: int) -> str:
    """The id of a message that came without one, so that a repeated request names the same messages."""
    return blake2b(json.dumps([request_id, number]).encode(), digest_size=_DIGEST_BYTES).hexdigest()


def to_event(
    conversation: ConversationKey, message: Message, now: datetime, *, may_record: Callable[[str], bool]
) -> Event:
    """The event of a message that has an id; one without a time happens now."""
    return Event(
        event_id=event_id_of(conversation, message.message_id),
        event_type=MESSAGE_TYPE,
        event_time=message.time or now,
        # An event must not be blank, and a message may be.
        content="" if message.content.isspace() else message.content,
        scope=_scope(conversation.scope, message, may_record),
        importance=message.importance,
        source=message.role,
        metadata={**message.metadata, SPEAKER_KEY: message.speaker},
        conversation=conversation.conversation_id,
        payload=payload_of(message),
    )


def _scope(scope: Scope, message: Message, may_record: Callable[[str], bool]) -> Scope:
    """The scope with the origin of the role, unless the caller sets one or may not record events of that origin."""
    origin = _ORIGINS.get(message.role)
    if scope.origin or origin is None or not may_record(origin):
        return scope
    return replace(scope, origin=str(origin), origin_name=message.name if origin is Origin.TOOL else "")


def payload_of(message: Message) -> str:
    """The parts of a message that its event has no field for."""
    parts: dict[str, Any] = {
        "message_id": message.message_id,
        "name": message.name,
        "tool_calls": message.tool_calls,
        "tool_call_id": message.tool_call_id,
        "payload": message.payload,
        "blank": message.content if message.content.isspace() else "",
    }
    return json.dumps({name: part for name, part in parts.items() if part}, ensure_ascii=False)


def from_event(stored: StoredEvent) -> StoredMessage:
    """The message of an event. An event of this type that was recorded as such is a message, too."""
    event = decode(stored.body)
    parts = _parts_of(event)
    message = Message(
        role=event.source,
        content=event.content or parts.get("blank", ""),
        message_id=parts.get("message_id", event.event_id),
        name=parts.get("name", ""),
        tool_calls=tuple(ToolCall(*call) for call in parts.get("tool_calls", ())),
        tool_call_id=parts.get("tool_call_id", ""),
        payload=parts.get("payload", ""),
        time=event.event_time,
        importance=event.importance,
        metadata={key: value for key, value in event.metadata.items() if key != SPEAKER_KEY},
    )
    return StoredMessage(message, event.event_id, stored.sequence, event.scope.origin, event.scope.origin_name)


def is_trusted(stored: StoredMessage, least: Origin) -> bool:
    """Whether a message is trusted at least as much as `least`, or as the origin of its role."""
    of_role = _ORIGINS.get(stored.message.role, Origin.AGENT)
    return trust(stored.origin) >= min(trust(least), trust(of_role))


def without_loose_ends(newest: Sequence[StoredMessage]) -> list[StoredMessage]:
    """The messages, newest first, without tool calls that have no result, and results that have no call: models reject
    both. Results at the beginning stay, since their calls may be older than what was read.
    """
    kept, called, has_begun = list[StoredMessage](), set[str](), False
    for stored in reversed(_without_loose_calls(newest)):
        message = stored.message
        if message.tool_call_id and has_begun and message.tool_call_id not in called:
            continue
        called.discard(message.tool_call_id)
        called.update(call.id for call in message.tool_calls)
        has_begun = has_begun or not message.tool_call_id
        kept.append(stored)
    return kept[::-1]


def _without_loose_calls(newest: Sequence[StoredMessage]) -> list[StoredMessage]:
    """The messages, newest first, without tool calls that have no result. While only results follow a
    message, its calls may still be answered.
    """
    kept, answered, may_be_running = list[StoredMessage](), set[str](), True
    for stored in newest:
        message = stored.message
        calls = message.tool_calls if may_be_running else tuple(c for c in message.tool_calls if c.id in answered)
        answered.difference_update(call.id for call in calls)
        if message.tool_call_id:
            answered.add(message.tool_call_id)
        else:
            may_be_running = False
        if calls == message.tool_calls:
            kept.append(stored)
        elif calls or message.content:
            # The payload may have the call, too.
            kept.append(stored._replace(message=replace(message, tool_calls=calls, payload="")))
    return kept


def says_the_same(stored: Message, asked: Message) -> bool:
    """Whether a stored message is the one that a caller asks to store; one without a time matches any time."""
    asked = replace(asked, time=asked.time or stored.time, metadata=normalised_metadata(asked.metadata))
    return stored == asked


def _parts_of(event: Event) -> dict[str, Any]:
    """The parts that `payload_of` wrote; the payload itself if a caller recorded the event."""
    try:
        parts = json.loads(event.payload)
        conversation = ConversationKey(scope=event.scope, conversation_id=event.conversation)
        own_id = event_id_of(conversation, parts["message_id"])
    except (ValueError, TypeError, KeyError):
        return {"payload": event.payload}
    return parts if own_id == event.event_id else {"payload": event.payload}


def title_of(event: Event) -> str:
    """A title for the conversation that begins with this message; empty if it has no text."""
    given = event.metadata.get("title")
    words = " ".join((given if isinstance(given, str) else event.content)[: 4 * TITLE_CHARS_MAX].split())
    return words if len(words) <= TITLE_CHARS_MAX else f"{words[: TITLE_CHARS_MAX - 1].rstrip()}…"
