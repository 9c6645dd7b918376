"""Reads conversations as messages: the exports of chat programs, messages with role and content, and transcripts."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any, BinaryIO, NamedTuple, TypeAlias

from mnemon._cli.imports.facts import time_of
from mnemon._cli.imports.forms import FORMS, Form, packed_as
from mnemon._cli.imports.found import Damaged, Item, LeftOut, Place, Raw, as_object, damaged
from mnemon._cli.imports.json_text import each_record, has_bad_bytes, records, text_of
from mnemon._cli.imports.rows import file_head
from mnemon._cli.imports.telegram import Said, is_export, telegram
from mnemon._cli.imports.transcripts import Line, lines_of, style_of
from mnemon._messages.chat_forms import chat_form
from mnemon._messages.conversations import message_of
from mnemon._messages.convert import invalid
from mnemon._values.conversations import ConversationMessage
from mnemon._values.documents import Document, MetadataValue
from mnemon.shared.errors import InvalidArgumentError

_SAMPLE_RECORDS = 20
_CONVERSATION_IDS = ("conversation_id", "conversation", "session_id", "thread_id")
_MESSAGE_IDS = ("message_id", "id", "uuid")
_TIMES = ("message_time", "created_at", "create_time", "timestamp", "time")
_SERVERS = ("event_id", "sequence", "origin", "origin_name")
"""Fields that the server sets, which `mnemon chat show --json` prints."""
_ID_BYTES = 16
_ASSISTANTS = ("assistant", "ai", "bot", "chatbot", "gpt", "model")
_ROLES = {**dict.fromkeys(("user", "human", "you", "me"), "user"), **dict.fromkeys(_ASSISTANTS, "assistant")}
_ROLES |= {role: role for role in ("system", "tool")}
_PROGRAMS = ("chatgpt", "claude", "gemini", "copilot")


@dataclass(frozen=True, slots=True)
class Turn:
    """A message to add, and its conversation."""

    place: Place
    conversation: str
    message: ConversationMessage


@dataclass(frozen=True, slots=True)
class Source:
    """A file of conversations."""

    name: str
    """Begins the ids of messages without ids."""
    conversation: str
    """The conversation of messages that do not name one."""
    assistants: tuple[str, ...] = ()
    """The speakers that are the assistant, in a file without roles."""


Turns: TypeAlias = Iterator[Turn | LeftOut | Damaged]


@dataclass(frozen=True, slots=True)
class TurnForm:
    """A form of files with conversations."""

    about: str
    read: Callable[[BinaryIO, Source], Turns]
    fits: Callable[[Mapping[str, Any]], bool] = lambda record: False
    """Whether a record of JSON is of this form."""
    names_conversations: bool = True
    """Whether each message is in a conversation that the file names."""
    has_roles: bool = True
    """Whether the file says who is the assistant."""


def turn_form_of(file: BinaryIO) -> str:
    """The name of the form of a file with conversations, by its beginning.

    Raises:
        ValueError: none fits; it says why.
    """
    head = file_head(file)
    if packed := packed_as(head):
        raise ValueError(f"it is {packed}; unpack it, and import the files in it")
    found = ""
    if head.lstrip()[:1] in ("[", "{"):
        sample = [*islice(records(file, ()), _SAMPLE_RECORDS)]
        file.seek(0)
        objects = [raw.value for raw in sample if isinstance(raw, Raw) and isinstance(raw.value, dict)]
        found = next((name for name, form in TURN_FORMS.items() if any(map(form.fits, objects))), "")
    if not found and style_of(head.splitlines()):
        found = "transcript"
    if found:
        return found
    known = "\n".join(f"  {name}: {form.about}" for name, form in TURN_FORMS.items())
    raise ValueError(f"it holds no conversation that is known; these are, and --from names them:\n{known}")


# Exports of chat programs


def _exported(form: Form) -> Callable[[BinaryIO, Source], Turns]:
    """The reader of messages that `mnemon import` reads as documents."""

    def read(file: BinaryIO, source: Source) -> Turns:
        for found in form.read(file, source.name):
            yield _turn_of(found, source) if isinstance(found, Item) else found

    return read


def _turn_of(item: Item, source: Source) -> Turn:
    document = item.record
    if not isinstance(document, Document):
        raise TypeError(f"{document!r} is not a document")
    metadata = dict(document.metadata)
    role, time = metadata.pop("role"), metadata.pop("time", None)
    conversation = metadata.pop("conversation", "")
    said: dict[str, Any] = {"role": role, "content": document.content, "message_time": time, "metadata": metadata}
    name = f"{metadata['source']}/{conversation}" if conversation else source.conversation
    return Turn(item.place, name, message_of("message", {**said, "message_id": document.doc_id}))


# Messages with role and content


def _messages(file: BinaryIO, source: Source) -> Turns:
    """JSON messages, one after another, in a list, or in objects that hold conversations."""
    numbers = _Numbers(source)
    unnamed = 0

    def read(raw: Raw) -> Turns:
        nonlocal unnamed
        record = as_object(raw)
        conversation = _first(record, _CONVERSATION_IDS)
        if (messages := _listed(record)) is None:
            messages = [record]
        else:
            conversation = conversation or _first(record, _MESSAGE_IDS)
            if not conversation:
                unnamed += 1
                conversation = source.conversation if unnamed == 1 else f"{source.conversation}/{unnamed}"
        for said in messages:
            try:
                yield _said(Raw(raw.place, said), conversation or source.conversation, numbers)
            except InvalidArgumentError as error:
                yield damaged(Raw(raw.place, said), error)

    return each_record(file, read, ())


def _listed(record: Mapping[str, Any]) -> list[Any] | None:
    """The messages of an object that holds a conversation; None if it is a message itself."""
    if isinstance(chat := record.get("chat"), dict):
        return _branch(chat)
    return next((record[name] for name in ("messages", "conversations") if isinstance(record.get(name), list)), None)


def _branch(chat: Mapping[str, Any]) -> list[Any]:
    """The messages of a chat of Open WebUI, which is a tree, on the branch that it shows."""
    history = chat.get("history")
    nodes, name = (history.get("messages"), history.get("currentId")) if isinstance(history, dict) else ({}, None)
    found: list[Any] = []
    while isinstance(nodes, dict) and isinstance(name, str) and len(found) < len(nodes):
        node = nodes.get(name)
        found += [] if node is None else [node]
        name = node.get("parentId") if isinstance(node, dict) else None
    shown = chat.get("messages")
    return found[::-1] or (shown if isinstance(shown, list) else [])


def _said(raw: Raw, conversation: str, numbers: "_Numbers") -> Turn:
    record = chat_form(as_object(raw))
    if "value" in record and isinstance(speaker := record.get("from"), str):
        record = {**record, "role": _ROLES.get(speaker, speaker), "content": record["value"]}
    message_id = _first(record, _MESSAGE_IDS) or numbers.id_of(conversation, record)
    if not record.get("role"):
        raise invalid("role", 'must say who speaks, such as "user" or "assistant"')
    taken = {*_CONVERSATION_IDS, *_MESSAGE_IDS, *_TIMES, *_SERVERS}
    said = {name: value for name, value in record.items() if name not in taken and value not in (None, "", [], {})}
    time = next((time_of(record, name) for name in _TIMES if record.get(name)), None)
    content = {"content": record["content"]} if "content" in record else {}
    return Turn(
        raw.place,
        conversation,
        message_of("message", {**content, **said, "message_id": message_id, "message_time": time}),
    )


def _first(record: Mapping[str, Any], names: Iterable[str]) -> str:
    """The first of these fields that has an id."""
    found = (record.get(name) for name in names)
    return next((str(each) for each in found if each and isinstance(each, str | int)), "")


class _Numbers:
    """Ids for messages without ids, of what they say: so a line that is inserted changes no other message."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._counts: dict[str, int] = {}

    def id_of(self, conversation: str, said: object) -> str:
        """The id of the next message of the conversation that says this; the same words again have another one."""
        text = json.dumps([self._source.name, conversation, said], ensure_ascii=False, sort_keys=True, default=str)
        number = self._counts[text] = self._counts.get(text, 0) + 1
        digest = blake2b(f"{number} {text}".encode(errors="surrogatepass"), digest_size=_ID_BYTES).hexdigest()
        return f"{self._source.name}/{digest}"


