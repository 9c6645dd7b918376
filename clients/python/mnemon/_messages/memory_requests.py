"""Builds the request of every call about memories; both clients share it."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.field_mask_pb2 import FieldMask

from mnemon._messages import documents as convert
from mnemon._messages import memories as memory_convert
from mnemon._messages.documents import invalid
from mnemon._messages.fields import check_keywords, ids_filter, int32_to_pb, limit_to_pb
from mnemon._values import documents as values
from mnemon._values import memories
from mnemon.v1 import memory_pb2 as pb

# The path of each argument of an update in the message.
_PATHS = {
    **{name: name for name in ("content", "is_global", "metadata", *memories.TAGS)},
    **{name: f"scope.{name}" for name in values.SCOPE_FIELDS},
    "decay": "decay_policy",
}


def create_memory(
    memory: memories.Memory, *, embedding: Sequence[float] | None = None, request_id: str | None = None, ack: str
) -> pb.CreateMemoryRequest:
    """A new memory; it always has a request_id, so repeating it is harmless."""
    return pb.CreateMemoryRequest(
        memory=memory_convert.memory_to_pb(memory),
        embedding=memory_convert.vector_to_pb("embedding", embedding),
        request_id=_request_id(request_id),
        ack=_ack(ack),
    )


def create_memory_like(given: object, *, scope: values.Scope | None, ack: str) -> pb.CreateMemoryRequest:
    """A new memory from one item of `add_many`; `scope` applies if the item has none."""
    memory, embedding = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    if isinstance(memory, str):
        memory = memories.Memory(memory)
    if not isinstance(memory, memories.Memory):
        raise invalid("memory", "must be text or a Memory, alone or with its vector as a pair")
    if scope is not None and memory.scope == values.Scope():
        memory = replace(memory, **asdict(scope))
    return create_memory(memory, embedding=embedding, ack=ack)


def search_memories(
    query: str,
    *,
    vector: Sequence[float] | None,
    limit: int,
    min_confidence: float,
    which: memories.MemoryFilters,
    mode: str | None,
    min_score: float,
    view: str,
    explain: bool,
) -> pb.SearchMemoriesRequest:
    """A search for memories."""
    return pb.SearchMemoriesRequest(
        query=convert.text("query", query),
        vector=memory_convert.vector_to_pb("vector", vector),
        mode=convert.mode_to_pb(mode),
        limit=limit_to_pb(limit),
        min_score=min_score,
        filter=memory_convert.memory_filter_to_pb(which, min_confidence),
        view=convert.VIEWS_TO_PB[convert.choice("view", view, values.View)],
        explain=explain,
    )


def get_memory(memory_id: str) -> pb.GetMemoryRequest:
    """A read of one memory."""
    return pb.GetMemoryRequest(memory_id=convert.text("memory_id", memory_id))


def list_memories(
    *, page_size: int, page_token: str, which: memories.MemoryFilters, min_confidence: float, show_deleted: bool
) -> pb.ListMemoriesRequest:
    """A page of memories."""
    return pb.ListMemoriesRequest(
        filter=memory_convert.memory_filter_to_pb(which, min_confidence or None),
        page_size=int32_to_pb(page_size),
        page_token=convert.text("page_token", page_token),
        show_deleted=show_deleted,
    )


def update_memory(
    memory_id: str,
    *,
    set_metadata: Mapping[str, values.MetadataValue] | None,
    remove_metadata: Iterable[str],
    embedding: Sequence[float] | None,
    expected_revision: int | None,
    request_id: str | None,
    ack: str,
    **fields: Any,
) -> pb.UpdateMemoryRequest:
    """A change of the `fields` that are not None, and of single keys of the metadata."""
    check_keywords(fields, _PATHS)
    given = {name: value for name, value in fields.items() if value is not None}
    removed = convert.keys("remove_metadata", remove_metadata)
    _check_update(memory_id, given, set_metadata, removed)
    return pb.UpdateMemoryRequest(
        memory=memory_convert.memory_to_pb(memories.Memory(**{"content": "", "memory_id": memory_id, **given})),
        update_mask=FieldMask(paths=[_PATHS[name] for name in given]),
        set_metadata=convert.metadata_to_pb("set_metadata", set_metadata or {}),
        remove_metadata=removed,
        embedding=memory_convert.vector_to_pb("embedding", embedding),
        expected_revision=expected_revision,
        request_id=_request_id(request_id),
        ack=_ack(ack),
    )


def reinforce_memory(
    memory_id: str, *, expected_revision: int | None, request_id: str | None
) -> pb.ReinforceMemoryRequest:
    """A reinforcement."""
    return pb.ReinforceMemoryRequest(
        memory_id=convert.text("memory_id", memory_id),
        request_id=_request_id(request_id),
        expected_revision=expected_revision,
    )


def delete_memory(
    memory_id: str, *, expected_revision: int | None, allow_missing: bool, request_id: str | None, ack: str
) -> pb.DeleteMemoryRequest:
    """A soft deletion."""
    return pb.DeleteMemoryRequest(
        memory_id=convert.text("memory_id", memory_id),
        request_id=_request_id(request_id),
        expected_revision=expected_revision,
        allow_missing=allow_missing,
        ack=_ack(ack),
    )


def undelete_memory(
    memory_id: str, *, expected_revision: int | None, request_id: str | None
) -> pb.UndeleteMemoryRequest:
    """A request to undo a soft deletion."""
    return pb.UndeleteMemoryRequest(
        memory_id=convert.text("memory_id", memory_id),
        request_id=_request_id(request_id),
        expected_revision=expected_revision,
    )


def purge_memories(
    memory_ids: Iterable[str] | None,
    *,
    which: memories.MemoryFilters,
    min_confidence: float,
    only_deleted: bool,
    dry_run: bool,
    request_id: str | None,
) -> pb.PurgeMemoriesRequest:
    """A removal for good."""
    if memory_ids is not None:
        which = {"where": ids_filter("memory_ids", memory_ids, "memory_id", alone=not which)}
    return pb.PurgeMemoriesRequest(
        filter=memory_convert.memory_filter_to_pb(which, min_confidence or None),
        only_deleted=only_deleted,
        dry_run=dry_run,
        request_id=_request_id(request_id),
    )


def count_memories(
    *, which: memories.MemoryFilters, min_confidence: float, show_deleted: bool
) -> pb.CountMemoriesRequest:
    """A count of memories."""
    return pb.CountMemoriesRequest(
        filter=memory_convert.memory_filter_to_pb(which, min_confidence or None), show_deleted=show_deleted
    )


def forecast_memories(
    by: datetime | timedelta, *, which: memories.MemoryFilters, min_confidence: float, page_size: int
) -> pb.ForecastMemoriesRequest:
    """The first page of a forecast; the next ones only differ in their page_token."""
    try:
        moment = datetime.now(UTC) + by if isinstance(by, timedelta) else by
    except OverflowError:
        raise invalid("by", "must end before the year 10,000") from None
    return pb.ForecastMemoriesRequest(
        filter=memory_convert.memory_filter_to_pb(which),
        min_confidence=min_confidence,
        by_time=memory_convert.time_to_pb("by", moment),
        page_size=int32_to_pb(page_size),
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


def _request_id(given: str | None) -> str:
    return convert.text("request_id", given) if given else str(uuid.uuid4())


def _ack(given: str) -> Any:
    return convert.ACKS_TO_PB[convert.choice("ack", given, values.AckLevel)]
