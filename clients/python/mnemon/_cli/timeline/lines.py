"""Reads events of the timeline from JSON lines of files and standard input."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields as fields_of
from datetime import datetime
from typing import Any

from mnemon._cli.documents.sources import Unreadable
from mnemon._cli.json_lines import Line, fits, read_json_lines
from mnemon._values.documents import SCOPE_FIELDS
from mnemon._values.timeline import TEXTS, EpisodicEvent

_TEXTS = (*TEXTS, *SCOPE_FIELDS, "event_time")
_GIVEN = {*_TEXTS, "importance", "metadata"}
# `timeline --json` prints these, too; the server sets them again.
_SET_BY_THE_SERVER = {each.name for each in fields_of(EpisodicEvent)} - _GIVEN


def read_events(path: str, fields: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[Line | Unreadable]:
    """The events of a file, or of standard input: one JSON object, or one text in quotes, per line.

    `fields` apply if a line does not set them; `metadata` is added to every line.
    """
    return read_json_lines(path, lambda place, found: _read_line(place, found, fields, metadata))


def _read_line(place: str, found: Any, fields: Mapping[str, Any], metadata: Mapping[str, Any]) -> Line | Unreadable:
    if isinstance(found, str):
        found = {"content": found}
    if problem := _problem(found):
        return Unreadable(place, problem)
    own = {name: value for name, value in found.items() if name in _GIVEN and value not in (None, "")}
    if "event_time" in own:
        time = _time(own["event_time"])
        if time is None:
            return Unreadable(place, f'"event_time" must be a time, such as 2027-01-31T12:00Z, not {own["event_time"]}')
        own["event_time"] = time
    given = {"event_type": "", **fields, **own, "metadata": {**own.get("metadata", {}), **metadata}}
    return Line(place, EpisodicEvent(**given))


def _problem(found: Any) -> str | None:
    if not isinstance(found, dict):
        return 'a line must be quoted text or an object, such as {"content": "…", "event_type": "task", "user": "ada"}'
    if unknown := sorted(found.keys() - _GIVEN - _SET_BY_THE_SERVER):
        return f"{json.dumps(unknown[0])} is not a field; the fields are {', '.join(sorted(_GIVEN))}"
    for name in _TEXTS:
        if not fits(found.get(name), str):
            return f'"{name}" must be text'
    if not fits(found.get("metadata"), dict):
        return '"metadata" must be an object'
    return None


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
        return found if found.tzinfo else found.astimezone()
    except (ValueError, OverflowError):
        return None
