"""Converts the exports of other memory systems to facts.

A record becomes one fact: its text is the value's "content", and whatever else it says becomes further keys of the
value, which filters can name. ARCHIVES.md has the table of all mappings.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from mnemon._cli.imports.found import Item, Raw, as_object
from mnemon._messages.conversations import since_1970
from mnemon._messages.convert import invalid
from mnemon._values.facts import Fact

Record = Mapping[str, Any]

_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_TTL_MAX = timedelta(days=36_500)
"""The server's maximum; a later end is dropped."""
_STATES = ("deleted", "archived", "paused")
"""States of OpenMemory memories that its searches do not return."""
ENDED = frozenset({"expired", *_STATES})
"""Reasons why a record has ended."""


@dataclass(frozen=True, slots=True)
class FieldMapping:
    """Where the parts of a fact are in a record; a place is a key, or several joined by dots."""

    content: str = ""
    key: str = ""
    created_at: str = ""
    updated_at: str = ""
    embedding: str = ""
    expires: tuple[str, ...] = ()
    """End times of the record; the earliest one applies."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Further keys of the value, with their places."""
    spread: tuple[str, ...] = ()
    """Objects whose keys become keys of the value."""
    rest: bool = False
    """Whether everything else becomes keys of the value, too."""
    dropped: frozenset[str] = frozenset()


def labels_for(template: tuple[str, ...], record: Record) -> tuple[str, ...]:
    """A namespace: labels in braces are filled from the record, and may be in the midst of one.

    Raises:
        InvalidArgumentError: the record has no text there.
    """

    def fill(match: "re.Match[str]") -> str:
        value = _at(record, match[1])
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            raise invalid("namespace", f"needs {match[1]!r}, which the record does not have")
        return str(value)

    return tuple(_PLACEHOLDER.sub(fill, label) for label in template)


def mapped(raw: Raw, mapping: FieldMapping, namespace: tuple[str, ...]) -> Item:
    """The fact that a record becomes.

    Raises:
        InvalidArgumentError: a required part is missing, or a time or a vector is invalid.
    """
    record = as_object(raw)
    content = _at(record, mapping.content)
    if not isinstance(content, str) or not content.strip():
        raise invalid(mapping.content, "must be the text of the record")
    value = {**_further(record, mapping), "content": content}
    ended, ttl = _ending(record, mapping.expires)
    fact = Fact(
        namespace=namespace,
        key=key_of(record, mapping.key),
        value=value,
        create_time=time_of(record, mapping.created_at),
        update_time=time_of(record, mapping.updated_at) or time_of(record, mapping.created_at),
        ttl=ttl,
    )
    return Item(raw.place, fact, _vector(record, mapping.embedding), ended)


def _ending(record: Record, places: Iterable[str]) -> tuple[str, timedelta | None]:
    """Why a record has ended, or its remaining lifetime, None if unlimited."""
    if record.get("deleted") is True or record.get("is_deleted") is True or record.get("deleted_at"):
        return "deleted", None
    if (state := record.get("state")) in _STATES:
        return str(state), None
    ends = [end for place in places if (end := _end_of(record, place)) is not None]
    if not ends:
        return "", None
    rest = min(ends) - datetime.now(UTC)
    if rest <= timedelta(0):
        return "expired", None
    return "", rest if rest <= _TTL_MAX else None


def _end_of(record: Record, place: str) -> datetime | None:
    """The end time of a record; for a date, the end of that day."""
    end, given = time_of(record, place), _at(record, place)
    is_date = isinstance(given, str) and len(given) == len("2026-01-31")
    return end + timedelta(days=1) if end is not None and is_date else end


def _further(record: Record, mapping: FieldMapping) -> dict[str, Any]:
    """The keys of the value beside the content; nulls are left out."""
    found: dict[str, Any] = {}
    for place in mapping.spread:
        if isinstance(inner := _at(record, place), Mapping):
            found |= inner
    if mapping.rest:
        used = {mapping.content, mapping.key, mapping.created_at, mapping.updated_at, mapping.embedding}
        taken = used | set(mapping.spread) | set(mapping.values.values()) | mapping.dropped
        found |= {key: value for key, value in record.items() if key not in taken}
    found |= {key: _at(record, place) for key, place in mapping.values.items()}
    return {key: value for key, value in found.items() if value is not None}


