"""Messages of conversations, as callers and other programs write them."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from mnemon._local_time import start_of
from mnemon._messages import convert
from mnemon._messages.chat_forms import as_json, chat_form
from mnemon._messages.convert import invalid
from mnemon._messages.recall import text_of
from mnemon._messages.translation import request
from mnemon._values.conversations import ConversationMessage, MessageToolCall
from mnemon.v1 import conversation_pb2 as pb

_SENT = (
    *("role", "content", "message_id", "name", "tool_call_id", "payload"),
    *("message_time", "importance", "metadata"),
)
_TEXTS = ("message_id", "role", "name", "tool_call_id", "payload")
_TIMES = ("message_time", "timestamp", "created_at", "create_time", "created", "date", "time")
"""The keys under which programs keep the time of a message; the first one that is a time counts."""
_TIMES_ALONE = frozenset(_TIMES[:3])
"""Those that have no other meaning."""
_SECONDS = re.compile(r"\d{9,13}(\.\d+)?")
"""Seconds or milliseconds as a text; a shorter one may be a day, such as 20270131."""
_MILLISECONDS = 1e11
"""Seconds since 1970 from here on, which is after the year 5000, are milliseconds."""
_KNOWN = {*_SENT, "tool_calls", "id", "timestamp", "created_at"}


def messages_to_pb(given: Iterable[ConversationMessage | Mapping[str, Any]]) -> list[pb.ConversationMessage]:
    """Messages to add, each a ConversationMessage or a mapping such as {"role": "user", "content": "..."}."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise invalid("messages", 'must be a list of messages, such as [{"role": "user", "content": "..."}]')
    return [_message_to_pb(f"messages[{number}]", message) for number, message in enumerate(given)]


def _message_to_pb(field: str, given: object) -> pb.ConversationMessage:
    message = given if isinstance(given, ConversationMessage) else message_of(field, given)
    calls = [pb.MessageToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in message.tool_calls]
    named = {name: getattr(message, name) for name in _SENT}
    return request(pb.ConversationMessage, **named, tool_calls=calls)


def message_of(field: str, given: object) -> ConversationMessage:
    """The message of a mapping as chat APIs have it; keys without a field are kept in the payload."""
    given = chat_form(given)
    if not isinstance(given, Mapping):
        raise invalid(field, 'must be a mapping such as {"role": "user", "content": "..."}')
    content = given.get("content")
    calls = given.get("tool_calls") or ()
    if not content and not calls and "content" not in given:
        raise invalid(field, 'must have a "content", or "tool_calls"')
    texts: dict[str, Any] = {name: convert.text(f"{field}.{name}", given.get(name) or "") for name in _TEXTS}
    texts["message_id"] = texts["message_id"] or convert.text(f"{field}.id", given.get("id") or "")
    if not texts["payload"] and (isinstance(content, list) or set(given) - _KNOWN):
        texts["payload"] = as_json(given)
    return ConversationMessage(
        **texts,
        content=text_of(f"{field}.content", content),
        tool_calls=tuple(_call_of(f"{field}.tool_calls[{n}]", call) for n, call in enumerate(calls)),
        message_time=_time_of(field, given),
        importance=given.get("importance"),
        metadata=given.get("metadata") or {},
    )


def _time_of(field: str, given: Mapping[str, Any]) -> datetime | None:
    """The time of a message: a datetime, a text, or seconds or milliseconds since 1970."""
    for name in _TIMES:
        value = given.get(name)
        if value is None or value == "":
            continue
        try:
            return value if isinstance(value, datetime) else since_1970(value) or start_of(value)
        except (TypeError, ValueError, OverflowError, OSError):
            if name in _TIMES_ALONE:
                right = 'must be a datetime, a text such as "2027-01-31T09:00Z", or seconds since 1970'
                raise invalid(f"{field}.{name}", f"{right}, not {value!r}") from None
            # A key of another meaning is kept in the payload.
    return None


def since_1970(value: object) -> datetime | None:
    """The time after so many seconds or milliseconds, also as a text; None for a value of another kind.

    Raises ValueError, OverflowError or OSError if it is beyond the calendar.
    """
    number = float(value) if isinstance(value, str) and _SECONDS.fullmatch(value) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    return datetime.fromtimestamp(number / 1_000 if abs(number) >= _MILLISECONDS else number, UTC)


def _call_of(field: str, given: Any) -> MessageToolCall:
    if isinstance(given, MessageToolCall):
        return given
    if not isinstance(given, Mapping):
        raise invalid(field, 'must be a mapping with an "id" and a "function", or with a "name" and "arguments"')
    # OpenAI nests the function, others do not; the arguments are text, or the object itself.
    function = given.get("function") or given
    arguments = function.get("arguments", function.get("args", function.get("input", "")))
    if not isinstance(arguments, str):
        arguments = as_json(arguments)
    return MessageToolCall(
        convert.text(f"{field}.id", given.get("id") or ""),
        convert.text(f"{field}.name", function.get("name") or ""),
        arguments,
    )


def ids_to_pb(field: str, given: Sequence[str] | str) -> list[str]:
    """Ids of messages; a single one may be given as such."""
    return [convert.text(field, each) for each in ([given] if isinstance(given, str) else given)]


def without_loose_ends(messages: Sequence[ConversationMessage]) -> list[ConversationMessage]:
    """The messages without answers whose call is missing, and calls whose answers are missing: models refuse both.

    Either may be hidden from the caller, or be older than what was asked for. Calls after the last text may still be
    running.
    """
    called = {call.id for message in messages for call in message.tool_calls}
    answered = {message.tool_call_id for message in messages}
    ends = [n for n, message in enumerate(messages) if not (message.tool_calls or message.tool_call_id)]
    lacking = {
        call.id
        for message in messages[: max(ends, default=0)]
        if not answered.issuperset(call.id for call in message.tool_calls)
        for call in message.tool_calls
    }
    kept: list[ConversationMessage] = []
    for message in messages:
        if message.tool_call_id and message.tool_call_id not in called - lacking:
            continue
        if lacking.isdisjoint(call.id for call in message.tool_calls):
            kept.append(message)
            continue
        # The reasoning that led to a call is refused without it.
        while kept and kept[-1].role == "assistant" and not (kept[-1].content or kept[-1].tool_calls):
            kept.pop()
        if message.content:
            kept.append(replace(message, tool_calls=(), payload=""))
    return kept


def object_in(text: str) -> dict[str, Any]:
    """The JSON object of a text; empty if it is something else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
