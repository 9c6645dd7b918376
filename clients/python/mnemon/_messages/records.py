"""Memories, statements, events and facts as messages, with the fields that a caller sets."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from mnemon._messages import convert
from mnemon._messages.convert import invalid
from mnemon._messages.filters import check_keywords
from mnemon._messages.translation import request
from mnemon._values import documents as values
from mnemon._values import facts, memories, semantic, timeline
from mnemon.v1 import episodic_pb2, facts_pb2, memory_pb2, semantic_pb2

_Scoped = TypeVar("_Scoped", memories.Memory, semantic.SemanticMemory, timeline.EpisodicEvent)

# The path of each argument of an update in the message.
_PATHS = {
    **{name: name for name in ("content", "is_global", "metadata", *memories.TAGS)},
    **{name: f"scope.{name}" for name in values.SCOPE_FIELDS},
    "decay": "decay_policy",
}


def memory_to_pb(memory: memories.Memory) -> memory_pb2.Memory:
    """A memory as a message, without the fields that only the server sets."""
    return request(memory_pb2.Memory, **_taken(memory, (*memories.TEXTS, "scope", "decay", "metadata", "is_global")))


def create_memory_like(given: object, *, scope: values.Scope | None, ack: str) -> memory_pb2.CreateMemoryRequest:
    """A new memory from one item of `add_many`; `scope` is the default for items without one."""
    memory, embedding = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    if isinstance(memory, str):
        memory = memories.Memory(memory)
    if not isinstance(memory, memories.Memory):
        raise invalid("memory", "must be text or a Memory, alone or with its vector as a pair")
    message = memory_to_pb(_scoped(memory, scope))
    return request(memory_pb2.CreateMemoryRequest, memory=message, embedding=embedding, ack=ack)


def update_memory(
    memory_id: str,
    fields: Mapping[str, Any],
    *,
    set_metadata: Mapping[str, values.MetadataValue] | None,
    remove_metadata: Iterable[str],
    **how: Any,
) -> memory_pb2.UpdateMemoryRequest:
    """A change of the `fields` that are not None, and of single keys of the metadata."""
    check_keywords(fields, _PATHS)
    given = {name: value for name, value in fields.items() if value is not None}
    removed = convert.keys("remove_metadata", remove_metadata)
    _check_update(memory_id, given, set_metadata, removed)
    return request(
        memory_pb2.UpdateMemoryRequest,
        memory=memory_to_pb(memories.Memory(**{"content": "", "memory_id": memory_id, **given})),
        update_mask=[_PATHS[name] for name in given],
        set_metadata=set_metadata,
        remove_metadata=removed,
        **how,
    )


def _check_update(memory_id: str, given: Mapping[str, Any], set_metadata: Any, remove_metadata: Iterable[str]) -> None:
    convert.text("memory_id", memory_id)
    if not isinstance(set_metadata, Mapping | None):
        raise invalid("set_metadata", f"must be a mapping of keys to values, not {type(set_metadata).__name__}")
    if set_metadata and "metadata" in given:
        raise invalid("set_metadata", "changes single keys, and metadata replaces all of them; give one")
    if remove_metadata and "metadata" in given:
        raise invalid("remove_metadata", "removes single keys, and metadata replaces all of them; give one")
    if both := sorted(set(set_metadata or {}) & set(remove_metadata)):
        raise invalid(f"set_metadata.{both[0]}", "is to be set and to be removed")
    if not given and not set_metadata and not remove_metadata:
        raise invalid("update_mask", "nothing is to be changed; give what is, such as content or type")


def statement_to_pb(memory: semantic.SemanticMemory, *, with_embedding: bool = False) -> semantic_pb2.SemanticMemory:
    """A statement as a message, without the fields that only the server sets; with its vector if requested."""
    names = (*semantic.TEXTS, "scope", "importance", "keywords", "metadata", "create_time")
    vector = embedding_of(memory) if with_embedding else None
    return request(semantic_pb2.SemanticMemory, **_taken(memory, names), embedding=vector)


def embedding_of(memory: semantic.SemanticMemory) -> list[float] | None:
    """The statement's vector as a message field; None without a vector."""
    return convert.vector_to_pb("embedding", memory.embedding, may_be_empty=True) or None


