"""Converts a knowledge graph of the Model Context Protocol's memory server to facts.

An entity may stand on several lines: its observations are joined, so the graph is kept until the file ends, as the
memory server keeps it. Lines written by the server's forks and the output of `read_graph` are read, too.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, BinaryIO

from mnemon._cli.imports.facts import Record, key_of
from mnemon._cli.imports.found import Found, Item, LeftOut, Place, Raw, as_object
from mnemon._cli.imports.json_text import each_record
from mnemon._messages.convert import invalid
from mnemon._values.facts import Fact

_NAMESPACE = ("knowledge-graph",)
_FROM, _TO = ("from", "source"), ("to", "target")
_RELATION = ("relationType", "relation_type", "relation", "type")
_NAME = ("name", "entityName", "entity_name")
_ENTITY_TYPE = ("entityType", "entity_type", "type")
_OBSERVATIONS = ("observations", "contents", "observation", "content")
_TEXT = ("content", "text", "observation", "value")
_KINDS = ("entity", "relation", "observation")
"""Types of lines; they are not the type of an entity or a relation."""
_HEADERS = ("header", "metadata")


@dataclass(slots=True)
class _Entity:
    """An entity, as all of its lines describe it."""

    place: Place
    entity_type: str = ""
    observations: dict[str, Any] = field(default_factory=dict)
    """The original observations, keyed by their JSON to drop repetitions."""
    source: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Graph:
    entities: dict[str, _Entity] = field(default_factory=dict)
    relations: dict[tuple[str, ...], tuple[Place, dict[str, Any]]] = field(default_factory=dict)

    def add(self, raw: Raw) -> Iterator[LeftOut]:
        """Adds the entity or the relation of a line; a header is left out. Raises InvalidArgumentError."""
        record = as_object(raw)
        kind = record.get("type", record.get("_type"))
        if _named(record, _FROM) and _named(record, _TO):
            self._relate(raw.place, record)
        elif _named(record, _NAME):
            self._describe(raw.place, record)
        elif isinstance(kind, str) and (kind in _HEADERS or kind.startswith("_")):
            yield LeftOut(raw.place, "header")
        elif kind == "relation":
            raise invalid("from", 'is missing, or "to": a relation needs both')
        elif kind == "entity":
            raise invalid("name", "must be the name of the entity")
        else:
            raise invalid("type", 'must be "entity" or "relation"')

    def _describe(self, place: Place, record: Record) -> None:
        name, observations = key_of(record, _named(record, _NAME)), _observations(record)
        entity = self.entities.setdefault(name, _Entity(place))
        entity.observations |= {json.dumps(each, sort_keys=True): each for each in observations}
        entity.entity_type = _type(record, _ENTITY_TYPE) or entity.entity_type
        entity.source |= record

    def _relate(self, place: Place, record: Record) -> None:
        start, end = (key_of(record, _named(record, names)) for names in (_FROM, _TO))
        if not (relation := _type(record, _RELATION)):
            raise invalid("relationType", "must be the name of the relation")
        _, source = self.relations.setdefault((start, relation, end), (place, {}))
        source |= record

    def items(self) -> Iterator[Item]:
        """The facts of the graph."""
        for name, entity in self.entities.items():
            yield _entity_item(name, entity)
        for words, (place, source) in self.relations.items():
            yield _relation_item(words, place, source)


def knowledge_graph(file: BinaryIO, name: str) -> Iterator[Found]:
    """The facts of a file: one for each entity, and one for each relation."""
    graph = _Graph()
    yield from each_record(file, graph.add)
    yield from graph.items()


def _entity_item(name: str, entity: _Entity) -> Item:
    observations = list(entity.observations.values())
    titled = f"{name} ({entity.entity_type})" if entity.entity_type else name
    content = f"{titled}: {'; '.join(map(_text, observations))}" if observations else titled
    said = {"content": content, "name": name, "entity_type": entity.entity_type, "observations": observations}
    rest = _rest(entity.source, (*_NAME, *_ENTITY_TYPE, *_OBSERVATIONS))
    return Item(entity.place, Fact(namespace=_NAMESPACE, key=name, value={**rest, **said}), source=entity.source)


def _relation_item(words: tuple[str, ...], place: Place, source: dict[str, Any]) -> Item:
    said = {"content": " ".join(words), "from": words[0], "relation_type": words[1], "to": words[2]}
    # The joined words are ambiguous: they hide where names end, and may equal an entity's name.
    key = sha256(json.dumps(words).encode()).hexdigest()
    rest = _rest(source, (*_FROM, *_TO, *_RELATION))
    return Item(place, Fact(namespace=_NAMESPACE, key=key, value={**rest, **said}), source=source)


def _named(record: Record, names: tuple[str, ...]) -> str:
    """The value of the first name present in the record, or empty."""
    return next((name for name in names if record.get(name) not in (None, "")), "")


def _type(record: Record, names: tuple[str, ...]) -> str:
    """The type of an entity or a relation, under the first name that gives one."""
    given = (record.get(name) for name in names)
    return next((each for each in given if isinstance(each, str) and each and each not in _KINDS), "")


def _rest(source: Record, used: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in source.items() if key not in (*used, "_type") and value is not None}


def _observations(record: Record) -> list[Any]:
    """The observations: texts, or objects with a text."""
    name = _named(record, _OBSERVATIONS) or _OBSERVATIONS[0]
    given = record.get(name) or []
    found = [given] if isinstance(given, str) else given
    if not isinstance(found, list) or not all(each == "" or _text(each) for each in found):
        raise invalid(name, "must be a list of texts, or of objects with a text")
    return [each for each in found if each != ""]


def _text(observation: object) -> str:
    """The text of an observation, or empty."""
    if isinstance(observation, dict):
        observation = next((observation[name] for name in _TEXT if name in observation), "")
    return observation if isinstance(observation, str) else ""
