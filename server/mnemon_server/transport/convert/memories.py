"""The memory service's requests and answers.

Messages are filled in place, field by field: a message passed as an argument is copied, which costs more than the rest.
"""

from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from mnemon.v1 import memory_pb2 as pb

from mnemon_server.domain.clock import EPOCH
from mnemon_server.domain.memories import (
    LIMIT_DEFAULT,
    MIN_CONFIDENCE_DEFAULT,
    TAGS,
    CreateMemory,
    DecayPolicy,
    Explanation,
    Memory,
    MemoryFilter,
    MemoryForecast,
    MemoryMatch,
    MemoryQuery,
    MemoryReceipt,
    MemorySearchAnswer,
    MemoryStatus,
    UpdateMemory,
)
from mnemon_server.domain.records import AckLevel, PageOf, View
from mnemon_server.domain.validation import request_id_violations
from mnemon_server.services.background.offload import Pause
from mnemon_server.services.memories.checks import (
    bound_violations,
    call_violations,
    create_violations,
    filter_violations,
    query_violations,
    update_violations,
)
from mnemon_server.transport.convert.shared.fields import filled
from mnemon_server.transport.convert.shared.reader import (
    Page,
    Reader,
    expected_revision,
    named,
    read_conditions,
    require,
    vector_from_pb,
)
from mnemon_server.transport.convert.shared.several import fill_each
from mnemon_server.wire.enums import members_of, numbers_of
from mnemon_server.wire.values import (
    ACK_LEVELS,
    SEARCH_MODES,
    STATES_TO_PB,
    VIEWS,
    fill_diagnostics,
    fill_metadata,
    fill_receipt,
    fill_scope,
    fill_score,
    fill_time,
    metadata_from_pb,
    scope_of,
)

_DECAY_POLICIES_TO_PB = numbers_of(pb.DecayPolicy, DecayPolicy)

Change = TypeVar(
    "Change",
    pb.CreateMemoryResponse,
    pb.UpdateMemoryResponse,
    pb.ReinforceMemoryResponse,
    pb.UndeleteMemoryResponse,
    pb.RestoreMemoryVersionResponse,
)


def fill_memory(target: pb.Memory, memory: Memory) -> None:
    """Writes a memory into a message of its own."""
    target.memory_id = memory.memory_id
    target.content = memory.content
    fill_scope(target, memory.scope)
    for name in TAGS:
        setattr(target, name, getattr(memory, name))
    if memory.is_global:
        target.is_global = True
    target.decay_policy = _DECAY_POLICIES_TO_PB[memory.decay_policy]
    if memory.metadata:
        fill_metadata(target.metadata, memory.metadata)
    target.confidence = memory.confidence
    target.revision = memory.revision
    fill_time(target.create_time, memory.create_time)
    fill_time(target.update_time, memory.update_time)
    # Most memories have neither, and to look up a field that stays unset costs as much as to fill one.
    if memory.reinforce_time is not None:
        fill_time(target.reinforce_time, memory.reinforce_time)
    if memory.delete_time is not None:
        fill_time(target.delete_time, memory.delete_time)
    for embedding in memory.embeddings:
        target.embeddings.add(values=embedding)


def fill_change(message: Change, receipt: MemoryReceipt) -> Change:
    """The receipt of a write, with the memory as it is now."""
    fill_receipt(message.receipt, receipt.receipt)
    if receipt.memory is not None:
        fill_memory(message.memory, receipt.memory)
    return message


async def page_to_pb(page: PageOf[Memory], next_page_token: str) -> pb.ListMemoriesResponse:
    """The page; yields to other calls."""
    message = pb.ListMemoriesResponse(next_page_token=next_page_token)
    await fill_each(message.memories, page.items, fill_memory)
    return message


async def forecast_to_pb(page: PageOf[MemoryForecast], next_page_token: str) -> pb.ForecastMemoriesResponse:
    """The page; yields to other calls."""
    message = pb.ForecastMemoriesResponse(next_page_token=next_page_token)
    pause = Pause()
    for forecast in page.items:
        target = message.forecasts.add(confidence_then=forecast.confidence_then)
        fill_memory(target.memory, forecast.memory)
        fill_time(target.fade_time, forecast.fade_time)
        await pause.where_due()
    return message


async def answer_to_pb(
    answer: MemorySearchAnswer, view: View = View.STANDARD, *, truncated: bool = False
) -> pb.SearchMemoriesResponse:
    """The answer to a search; yields to other calls."""
    message = pb.SearchMemoriesResponse(truncated=truncated)
    fill_diagnostics(message.diagnostics, answer.diagnostics)
    message.diagnostics.returned = len(answer.results)
    fill = _fill_ids if view is View.IDS else fill_memory
    pause = Pause()
    for match in answer.results:
        target = message.results.add()
        fill(target.memory, match.memory)
        _fill_match(target, match)
        await pause.where_due()
    return message


def status_to_pb(status: MemoryStatus) -> pb.GetStatusResponse:
    """The status of the service."""
    index = filled(pb.VectorIndexStatus(), status, memory_bytes=status.index_bytes, pending_count=status.pending)
    state = STATES_TO_PB[status.status]
    return filled(pb.GetStatusResponse(), status, state=state, message=status.error, index=index)


def _fill_ids(target: pb.Memory, memory: Memory) -> None:
    target.memory_id = memory.memory_id
    target.confidence = memory.confidence
    target.revision = memory.revision


def _fill_match(target: pb.MemoryMatch, match: MemoryMatch) -> None:
    fill_score(target.score, match.score, vector=match.similarity, keyword=match.keyword_score)
    if match.distance is not None:
        target.distance = match.distance
    if match.explanation is not None:
        _fill_explanation(target.explanation, match, match.explanation)


def _fill_explanation(target: pb.MatchExplanation, match: MemoryMatch, explanation: Explanation) -> None:
    for part in explanation.parts:
        target.parts.add(name=part.name, score=part.score, weight=part.weight, contribution=part.score * part.weight)
    target.matched_terms.extend(explanation.matched_terms)
    target.confidence = explanation.confidence
    if match.passage is not None:
        target.passage_start, target.passage_end = match.passage.start, match.passage.end


DECAY_POLICIES = members_of(pb.DecayPolicy, DecayPolicy, DecayPolicy.STABLE)
_EVERY_MEMORY = MemoryFilter()


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
    reader.as_of(request)
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


def read_list(request: pb.ListMemoriesRequest) -> Page[MemoryFilter]:
    """The page."""
    reader = Reader()
    reader.as_of(request)
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
        expression=read_conditions(reader, message),
    )