def _at(record: Record, place: str) -> Any:
    """The value at a place; None if there is no value."""
    found: Any = record
    for name in place.split(".") if place else ():
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if place else None


def key_of(record: Record, place: str) -> str:
    """The id at a place, as text; empty without a place. Raises InvalidArgumentError if it is missing."""
    value = _at(record, place)
    if place and (isinstance(value, bool) or not isinstance(value, str | int) or value == ""):
        raise invalid(place, "must be the id of the record")
    return str(value) if place else ""


def time_of(record: Record, place: str) -> datetime | None:
    """The time at a place, if there is one. Raises InvalidArgumentError if it is not a time."""
    given = _at(record, place)
    if given is None or given == "":
        return None
    try:
        found = since_1970(given) or datetime.fromisoformat(given)
    except (ValueError, TypeError, OverflowError, OSError) as error:
        raise invalid(place, "must be a time in ISO 8601, or seconds since 1970") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _vector(record: Record, place: str) -> tuple[float, ...] | None:
    given = _at(record, place)
    if given is None:
        return None
    if not isinstance(given, list) or not all(isinstance(each, int | float) for each in given):
        raise invalid(place, "must be a list of numbers")
    return tuple(map(float, given)) or None


# The records of each system


def _default_labels(record: Record, fallback: str) -> tuple[str, ...]:
    """Where the tools look for what belongs to a user or an agent."""
    user, agent = record.get("user_id"), record.get("agent_id")
    labels = (*(("user", str(user)) if user else ()), *(("agent", str(agent)) if agent else ()))
    return labels or (fallback,)


_TEXTS = ("memory", "content", "text", "data")
"""Names of the text in mem0 and its relatives."""
_MEM0 = FieldMapping(
    content="memory",
    key="id",
    created_at="created_at",
    updated_at="updated_at",
    expires=("expiration_date",),
    spread=("metadata",),
    rest=True,
    dropped=frozenset({"hash", "user_id", "agent_id", "score"}),
)
_CHROMA = FieldMapping(content="document", key="id", embedding="embedding", spread=("metadata",))
_ZEP = FieldMapping(
    content="fact",
    key="uuid",
    created_at="created_at",
    embedding="fact_embedding",
    expires=("invalid_at", "expired_at"),
    spread=("attributes",),
    rest=True,
    dropped=frozenset({"score", "relevance"}),
)


def mem0(raw: Raw) -> Item:
    """A memory of mem0 or OpenMemory."""
    record = as_object(raw)
    name = next((name for name in _TEXTS if name in record), "memory")
    renamed = {("memory" if key == name else key): value for key, value in record.items()}
    return mapped(Raw(raw.place, renamed), _MEM0, _default_labels(record, "mem0"))


def chroma(raw: Raw) -> Item:
    """A row of a collection of Chroma."""
    record = as_object(raw)
    # Tools that dump collections use this name for the text.
    given = {**record, "document": record["text_chunk"]} if "text_chunk" in record else record
    return mapped(Raw(raw.place, given), _CHROMA, ("chroma",))


def zep(raw: Raw) -> Item:
    """An edge of a graph of Zep or Graphiti."""
    record = as_object(raw)
    graph = next((str(record[name]) for name in ("group_id", "graph_uuid", "graph_id") if record.get(name)), "")
    labels = ("user", str(record["user_id"])) if record.get("user_id") else ("graph", graph) if graph else ("zep",)
    return mapped(raw, _ZEP, labels)


def langgraph(raw: Raw) -> Item:
    """An item of a store, or a row of its table, whose `prefix` is the namespace joined by dots."""
    record = as_object(raw)
    labels = record.get("namespace", record.get("prefix"))
    if isinstance(labels, str):
        labels = labels.split(".")
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise invalid("namespace", "must be a list of labels")
    value = record.get("value")
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise invalid("value", "must be an object") from error
    if not isinstance(value, dict):
        raise invalid("value", "must be an object")
    minutes = record.get("ttl_minutes")
    renewable = timedelta(minutes=minutes) if isinstance(minutes, int | float) and minutes > 0 else None
    ended, ttl = _ending(record, ("expires_at",))
    fact = Fact(
        namespace=tuple(labels),
        key=key_of(record, "key"),
        value=value,
        create_time=time_of(record, "created_at"),
        update_time=time_of(record, "updated_at"),
        ttl=ttl or renewable,
    )
    return Item(raw.place, fact, ended=ended)
