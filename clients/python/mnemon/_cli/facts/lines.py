"""Reads facts from JSON lines of files and standard input."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from mnemon._cli.documents.sources import Unreadable
from mnemon._cli.json_lines import Line, read_json_lines
from mnemon._values.facts import Fact

_GIVEN = {"namespace", "key", "value", "metadata", "create_time", "update_time", "ttl_s", "index", "embedding"}
# `facts list --json` prints these, too; the server sets them again.
_SET_BY_THE_SERVER = {"revision", "expire_time", "versions", "embeddings"}
_KINDS = {
    "namespace": (list, "a list of labels"),
    "key": (str, "text"),
    "metadata": (dict, "an object"),
    "embedding": (list, "a list of numbers"),
}
_TIMES = ("create_time", "update_time")


def read_facts(path: str, fields: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[Line | Unreadable]:
    """The facts of a file, or of standard input: one JSON object, or one text in quotes, per line.

    `fields` apply if a line does not set them; `metadata` is added to every line.
    """
    return read_json_lines(path, lambda place, found: _read_line(place, found, fields, metadata))


def _read_line(place: str, found: Any, fields: Mapping[str, Any], metadata: Mapping[str, Any]) -> Line | Unreadable:
    if isinstance(found, str):
        found = {"value": {"content": found}}
    if problem := _problem(found):
        return Unreadable(place, problem)
    own = {name: value for name, value in found.items() if name in _GIVEN and value is not None}
    embedding, ttl_s = own.pop("embedding", None), own.pop("ttl_s", None)
    try:
        own |= {name: _time(own[name]) for name in _TIMES if name in own}
        own |= {} if ttl_s is None else {"ttl": timedelta(seconds=ttl_s)}
    except (TypeError, ValueError, OverflowError) as error:
        return Unreadable(place, f"a time or the ttl is invalid: {error}")
    given = {"namespace": (), "key": "", **fields, **own, "metadata": {**own.get("metadata", {}), **metadata}}
    fact = Fact(**given)
    return Line(place, fact if embedding is None else (fact, embedding))


def _problem(found: Any) -> str | None:
    if not isinstance(found, dict):
        return (
            'a line must be quoted text or an object, such as {"namespace": ["user", "ada"], "value": {"content": "…"}}'
        )
    if unknown := sorted(found.keys() - _GIVEN - _SET_BY_THE_SERVER):
        return f"{json.dumps(unknown[0])} is not a field; the fields are {', '.join(sorted(_GIVEN))}"
    if not isinstance(found.get("value"), dict):
        return '"value" must be an object'
    for name, (kind, wanted) in _KINDS.items():
        if not isinstance(found.get(name), kind | None):
            return f'"{name}" must be {wanted}'
    return None


def _time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.astimezone()