# Transcripts


def _transcript(file: BinaryIO, source: Source) -> Turns:
    """Lines such as "Ann: Hello."; a line that does not begin a message goes on with the one before."""
    numbers = _Numbers(source)
    with text_of(file) as text:
        style = style_of(text)
    file.seek(0)
    begun: _Begun | None = None
    with text_of(file) as text:
        for number, line in enumerate(lines_of(text, style) if style else (), start=1):
            if line.speaker or line.is_notice:
                if begun:
                    yield _spoken(begun, numbers, source)
                begun = _Begun(Place(number), line, [line.text]) if line.speaker else None
            if line.is_notice:
                yield LeftOut(Place(number), "of the messenger")
            elif begun and not line.speaker:
                begun.said.append(line.text)
            elif not line.speaker and line.text.strip():
                yield LeftOut(Place(number), "before the first speaker")
    if begun:
        yield _spoken(begun, numbers, source)


class _Begun(NamedTuple):
    """A message of a transcript."""

    place: Place
    first: Line
    said: list[str]


def _spoken(begun: _Begun, numbers: _Numbers, source: Source) -> Turn | LeftOut | Damaged:
    place, speaker, content = begun.place, begun.first.speaker, "".join(begun.said).strip()
    message_id = numbers.id_of(source.conversation, [speaker, content])
    if has_bad_bytes(content):
        return Damaged(place, invalid("line", "is not UTF-8"), message_id)
    if not content:
        return LeftOut(place, "without text")
    role, name = _role_of(speaker, source.assistants)
    message = ConversationMessage(role, content, message_id, name, message_time=begun.first.time)
    return Turn(place, source.conversation, message)


