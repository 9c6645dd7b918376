"""Converts the `result.json` that Telegram Desktop exports, of one chat or of all, to messages."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from mnemon._cli.imports.chats import NO_TEXT
from mnemon._cli.imports.facts import time_of
from mnemon._cli.imports.found import Damaged, LeftOut, Place, Raw, as_object, damaged
from mnemon._local_time import in_zone
from mnemon._messages.convert import invalid
from mnemon._values.documents import MetadataValue
from mnemon.shared.errors import InvalidArgumentError

_OF_ALL = ("chats", "left_chats")
_KINDS = ("message", "service", "unsupported")


class Said(NamedTuple):
    """A message of a chat."""

    place: Place
    message_id: str
    conversation: str
    speaker: str
    is_bot: bool
    """Whether the bot of a chat with one says it."""
    content: str
    time: datetime | None
    metadata: Mapping[str, MetadataValue]


def is_export(record: Mapping[str, Any]) -> bool:
    """Whether a JSON object is an export of one chat, or of all."""
    if any(isinstance(_object(record.get(name)).get("list"), list) for name in _OF_ALL):
        return True
    messages = record.get("messages")
    first = _object(messages[0]) if isinstance(messages, list) and messages else {}
    # A message with a role is OpenAI's.
    return first.get("type") in _KINDS and "role" not in first


def telegram(raw: Raw) -> Iterator[Said | LeftOut | Damaged]:
    """The messages of the chats in an export, in their order."""
    record = as_object(raw)
    chats = [chat for name in _OF_ALL for chat in _object(record.get(name)).get("list") or ()] or [record]
    for chat in map(_object, chats):
        messages = chat.get("messages")
        if not isinstance(messages, list):
            raise invalid("messages", "must be the list of messages")
        for number, each in enumerate(messages, start=1):
            said = Raw(Place(raw.place.line, number), each)
            try:
                yield _said(said, chat)
            except InvalidArgumentError as error:
                yield damaged(said, error)


def _said(raw: Raw, chat: Mapping[str, Any]) -> Said | LeftOut:
    given = as_object(raw)
    if given.get("type") != "message":
        return LeftOut(raw.place, "of the messenger")
    content = "\n".join(filter(None, (_text(given.get("text")).strip(), _poll(given.get("poll")))))
    if not content:
        return LeftOut(raw.place, NO_TEXT)
    conversation, bot = f"telegram/{chat.get('id')}", f"user{chat.get('id')}"
    sender = str(given.get("from_id") or "")
    # The message of another chat is not here.
    replied = None if given.get("reply_to_peer_id") else given.get("reply_to_message_id")
    metadata = {
        "title": str(chat.get("name") or str(chat.get("type") or "").replace("_", " ").capitalize()),
        "forwarded_from": str(given.get("forwarded_from") or ""),
        "reply_to": f"{conversation}/{replied}" if replied else "",
        "edited": _time(given, "edited"),
    }
    return Said(
        raw.place,
        f"{conversation}/{given.get('id')}",
        conversation,
        # A deleted account has no name.
        str(given.get("from") or sender or chat.get("name") or ""),
        chat.get("type") == "bot_chat" and sender == bot,
        content,
        _time(given, "date"),
        {name: value for name, value in metadata.items() if value},
    )


def _time(given: Mapping[str, Any], name: str) -> datetime | None:
    """The time of a field: the seconds since 1970 beside it or, in older exports, the time on a machine's clock."""
    if (seconds := str(given.get(f"{name}_unixtime") or "")).isdecimal():
        return time_of({name: int(seconds)}, name)
    found = time_of(given, name)
    return found and in_zone(found.replace(tzinfo=None))


def _text(given: object) -> str:
    """A text: plain, or a list of plain and of marked parts."""
    parts: Sequence[object] = given if isinstance(given, list) else [given]
    return "".join(map(_part, parts))


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    found = _object(part)
    text, link = str(found.get("text") or ""), str(found.get("href") or "")
    return f"{text} ({link})" if link and link != text else text


def _poll(given: object) -> str:
    """The question of a poll with its answers, one on each line."""
    poll = _object(given)
    answers = poll.get("answers")
    lines = [poll.get("question"), *(_object(each).get("text") for each in answers or () if isinstance(answers, list))]
    return "\n".join(filter(None, map(_text, filter(None, lines))))


def _object(found: object) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}
