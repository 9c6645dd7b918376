"""The forms of files that `mnemon import` reads, and how it tells them apart."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, BinaryIO, TypeAlias

from mnemon._archive_lines import MARK
from mnemon._cli.imports import chats, facts, graph, mail, markup, rows, sessions
from mnemon._cli.imports.found import Damaged, Found, Item, LeftOut, Raw, as_object
from mnemon._cli.imports.json_text import LISTS, each_record, records
from mnemon._messages.convert import invalid
from mnemon._values.archive import RecordKind

ARCHIVE = "archive"
"""The form of Mnemon's own files."""
EMPTY = "empty"
"""The form of JSON without records, from an unknown program: an empty answer, or a broken file."""

Reader: TypeAlias = Callable[[BinaryIO, str], Iterator[Found]]
"""Reads a file; also takes its name."""
_Record: TypeAlias = Mapping[str, Any]

_SAMPLE_RECORDS = 20
_TABLES = (".csv", ".tsv")
_JSON = (".json", ".jsonl", ".ndjson")
_NO_FORM = "it is neither JSON nor a table, a page, mails, or Markdown with front matter"
_PACKED = {"PK\x03\x04": "a ZIP archive", "\x1f\udc8b": "packed by gzip"}
_KINDS = tuple(RecordKind)
_SHOWN_FIELDS_MAX = 8


@dataclass(frozen=True, slots=True)
class Form:
    """A form of files."""

    about: str
    read: Reader
    fits: Callable[[_Record], bool] = lambda record: False
    """Whether a record is of this form."""
    has_documents: bool = True
    """Whether records become documents, and not facts."""


def _each(read: Callable[[Raw], Iterable[Found]], lists: tuple[str, ...] = LISTS) -> Reader:
    """The reader of a form whose records stand alone."""
    return lambda file, name: each_record(file, read, lists)


def _facts(about: str, read: Callable[[Raw], Item], fits: Callable[[_Record], bool] = lambda record: False) -> Form:
    """The form of records that become one fact each."""
    return Form(about, _each(lambda raw: [replace(read(raw), source=as_object(raw))]), fits, has_documents=False)


def mapped_by(mapping: facts.FieldMapping) -> Form:
    """The form of records whose fields the user has named."""
    return _facts("records with the given fields", lambda raw: facts.mapped(raw, mapping, ("imported",)))


def _refuse(raw: Raw) -> Iterator[Found]:
    """Fails, since records after broken ones may be of any form."""
    raise invalid("record", "follows broken ones, and its form is not known; say --from")


def _is_graph(record: _Record) -> bool:
    kind = record.get("type", record.get("_type"))
    is_entity = "name" in record and (kind == "entity" or not record.keys().isdisjoint(("observations", "entityType")))
    return is_entity or {"from", "to"} <= record.keys() or (kind == "observation" and "entityName" in record)


def _is_codex(record: _Record) -> bool:
    return {"payload", "type"} <= record.keys() or {"id", "timestamp", "instructions"} <= record.keys()


def _is_episode(record: _Record) -> bool:
    keys = record.keys()
    return "episode_body" in keys or ({"uuid", "content"} <= keys and not keys.isdisjoint(_EPISODE))


def _is_mem0(record: _Record) -> bool:
    keys = record.keys()
    return {"id", "memory"} <= keys or ({"id", "content"} <= keys and not keys.isdisjoint(_OPEN_MEMORY))


_EPISODE = ("source_description", "entity_edges", "valid_at")
_OPEN_MEMORY = ("app_id", "app_name", "state", "categories")

