"""Reads memories from JSON lines of files and standard input."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields as fields_of
from typing import Any

from mnemon._cli.documents.sources import Unreadable
from mnemon._cli.json_lines import Line, fits, read_json_lines
from mnemon._values.documents import SCOPE_FIELDS
from mnemon._values.memories import TEXTS, Memory

_TEXTS = (*TEXTS, *SCOPE_FIELDS, "decay")
_GIVEN = {*_TEXTS, "is_global", "metadata", "embedding"}
# `memories --json` prints these, too; the server sets them again.
_SET_BY_THE_SERVER = {each.name for each in fields_of(Memory)} - _GIVEN


def read_lines(path: str, fields: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[Line | Unreadable]:
    """The memories of a file, or of standard input: one JSON object, or one text in quotes, per line.

    `fields` apply if a line does not set them; `metadata` is added to every line.
    """
    return read_json_lines(path, lambda place, found: _read_line(place, found, fields, metadata))


def _read_line(place: str, found: Any, fields: Mapping[str, Any], metadata: Mapping[str, Any]) -> Line | Unreadable:
    if isinstance(found, str):
        found = {"content": found}
    if problem := _problem(found):
        return Unreadable(place, problem)
    own = {name: value for name, value in found.items() if name in _GIVEN and value not in (None, "")}
    embedding = own.pop("embedding", None)
    memory = Memory(**{"content": "", **fields, **own, "metadata": {**own.get("metadata", {}), **metadata}})
    return Line(place, memory if embedding is None else (memory, embedding))


def _problem(found: Any) -> str | None:
    if not isinstance(found, dict):
        return 'a line must be quoted text or an object, such as {"content": "…", "type": "preference"}'
    if unknown := sorted(found.keys() - _GIVEN - _SET_BY_THE_SERVER):
        return f"{json.dumps(unknown[0])} is not a field; the fields are {', '.join(sorted(_GIVEN))}"
    if not isinstance(found.get("content"), str):
        return '"content" must be text'
    for name in _TEXTS:
        if not fits(found.get(name), str):
            return f'"{name}" must be text'
    if not fits(found.get("is_global"), bool):
        return '"is_global" must be true or false'
    if not fits(found.get("metadata"), dict):
        return '"metadata" must be an object'
    if not fits(found.get("embedding"), list):
        return '"embedding" must be a list of numbers'
    return None
