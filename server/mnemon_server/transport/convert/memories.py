"""Conversion of the memory service's requests and answers. Both directions.

Messages are filled in place, field by field: a message passed as an argument is copied, which costs more than the rest.
"""

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from google.protobuf.message import Message
from mnemon.v1 import memory_pb2 as pb

from mnemon_server.domain.memories import (
    LIMIT_DEFAULT,
    MIN_CONFIDENCE_DEFAULT,
    CreateMemory,
    DecayPolicy,
    Explanation,
    ForecastPage,
    Memory,
    MemoryFilter,
    MemoryMatch,
    MemoryPage,
    MemoryQuery,
    MemoryReceipt,
    MemorySearchAnswer,
    MemoryStatus,
    UpdateMemory,
)
from mnemon_server.domain.records import AckLevel, Scope, WriteReceipt
from mnemon_server.transport.convert.shared.filters import expression_from_pb
from mnemon_server.transport.convert.shared.pause import Pause
from mnemon_server.transport.status import Failure
from mnemon_server.wire.values import (
    ACK_LEVELS,
    SEARCH_MODES,
    checked_time_from_pb,
    diagnostics_to_pb,
    fill_metadata,
    fill_receipt,
    fill_scope,
    fill_time,
    metadata_from_pb,
    scope_from_pb,
)

DECAY_POLICIES: Mapping[int, DecayPolicy] = {
    pb.DECAY_POLICY_UNSPECIFIED: DecayPolicy.STABLE,
    pb.DECAY_POLICY_STABLE: DecayPolicy.STABLE,
    pb.DECAY_POLICY_REINFORCEABLE: DecayPolicy.REINFORCEABLE,
    pb.DECAY_POLICY_CONTEXTUAL: DecayPolicy.CONTEXTUAL,
}
_DECAY_POLICIES_TO_PB = {policy: pb.DecayPolicy.Value(f"DECAY_POLICY_{policy.name}") for policy in DecayPolicy}
HEALTHY, UNHEALTHY = "healthy", "unhealthy"
_NO_SCOPE = Scope()
_EVERY_MEMORY = MemoryFilter()

Change = TypeVar(
    "Change", pb.CreateMemoryResponse, pb.UpdateMemoryResponse, pb.ReinforceMemoryResponse, pb.UndeleteMemoryResponse
)
Expecting = pb.UpdateMemoryRequest | pb.ReinforceMemoryRequest | pb.DeleteMemoryRequest | pb.UndeleteMemoryRequest


def memory_from_pb(message: pb.Memory) -> Memory:
    """The memory to store; what only the server sets is left out, except for the id."""
    return Memory(
        memory_id=message.memory_id,
        content=message.content,
        scope=scope_from_pb(message.scope) if message.HasField("scope") else _NO_SCOPE,
        personality=message.personality,
        type=message.type,
        is_global=getattr(message, "global"),
        decay_policy=DECAY_POLICIES.get(message.decay_policy, DecayPolicy.STABLE),
        metadata=metadata_from_pb(message.metadata),
    )


def create_from_pb(message: pb.CreateMemoryRequest) -> CreateMemory:
    """The request to store a memory."""
    return CreateMemory(
        memory=memory_from_pb(message.memory),
        embedding=vector_from_pb(message.embedding),
        request_id=message.request_id,
        ack=ACK_LEVELS.get(message.ack, AckLevel.DURABLE),
    )


def update_from_pb(message: pb.UpdateMemoryRequest) -> UpdateMemory:
    """The request to change a memory."""
    return UpdateMemory(
        memory=memory_from_pb(message.memory),
        mask=tuple(message.update_mask.paths),
        embedding=vector_from_pb(message.embedding),
        expected_revision=expected_revision(message),
        request_id=message.request_id,
        ack=ACK_LEVELS.get(message.ack, AckLevel.DURABLE),
    )


def expected_revision(message: Expecting) -> int | None:
    """The revision that the memory must have; None where any will do."""
    return message.expected_revision if message.HasField("expected_revision") else None


def query_from_pb(message: pb.SearchMemoriesRequest) -> MemoryQuery:
    """The search."""
    return MemoryQuery(
        text=message.query,
        vector=vector_from_pb(message.vector),
        limit=message.limit if message.HasField("limit") else LIMIT_DEFAULT,
        min_confidence=message.min_confidence if message.HasField("min_confidence") else MIN_CONFIDENCE_DEFAULT,
        where=filter_from_pb(message.filter) if message.HasField("filter") else _EVERY_MEMORY,
        mode=SEARCH_MODES[message.mode] if message.mode else None,
        min_score=message.min_score,
        explain=message.explain,
    )


def filter_from_pb(message: pb.MemoryFilter) -> MemoryFilter:
    """Which memories are meant."""
    return MemoryFilter(
        scope=scope_from_pb(message.scope),
        personality=message.personality,
        type=message.type,
        is_global=getattr(message, "global") if message.HasField("global") else None,
        metadata=metadata_from_pb(message.metadata),
        created_from=_time_or_none(message, "created_from"),
        created_to=_time_or_none(message, "created_to"),
        reinforced_from=_time_or_none(message, "reinforced_from"),
        reinforced_to=_time_or_none(message, "reinforced_to"),
        min_confidence=message.min_confidence,
        expression=expression_from_pb(message.filter) if message.HasField("filter") else None,
    )


