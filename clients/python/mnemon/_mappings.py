"""Converts the exports of other memory systems to facts.

A record becomes one fact: its text is the value's "content", and whatever else it says becomes further keys of the
value, which filters can name. The table of all mappings is in docs, under the command `mnemon import`.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from mnemon._messages.documents import invalid
from mnemon._values.facts import Fact

Record = Mapping[str, Any]

_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_LISTS = ("results", "memories", "items", "edges", "facts", "data")
"""Keys under which an answer of an API holds its records."""
_NAMES = frozenset({"id", "uuid", "key", "type"})
"""An object with one of these keys is a record itself."""
_MILLISECONDS_FROM = 1e11
"""As seconds, a time in the year 5138."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """A fact, with the vector that came with it."""

    fact: Fact
    embedding: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class FieldMapping:
    """Where the parts of a fact are in a record; a place is a key, or several joined by dots."""

    content: str = ""
    key: str = ""
    created_at: str = ""
    updated_at: str = ""
    embedding: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    """Further keys of the value, with their places."""
    spread: tuple[str, ...] = ()
    """Objects whose keys become keys of the value."""
    rest: bool = False
    """Whether everything else becomes keys of the value, too."""
    dropped: frozenset[str] = frozenset()


def records_in(found: object) -> Iterator[object]:
    """The records of a JSON value: itself, the items of a list, or what an API's answer holds under its usual key."""
    if isinstance(found, list):
        yield from found
        return
    if isinstance(found, Mapping):
        if isinstance(ids := found.get("ids"), list):
            yield from _rows(found, ids)
            return
        for name in _LISTS if found.keys().isdisjoint(_NAMES) else ():
            if isinstance(inner := found.get(name), list):
                yield from inner
                return
    yield found


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


def mapped(record: Record, mapping: FieldMapping, namespace: tuple[str, ...]) -> Mapped:
    """The fact that a record becomes.

    Raises:
        InvalidArgumentError: a required part is missing, or a time or a vector is invalid.
    """
    content = _at(record, mapping.content)
    if not isinstance(content, str) or not content.strip():
        raise invalid(mapping.content, "must be the text of the record")
    value = {**_further(record, mapping), "content": content}
    fact = Fact(
        namespace=namespace,
        key=_key(record, mapping.key),
        value=value,
        create_time=_time(record, mapping.created_at),
        update_time=_time(record, mapping.updated_at) or _time(record, mapping.created_at),
    )
    return Mapped(fact, _vector(record, mapping.embedding))


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


def _key(record: Record, place: str) -> str:
    value = _at(record, place)
    if place and (isinstance(value, bool) or not isinstance(value, str | int) or value == ""):
        raise invalid(place, "must be the id of the record")
    return str(value) if place else ""


def _time(record: Record, place: str) -> datetime | None:
    given = _at(record, place)
    if given is None or given == "":
        return None
    try:
        if isinstance(given, int | float) and not isinstance(given, bool):
            return datetime.fromtimestamp(given / 1000 if given > _MILLISECONDS_FROM else given, UTC)
        found = datetime.fromisoformat(given)
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


def _rows(found: Record, ids: list[Any]) -> Iterator[dict[str, Any]]:
    """The records of what Chroma's `get` returns: lists of one length."""
    columns = {"document": "documents", "metadata": "metadatas", "embedding": "embeddings"}
    given = {name: found.get(plural) for name, plural in columns.items()}
    for number, record_id in enumerate(ids):
        cells = {name: cell[number] for name, cell in given.items() if isinstance(cell, list) and number < len(cell)}
        yield {"id": record_id, **cells}


# The records of each system


def _default_labels(record: Record, fallback: str) -> tuple[str, ...]:
    """Where the tools look for what belongs to a user or an agent."""
    user, agent = record.get("user_id"), record.get("agent_id")
    labels = (*(("user", str(user)) if user else ()), *(("agent", str(agent)) if agent else ()))
    return labels or (fallback,)


_MEM0 = FieldMapping(
    content="memory",
    key="id",
    created_at="created_at",
    updated_at="updated_at",
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
    spread=("attributes",),
    rest=True,
    dropped=frozenset({"score", "relevance"}),
)


def _mem0(record: Record) -> Mapped:
    return mapped(record, _MEM0, _default_labels(record, "mem0"))


def _chroma(record: Record) -> Mapped:
    # Tools that dump collections use this name for the text.
    given = {**record, "document": record["text_chunk"]} if "text_chunk" in record else record
    return mapped(given, _CHROMA, ("chroma",))


def _zep(record: Record) -> Mapped:
    graph = next((str(record[name]) for name in ("group_id", "graph_uuid", "graph_id") if record.get(name)), "")
    labels = ("user", str(record["user_id"])) if record.get("user_id") else ("graph", graph) if graph else ("zep",)
    return mapped(record, _ZEP, labels)


def _langgraph(record: Record) -> Mapped:
    """An item of a store, or a row of its table, whose `prefix` is the namespace joined by dots."""
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
    fact = Fact(
        namespace=tuple(labels),
        key=_key(record, "key"),
        value=value,
        create_time=_time(record, "created_at"),
        update_time=_time(record, "updated_at"),
        ttl=timedelta(minutes=minutes) if isinstance(minutes, int | float) and minutes > 0 else None,
    )
    return Mapped(fact)


def _knowledge_graph(record: Record) -> Mapped:
    """A line of the memory file of the Model Context Protocol's memory server: an entity, or a relation."""
    if record.get("type") == "relation":
        parts = [_key(record, name) for name in ("from", "relationType", "to")]
        content = " ".join(parts)
        value = {"content": content, "from": parts[0], "relation_type": parts[1], "to": parts[2]}
        return Mapped(Fact(namespace=("knowledge-graph",), key=content, value=value))
    if record.get("type") != "entity":
        raise invalid("type", 'must be "entity" or "relation"')
    name, observations = _key(record, "name"), record.get("observations", [])
    if not isinstance(observations, list) or not all(isinstance(each, str) for each in observations):
        raise invalid("observations", "must be a list of texts")
    entity_type = record.get("entityType") or ""
    titled = f"{name} ({entity_type})" if entity_type else name
    content = f"{titled}: {'; '.join(observations)}" if observations else titled
    said = {"content": content, "name": name, "entity_type": entity_type, "observations": observations}
    return Mapped(Fact(namespace=("knowledge-graph",), key=name, value=said))


SYSTEMS: Mapping[str, Callable[[Record], Mapped]] = {
    "mem0": _mem0,
    "langgraph": _langgraph,
    "chroma": _chroma,
    "zep": _zep,
    "mcp-memory": _knowledge_graph,
}
"""By the name that `mnemon import --from` takes: the fact that a record becomes, under its default namespace."""