def _role_of(speaker: str, assistants: Iterable[str]) -> tuple[str, str]:
    """The role of a speaker and, unless it is only the word for the role, the name."""
    folded = speaker.casefold()
    is_named = folded in {each.casefold() for each in assistants} or folded in _PROGRAMS
    return ("assistant", speaker) if is_named else (_ROLES.get(folded, "user"), "" if folded in _ROLES else speaker)


# Exports of Telegram


def _telegram(file: BinaryIO, source: Source) -> Turns:
    for found in each_record(file, telegram, ()):
        yield _told(found, source) if isinstance(found, Said) else found


def _told(said: Said, source: Source) -> Turn:
    role, name = ("assistant", said.speaker) if said.is_bot else _role_of(said.speaker, source.assistants)
    message = ConversationMessage(
        role, said.content, said.message_id, name, message_time=said.time, metadata=said.metadata
    )
    return Turn(said.place, said.conversation, message)


_EXPORTS = ("chatgpt", "claude", "claude-code", "codex")
TURN_FORMS: Mapping[str, TurnForm] = {
    **{name: TurnForm(FORMS[name].about, _exported(FORMS[name]), FORMS[name].fits) for name in _EXPORTS},
    "telegram": TurnForm("an export of Telegram Desktop, result.json", _telegram, is_export, has_roles=False),
    "messages": TurnForm(
        "messages with role and content, as OpenAI has them, and exports of Open WebUI, in JSON or JSON lines",
        _messages,
        lambda record: "role" in record or _listed(record) is not None,
        names_conversations=False,
    ),
    "transcript": TurnForm(
        'lines of text with their speakers, such as "Ann: Hello.", also with times, as of messengers, and subtitles',
        _transcript,
        names_conversations=False,
        has_roles=False,
    ),
}
"""By the name that `mnemon chat import --from` takes; the first one that fits decides."""


def title_of(message: ConversationMessage) -> MetadataValue:
    """The title of the conversation, if the file has one."""
    return message.metadata.get("title", "")