def vector_from_pb(values: Sequence[float]) -> "array[float] | None":
    """The vector; None for one that is not set."""
    if not values:
        return None
    # Written out, a message ends with its numbers as they lie in memory. For 384 of them that takes 5 microseconds,
    # making an object of each one 30, and checking and storing those another 30.
    written = pb.SearchMemoriesRequest(vector=values).SerializeToString()
    vector = array("f", written[-4 * len(values) :])
    if sys.byteorder == "big":
        vector.byteswap()
    return vector


def fill_memory(target: pb.Memory, memory: Memory) -> None:
    """Writes a memory into a message of its own."""
    target.memory_id = memory.memory_id
    target.content = memory.content
    fill_scope(target, memory.scope)
    target.personality = memory.personality
    target.type = memory.type
    if memory.is_global:
        setattr(target, "global", True)
    target.decay_policy = _DECAY_POLICIES_TO_PB[memory.decay_policy]
    if memory.metadata:
        fill_metadata(target.metadata, memory.metadata)
    target.confidence = memory.confidence
    target.revision = memory.revision
    fill_time(target.create_time, memory.create_time)
    fill_time(target.update_time, memory.update_time)
    if memory.reinforce_time is not None:
        fill_time(target.reinforce_time, memory.reinforce_time)
    if memory.delete_time is not None:
        fill_time(target.delete_time, memory.delete_time)


def fill_change(message: Change, receipt: MemoryReceipt) -> Change:
    """The acknowledgement of a write, with the memory as it is now."""
    fill_receipt(message.receipt, receipt.receipt)
    if receipt.memory is not None:
        fill_memory(message.memory, receipt.memory)
    return message


def create_results_to_pb(outcomes: Iterable[WriteReceipt | Failure]) -> pb.CreateMemoriesResponse:
    """What became of each memory of a run."""
    message = pb.CreateMemoriesResponse()
    for outcome in outcomes:
        if isinstance(outcome, Failure):
            message.results.add(error=outcome.to_item_error())
        else:
            fill_receipt(message.results.add().receipt, outcome)
    return message


async def page_to_pb(page: MemoryPage, next_page_token: str) -> pb.ListMemoriesResponse:
    """The page; lets other calls through where it is long."""
    message = pb.ListMemoriesResponse(next_page_token=next_page_token)
    pause = Pause()
    for memory in page.memories:
        fill_memory(message.memories.add(), memory)
        await pause.where_due()
    return message


async def forecast_to_pb(page: ForecastPage, next_page_token: str) -> pb.ForecastMemoriesResponse:
    """The page; lets other calls through where it is long."""
    message = pb.ForecastMemoriesResponse(next_page_token=next_page_token)
    pause = Pause()
    for forecast in page.forecasts:
        target = message.forecasts.add(confidence_then=forecast.confidence_then)
        fill_memory(target.memory, forecast.memory)
        fill_time(target.fade_time, forecast.fade_time)
        await pause.where_due()
    return message


async def answer_to_pb(answer: MemorySearchAnswer) -> pb.SearchMemoriesResponse:
    """The answer to a search; lets other calls through where it is long."""
    message = pb.SearchMemoriesResponse(count=len(answer.results), diagnostics=diagnostics_to_pb(answer.diagnostics))
    pause = Pause()
    for match in answer.results:
        _fill_match(message.results.add(), match)
        await pause.where_due()
    return message


def status_to_pb(status: MemoryStatus) -> pb.GetStatusResponse:
    """How the service is."""
    message = pb.GetStatusResponse(
        status=HEALTHY if status.healthy else UNHEALTHY,
        error=status.error,
        backend=status.backend,
        host=status.host,
        collection=status.collection,
        memory_count=status.memory_count,
        deleted_count=status.deleted_count,
        index=pb.VectorIndexStatus(
            flat_count=status.flat_count,
            graph_count=status.graph_count,
            dead_count=status.dead_count,
            bytes=status.index_bytes,
            pending=status.pending,
        ),
    )
    if status.snapshot_time is not None:
        fill_time(message.index.snapshot_time, status.snapshot_time)
    return message


def _time_or_none(message: Message, field: str) -> datetime | None:
    return checked_time_from_pb(getattr(message, field)) if message.HasField(field) else None


def _fill_match(target: pb.MemoryMatch, match: MemoryMatch) -> None:
    fill_memory(target.memory, match.memory)
    target.score = match.score
    if match.similarity is not None:
        target.similarity = match.similarity
    if match.distance is not None:
        target.distance = match.distance
    if match.keyword_score is not None:
        target.keyword_score = match.keyword_score
    if match.explanation is not None:
        _fill_explanation(target.explanation, match, match.explanation)


def _fill_explanation(target: pb.MatchExplanation, match: MemoryMatch, explanation: Explanation) -> None:
    for part in explanation.parts:
        target.parts.add(name=part.name, score=part.score, weight=part.weight, contribution=part.score * part.weight)
    target.matched_terms.extend(explanation.matched_terms)
    target.confidence = explanation.confidence
    if match.passage is not None:
        target.passage_start, target.passage_end = match.passage.start, match.passage.end
