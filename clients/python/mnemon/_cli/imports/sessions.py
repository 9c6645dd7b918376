"""Converts the session files of Claude Code and Codex to documents: one for each message of a person or a model.

Calls of tools, their results and what the program itself adds to a conversation are left out.
"""

from collections.abc import Iterator
from typing import Any, BinaryIO

from mnemon._cli.imports.chats import OTHER_ROLE, message, texts_of
from mnemon._cli.imports.facts import time_of
from mnemon._cli.imports.found import Found, LeftOut, Place, Raw, as_object
from mnemon._cli.imports.json_text import each_record
from mnemon._messages.convert import invalid

_MARKS = ("isMeta", "isSidechain", "isCompactSummary")
_ADDED = ("<command-", "<local-command-", "<system-reminder>")
_ADDED_BY_CODEX = ("<environment_context>", "<user_instructions>", "<permissions instructions>", "# AGENTS.md ")
_CODEX_TEXTS = ("input_text", "output_text", "text")


def claude_code(raw: Raw) -> Iterator[Found]:
    """The message of a line of Claude Code; its id is the line's own, so a resumed session repeats nothing."""
    record = as_object(raw)
    said = record.get("message")
    if record.get("type") not in ("user", "assistant") or not isinstance(said, dict):
        yield LeftOut(raw.place, OTHER_ROLE)
        return
    if not isinstance(record.get("uuid"), str):
        raise invalid("uuid", "must be the id of the message")
    text = texts_of(said.get("content"))
    is_added = any(map(record.get, _MARKS)) or text.startswith(_ADDED)
    yield message(
        raw.place,
        f"claude-code/{record['uuid']}",
        text,
        None if is_added else said.get("role", record["type"]),
        source="claude-code",
        conversation=str(record.get("sessionId") or ""),
        folder=str(record.get("cwd") or ""),
        time=time_of(record, "timestamp"),
    )


def codex(file: BinaryIO, name: str) -> Iterator[Found]:
    """The messages of a session of Codex. A message has no id of its own: its line is part of the document's id."""
    session: dict[str, Any] = {}

    def read(raw: Raw) -> Iterator[Found]:
        nonlocal session
        record = as_object(raw)
        # The first line is the session itself; in older files, without an envelope.
        payload = record["payload"] if isinstance(record.get("payload"), dict) else record
        if record.get("type") == "session_meta" or (not session and "type" not in record and "id" in record):
            session = session or payload
        else:
            yield _codex_message(raw.place, record, payload, session)

    return each_record(file, read, ())


def _codex_message(place: Place, record: dict[str, Any], payload: dict[str, Any], session: dict[str, Any]) -> Found:
    if payload.get("type") != "message":
        return LeftOut(place, OTHER_ROLE)
    if not session:
        raise invalid("session_meta", "must be on an earlier line: it has the id of the session")
    text = texts_of(payload.get("content"), _CODEX_TEXTS)
    return message(
        place,
        f"codex/{session.get('id')}/{place.line}",
        text,
        None if text.startswith(_ADDED_BY_CODEX) else payload.get("role"),
        source="codex",
        conversation=str(session.get("id")),
        folder=str(session.get("cwd") or ""),
        time=time_of(record, "timestamp"),
    )