def given_statement(field: str, given: object, *, with_embedding: bool = True) -> semantic_pb2.SemanticMemory:
    """A statement that a caller gives as such."""
    if not isinstance(given, semantic.SemanticMemory):
        raise invalid(field, "must be a SemanticMemory")
    return statement_to_pb(given, with_embedding=with_embedding)


def save(memory: semantic.SemanticMemory, **how: Any) -> semantic_pb2.SaveSemanticMemoryRequest:
    """A new statement; `how` are the other fields of the request."""
    kind = semantic_pb2.SaveSemanticMemoryRequest
    return request(kind, memory=statement_to_pb(memory), embedding=embedding_of(memory), **how)


def save_like(
    given: object, *, scope: values.Scope | None, conflict_policy: str, rule: str
) -> semantic_pb2.SaveSemanticMemoryRequest:
    """A new statement from one item of `add_many`; `scope` is the default for items without one."""
    memory = semantic.SemanticMemory(given) if isinstance(given, str) else given
    if not isinstance(memory, semantic.SemanticMemory):
        raise invalid("memory", "must be text or a SemanticMemory")
    return save(_scoped(memory, scope), conflict_policy=conflict_policy, rule=rule)


def event_to_pb(event: timeline.EpisodicEvent) -> episodic_pb2.EpisodicEvent:
    """An event as a message, without the fields that only the server sets."""
    names = (*timeline.TEXTS, "scope", "importance", "metadata", "event_time")
    return request(episodic_pb2.EpisodicEvent, **_taken(event, names))


def event_like(given: object, *, scope: values.Scope | None) -> episodic_pb2.EpisodicEvent:
    """One item of `add_many`; `scope` is the default for items without one."""
    if not isinstance(given, timeline.EpisodicEvent):
        raise invalid("event", "must be an EpisodicEvent")
    event = _scoped(given, scope)
    return event_to_pb(event if event.event_time else replace(event, event_time=datetime.now(UTC)))


def new_event_id() -> str:
    """An id that no other event has."""
    return str(uuid.uuid4())


def fact_to_pb(fact: facts.Fact) -> facts_pb2.Fact:
    """A fact as a message, without the fields that only the server sets."""
    given = _taken(
        fact, ("namespace", "key", "value", "metadata", "create_time", "update_time", "ttl", *values.ORIGIN_FIELDS)
    )
    return request(facts_pb2.Fact, **given, index=_index_to_pb(fact.index))


def put_like(given: object, *, mode: str, ack: str) -> facts_pb2.PutFactRequest:
    """One item of `put_many`."""
    fact, embedding = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    if not isinstance(fact, facts.Fact):
        raise invalid("fact", "must be a Fact, alone or with its vector as a pair")
    return request(facts_pb2.PutFactRequest, fact=fact_to_pb(fact), mode=mode, embedding=embedding, ack=ack)


def _index_to_pb(given: object) -> facts_pb2.FactIndex | None:
    if given is None:
        return None
    if given is False:
        return facts_pb2.FactIndex(off=True)
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise invalid("index", 'must be paths such as ["title", "messages[*].text"], False for none, or None')
    paths = [convert.text(f"index[{number}]", path) for number, path in enumerate(given)]
    if not paths:
        # In the message, an empty list means the default, but the caller means no path.
        raise invalid("index", "must name a path; False searches nothing, and None what is usual")
    return facts_pb2.FactIndex(paths=paths)


def names_to_pb(names: Iterable[tuple[Iterable[str], str]]) -> list[facts_pb2.FactName]:
    """The names of several facts."""
    return [_name_to_pb(number, name) for number, name in enumerate(names)]


def _name_to_pb(number: int, given: object) -> facts_pb2.FactName:
    if not isinstance(given, tuple) or len(given) != 2:
        raise invalid(f"names[{number}]", 'must be a namespace with a key, such as (("user", "ada"), "tea")')
    namespace, key = given
    return facts_pb2.FactName(
        namespace=convert.namespace_to_pb(f"names[{number}].namespace", namespace),
        key=convert.text(f"names[{number}].key", key),
    )


def _taken(record: object, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


def _scoped(record: _Scoped, scope: values.Scope | None) -> _Scoped:
    """The record; this scope is the default."""
    return replace(record, **asdict(scope)) if scope is not None and record.scope == values.Scope() else record
