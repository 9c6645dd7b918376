"""Memories as stored documents, in both directions."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from mnemon_server.domain.clock import EPOCH
from mnemon_server.domain.collections import MEMORIES
from mnemon_server.domain.confidence import ConfidenceModel
from mnemon_server.domain.damage import reads
from mnemon_server.domain.documents import Document, FieldValue
from mnemon_server.domain.memories import TAGS, DecayPolicy, Memory
from mnemon_server.domain.validation import normalised_metadata

_POLICIES = {policy.value: policy for policy in DecayPolicy}
"""By their values: to call an enum takes several times as long, and searches read many memories."""
_STABLE = DecayPolicy.STABLE.value


def to_document(memory: Memory) -> Document:
    """The stored document of a memory: everything but its confidence."""
    return _document(memory, memory.memory_id, memory.reinforce_time, memory.delete_time)


def new_document(memory: Memory, memory_id: str) -> Document:
    """The document of a memory that is stored under this id, and has been neither reinforced nor deleted."""
    return _document(memory, memory_id, None, None)


def _document(
    memory: Memory, memory_id: str, reinforce_time: datetime | None, delete_time: datetime | None
) -> Document:
    return Document(
        memory_id,
        memory.content,
        normalised_metadata(memory.metadata),
        scope=memory.scope,
        fields={
            **{name: getattr(memory, name) for name in TAGS},
            "global": memory.is_global,
            "decay_policy": memory.decay_policy.value,
            "reinforce_time": reinforce_time,
            "delete_time": delete_time,
        },
        hidden=delete_time is not None,
    )


@reads(MEMORIES)
def to_memory(document: Document, confidence: ConfidenceModel, now: datetime) -> Memory:
    """The memory of a stored document, with its confidence at `now`."""
    fields = document.fields
    policy = _POLICIES[str(fields.get("decay_policy") or _STABLE)]
    created, reinforced = document.create_time or EPOCH, _time(fields.get("reinforce_time"))
    tags: dict[str, Any] = {name: str(fields.get(name) or "") for name in TAGS}
    return Memory(
        memory_id=document.doc_id,
        content=document.content,
        scope=document.scope,
        **tags,
        is_global=bool(fields.get("global")),
        decay_policy=policy,
        metadata=document.metadata,
        confidence=confidence.of(policy, created, reinforced, now),
        revision=document.revision,
        create_time=created,
        update_time=document.update_time or EPOCH,
        reinforce_time=reinforced,
        delete_time=_time(fields.get("delete_time")),
        embeddings=tuple(passage.embedding for passage in document.passages if passage.embedding),
    )


def with_confidence(memory: Memory, confidence: ConfidenceModel, now: datetime) -> Memory:
    """The memory, with its confidence at `now`."""
    return replace(memory, confidence=confidence.at(memory, now))


def _time(value: FieldValue) -> datetime | None:
    return value if isinstance(value, datetime) else None
