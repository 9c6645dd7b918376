"""Requests to the memory service as values.

Each function raises InvalidArgumentError if a field cannot be read as a value, and then with everything that is wrong;
see `Reader`. Requests to get, reinforce and undelete need no conversion.
"""

from collections.abc import Mapping
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from mnemon.v1 import memory_pb2 as pb

from mnemon_server.domain.clock import EPOCH
from mnemon_server.domain.memories import (
    LIMIT_DEFAULT,
    MIN_CONFIDENCE_DEFAULT,
    TAGS,
    CreateMemory,
    DecayPolicy,
    Memory,
    MemoryFilter,
    MemoryQuery,
    UpdateMemory,
)
from mnemon_server.domain.records import AckLevel
from mnemon_server.domain.validation import request_id_violations
from mnemon_server.services.memories.checks import (
    bound_violations,
    call_violations,
    create_violations,
    query_violations,
    update_violations,
)
from mnemon_server.services.memories.filters import filter_violations
from mnemon_server.transport.convert.shared.filters import read_filter
from mnemon_server.transport.convert.shared.reader import Reader, expected_revision, named, require
from mnemon_server.transport.convert.shared.vectors import vector_from_pb
from mnemon_server.wire.values import ACK_LEVELS, SEARCH_MODES, VIEWS, metadata_from_pb, scope_of

DECAY_POLICIES: Mapping[int, DecayPolicy] = {
    pb.DECAY_POLICY_UNSPECIFIED: DecayPolicy.STABLE,
    pb.DECAY_POLICY_STABLE: DecayPolicy.STABLE,
    pb.DECAY_POLICY_REINFORCEABLE: DecayPolicy.REINFORCEABLE,
    pb.DECAY_POLICY_CONTEXTUAL: DecayPolicy.CONTEXTUAL,
}
_EVERY_MEMORY = MemoryFilter()


class Page(NamedTuple):
    """Which memories a page is of, and how many it has at most."""

    where: MemoryFilter
    limit: int


class Fading(NamedTuple):
    """A page of the memories that fall below a confidence by a time."""

    where: MemoryFilter
    min_confidence: float
    by: datetime
    limit: int


def read_create(request: pb.CreateMemoryRequest) -> CreateMemory:
    """The memory to store."""
    require(request, "memory")
    reader = Reader()
    creation = CreateMemory(
        memory=_memory(reader, request.memory),
        embedding=vector_from_pb(request.embedding),
        request_id=request.request_id,
        ack=reader.enum("ack", request.ack, ACK_LEVELS),
    )
    reader.finish(create_violations(creation, len(request.embedding)))
    return creation


def read_update(request: pb.UpdateMemoryRequest) -> UpdateMemory:
    """The change of a memory; of the memory that comes with it, only what the mask names counts."""
    require(request, "memory")
    mask = tuple(request.update_mask.paths)
    of_memory, reader = Reader(), Reader()
    memory = _memory(of_memory, request.memory)
    reader.violations += named(of_memory.violations, mask, "memory")
    change = UpdateMemory(
        memory=memory,
        mask=mask,
        set_metadata=reader.metadata("set_metadata", request.set_metadata),
        remove_metadata=tuple(request.remove_metadata),
        embedding=vector_from_pb(request.embedding),
        expected_revision=expected_revision(request),
        request_id=request.request_id,
        ack=reader.enum("ack", request.ack, ACK_LEVELS),
    )
    reader.finish(update_violations(change, len(request.embedding)))
    return change


def read_deletion(request: pb.DeleteMemoryRequest) -> AckLevel:
    """When a deletion is to be answered."""
    reader = Reader()
    ack = reader.enum("ack", request.ack, ACK_LEVELS)
    reader.finish(call_violations(request.memory_id, request.request_id, expected_revision(request)))
    return ack


def read_search(request: pb.SearchMemoriesRequest) -> MemoryQuery:
    """The search."""
    reader = Reader()
    query = MemoryQuery(
        text=request.query,
        vector=vector_from_pb(request.vector),
        mode=reader.enum("mode", request.mode, SEARCH_MODES) if request.mode else None,
        limit=request.limit or LIMIT_DEFAULT,
        min_score=request.min_score,
        where=_filter(reader, request.filter) if request.HasField("filter") else _EVERY_MEMORY,
        view=reader.enum("view", request.view, VIEWS),
        explain=request.explain,
    )
    reader.finish(query_violations(query, len(request.vector)))
    return query


def read_list(request: pb.ListMemoriesRequest) -> Page:
    """The page."""
    reader = Reader()
    page = Page(_filter(reader, request.filter), reader.page_size(request.page_size))
    reader.finish(filter_violations(page.where))
    return page


def read_purge(request: pb.PurgeMemoriesRequest) -> MemoryFilter:
    """Which memories are to be removed."""
    reader = Reader()
    where = _filter(reader, request.filter)
    reader.finish(chain(filter_violations(where), request_id_violations(request.request_id)))
    return where


def read_count(request: pb.CountMemoriesRequest) -> MemoryFilter:
    """Which memories are to be counted."""
    reader = Reader()
    where = _filter(reader, request.filter)
    reader.finish(filter_violations(where))
    return where


def read_forecast(request: pb.ForecastMemoriesRequest) -> Fading:
    """The page of fading memories."""
    reader = Reader()
    if not request.HasField("by_time"):
        reader.note("by_time", "is required")
    fading = Fading(
        where=_filter(reader, request.filter),
        min_confidence=request.min_confidence if request.HasField("min_confidence") else MIN_CONFIDENCE_DEFAULT,
        by=reader.time("by_time", request, "by_time") or EPOCH,
        limit=reader.page_size(request.page_size),
    )
    reader.finish(chain(filter_violations(fading.where), bound_violations(fading.min_confidence)))
    return fading


def _memory(reader: Reader, message: pb.Memory) -> Memory:
    """The memory; what only the server sets is left out, except for the id."""
    return Memory(
        memory_id=message.memory_id,
        content=message.content,
        scope=scope_of(message),
        **_tags(message),
        is_global=message.is_global,
        decay_policy=reader.enum("memory.decay_policy", message.decay_policy, DECAY_POLICIES),
        metadata=reader.metadata("memory.metadata", message.metadata),
    )


def _tags(message: pb.Memory | pb.MemoryFilter) -> dict[str, Any]:
    return {name: getattr(message, name) for name in TAGS}


def _filter(reader: Reader, message: pb.MemoryFilter) -> MemoryFilter:
    """The filter of memories."""
    created_from, created_to = reader.span("filter.created", message.created)
    reinforced_from, reinforced_to = reader.span("filter.reinforced", message.reinforced)
    return MemoryFilter(
        scope=scope_of(message),
        **_tags(message),
        is_global=message.is_global if message.HasField("is_global") else None,
        metadata=metadata_from_pb(message.metadata),
        created_from=created_from,
        created_to=created_to,
        reinforced_from=reinforced_from,
        reinforced_to=reinforced_to,
        min_confidence=message.min_confidence if message.HasField("min_confidence") else None,
        expression=read_filter(reader, "filter.filter", message.filter) if message.HasField("filter") else None,
    )