FORMS: Mapping[str, Form] = {
    "chatgpt": Form("conversations.json of ChatGPT's export", _each(chats.chatgpt), lambda record: "mapping" in record),
    "claude": Form(
        "conversations.json of Claude's export", _each(chats.claude), lambda record: "chat_messages" in record
    ),
    "claude-code": Form(
        "a session of Claude Code, ~/.claude/projects/*/*.jsonl",
        _each(sessions.claude_code),
        lambda record: {"sessionId", "uuid", "type"} <= record.keys() or "leafUuid" in record,
    ),
    "codex": Form("a session of Codex, ~/.codex/sessions/**/*.jsonl", sessions.codex, _is_codex),
    "mem0": _facts("memories of mem0 or OpenMemory", facts.mem0, _is_mem0),
    "langgraph": _facts(
        "items of a LangGraph store",
        facts.langgraph,
        lambda record: {"key", "value"} <= record.keys() and not record.keys().isdisjoint(("namespace", "prefix")),
    ),
    "zep": _facts("edges of a graph of Zep or Graphiti", facts.zep, lambda record: {"uuid", "fact"} <= record.keys()),
    "graphiti": Form("episodes of Graphiti", _each(rows.episode, ("episodes", *LISTS)), _is_episode),
    "mcp-memory": Form(
        "the file of the Model Context Protocol's memory server", graph.knowledge_graph, _is_graph, has_documents=False
    ),
    "chroma": _facts(
        "rows of a Chroma collection",
        facts.chroma,
        lambda record: "id" in record and not record.keys().isdisjoint(("document", "text_chunk")),
    ),
    "mbox": Form("mails in an mbox file, or one mail", mail.mbox),
    "csv": Form("rows under a line with the names of the columns", rows.csv_rows),
    "html": Form("a page of HTML", markup.html),
    "markdown": Form("a text in Markdown with front matter", markup.markdown),
    "jsonl": Form("any JSON objects, one after another or in a list", rows.json_rows, rows.has_text),
}
"""By the name that `mnemon import --from` takes; the first one that fits decides."""
NO_RECORDS = Form("JSON without records", _each(_refuse))


def form_of(file: BinaryIO, name: str = "") -> str:
    """The name of a file's form, judged by its beginning; `ARCHIVE` for Mnemon's own.

    `name` is the file's name, which tells a table, a mail and broken JSON where the content does not.

    Raises:
        ValueError: none fits; it says why.
    """
    head = rows.file_head(file)
    if packed := packed_as(head):
        raise ValueError(f"it is {packed}; unpack it, and import the files in it")
    if name.lower().endswith(_TABLES):
        return "csv"
    if name.lower().endswith(mail.SUFFIX):
        return "mbox"
    if not head.strip():
        return ARCHIVE
    form, problem = _json_form(file, name) if head.lstrip()[0] in "[{" else (_text_form(head), _NO_FORM)
    if form:
        return form
    known = "\n".join(f"  {each}: {form.about}" for each, form in FORMS.items())
    raise ValueError(
        f"its form is not known: {problem}. It is not an archive of Mnemon, nor one of these, which --from names; --map"
        f" reads any other JSON, `mnemon chat import` transcripts of messengers, and `mnemon index` any text:\n{known}"
    )


def packed_as(head: str) -> str:
    """The kind of a packed file, by its beginning; empty if it is not packed."""
    return next((about for begin, about in _PACKED.items() if head.startswith(begin)), "")


def _text_form(head: str) -> str:
    """The name of the form of a file that is not JSON; empty if none fits."""
    first, following = [*head.encode("utf-8", "surrogateescape").split(b"\n", 2), b""][:2]
    if mail.begins_mail(first + b"\n", following) or mail.is_mail(head):
        return "mbox"
    if markup.is_html(head):
        return "html"
    if markup.has_front_matter(head):
        return "markdown"
    return "csv" if rows.is_table(head) else ""


def _json_form(file: BinaryIO, file_name: str) -> tuple[str, str]:
    """The name of a JSON file's form; or an empty string, and what the file contains instead."""
    found = list(islice(records(file), _SAMPLE_RECORDS))
    file.seek(0)
    objects = [raw.value for raw in found if isinstance(raw, Raw) and isinstance(raw.value, dict)]
    if any(map(_is_archived, objects)):
        return ARCHIVE, ""
    is_named_so = file_name.lower().endswith(_JSON)
    if not any(isinstance(each, Raw) or (isinstance(each, Damaged) and not is_named_so) for each in found):
        return EMPTY, ""
    name = next((name for name, form in FORMS.items() if any(map(form.fits, objects))), "")
    return name, _problem(found, objects)


def _problem(found: Iterable[Raw | LeftOut | Damaged], objects: list[dict[str, Any]]) -> str:
    """The reason why no form fits the records."""
    if objects:
        fields = ", ".join(list(objects[0])[:_SHOWN_FIELDS_MAX])
        return f"its first record has the fields {fields}" if fields else "its first record is an empty object"
    broken = next((each for each in found if isinstance(each, Damaged)), None)
    return (
        f"line {broken.place.line} {broken.error.message.removeprefix('line: ')}"
        if broken
        else "it has no JSON objects"
    )


def _is_archived(record: _Record) -> bool:
    return MARK in record or ("id" in record and record.get("kind") in _KINDS)
