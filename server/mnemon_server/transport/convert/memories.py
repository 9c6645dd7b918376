"""The memory service's answers as messages.

Messages are filled in place, field by field: a message passed as an argument is copied, which costs more than the rest.
"""

from collections.abc import Iterable
from typing import TypeVar

from mnemon.v1 import memory_pb2 as pb

from mnemon_server.domain.memories import (
    TAGS,
    DecayPolicy,
    Explanation,
    ForecastPage,
    Memory,
    MemoryMatch,
    MemoryPage,
    MemoryReceipt,
    MemorySearchAnswer,
    MemoryStatus,
)
from mnemon_server.domain.records import View, WriteReceipt
from mnemon_server.services.background.pause import Pause
from mnemon_server.transport.status import Failure
from mnemon_server.wire.values import (
    STATES_TO_PB,
    diagnostics_to_pb,
    fill_metadata,
    fill_receipt,
    fill_scope,
    fill_score,
    fill_time,
)

_DECAY_POLICIES_TO_PB = {policy: pb.DecayPolicy.Value(f"DECAY_POLICY_{policy.name}") for policy in DecayPolicy}

Change = TypeVar(
    "Change", pb.CreateMemoryResponse, pb.UpdateMemoryResponse, pb.ReinforceMemoryResponse, pb.UndeleteMemoryResponse
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


def create_results_to_pb(outcomes: Iterable[WriteReceipt | Failure]) -> pb.BulkCreateMemoriesResponse:
    """The outcome of each memory of a run."""
    message = pb.BulkCreateMemoriesResponse()
    for outcome in outcomes:
        if isinstance(outcome, Failure):
            message.results.add(error=outcome.to_item_error())
        else:
            fill_receipt(message.results.add().receipt, outcome)
    return message


async def page_to_pb(page: MemoryPage, next_page_token: str) -> pb.ListMemoriesResponse:
    """The page; yields to other calls."""
    message = pb.ListMemoriesResponse(next_page_token=next_page_token)
    pause = Pause()
    for memory in page.memories:
        fill_memory(message.memories.add(), memory)
        await pause.where_due()
    return message


async def forecast_to_pb(page: ForecastPage, next_page_token: str) -> pb.ForecastMemoriesResponse:
    """The page; yields to other calls."""
    message = pb.ForecastMemoriesResponse(next_page_token=next_page_token)
    pause = Pause()
    for forecast in page.forecasts:
        target = message.forecasts.add(confidence_then=forecast.confidence_then)
        fill_memory(target.memory, forecast.memory)
        fill_time(target.fade_time, forecast.fade_time)
        await pause.where_due()
    return message


async def answer_to_pb(
    answer: MemorySearchAnswer, view: View = View.STANDARD, *, truncated: bool = False
) -> pb.SearchMemoriesResponse:
    """The answer to a search; yields to other calls."""
    message = pb.SearchMemoriesResponse(diagnostics=diagnostics_to_pb(answer.diagnostics), truncated=truncated)
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
    message = pb.GetStatusResponse(
        state=STATES_TO_PB[status.status],
        message=status.error,
        backend=status.backend,
        host=status.host,
        collection=status.collection,
        memory_count=status.memory_count,
        deleted_count=status.deleted_count,
        index=pb.VectorIndexStatus(
            flat_count=status.flat_count,
            graph_count=status.graph_count,
            dead_count=status.dead_count,
            memory_bytes=status.index_bytes,
            pending_count=status.pending,
            removal_pending_count=status.removal_pending_count,
            removal_out_of_reach_count=status.removal_out_of_reach_count,
        ),
    )
    if status.snapshot_time is not None:
        fill_time(message.index.snapshot_time, status.snapshot_time)
    return message


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
