"""The conflict service's answers as messages."""

from mnemon.v1 import conflicts_pb2 as pb

from mnemon_server.domain.conflicts import DecisionPage
from mnemon_server.domain.resolution import Arbitrated, Detected, MergedMemories, Unmerged
from mnemon_server.domain.semantic import SavedSemantic
from mnemon_server.services.reading.answers import ANSWER_BYTES_MAX
from mnemon_server.transport.convert.decisions import (
    CONTENT_STRATEGIES_TO_PB,
    fill_arbitration,
    fill_conflicts,
    fill_decision,
    fill_statistics,
)
from mnemon_server.transport.convert.semantic import fill_memory


def detected_to_pb(detected: Detected) -> pb.DetectConflictsResponse:
    """The conflicts."""
    message = pb.DetectConflictsResponse(total_count=detected.total_count, rule=detected.rule)
    message.truncated = fill_conflicts(message.conflicts, detected.conflicts, ANSWER_BYTES_MAX)
    return message


def arbitrated_to_pb(arbitrated: Arbitrated) -> pb.ArbitrateConflictResponse:
    """The decision between two statements."""
    message = pb.ArbitrateConflictResponse(rule=arbitrated.rule)
    fill_arbitration(message.arbitration, arbitrated.result)
    return message


def merged_to_pb(merged: MergedMemories) -> pb.MergeMemoriesResponse:
    """The merged statement."""
    message = pb.MergeMemoriesResponse(
        content_strategy=CONTENT_STRATEGIES_TO_PB[merged.content_strategy], rule=merged.rule
    )
    fill_memory(message.memory, merged.memory)
    fill_statistics(message.statistics, merged.statistics)
    if merged.decision is not None:
        fill_decision(message.decision, merged.decision)
    return message


def preview_to_pb(saved: SavedSemantic) -> pb.PreviewResolutionResponse:
    """The result that saving a statement would have."""
    message = pb.PreviewResolutionResponse(duplicate=saved.duplicate)
    if saved.memory is not None:
        fill_memory(message.memory, saved.memory)
    if saved.decision is not None:
        fill_decision(message.decision, saved.decision)
    return message


def unmerged_to_pb(unmerged: Unmerged) -> pb.UnmergeMemoryResponse:
    """The statements that are found again."""
    message = pb.UnmergeMemoryResponse(removed_id=unmerged.removed_id)
    for memory in unmerged.restored:
        fill_memory(message.restored.add(), memory)
        # There are two at most, and one always has room.
        if len(message.restored) > 1 and message.ByteSize() > ANSWER_BYTES_MAX:
            message.remaining_ids.append(memory.memory_id)
            message.truncated = True
            del message.restored[-1]
    fill_decision(message.decision, unmerged.decision)
    return message


def decisions_to_pb(page: DecisionPage, next_page_token: str) -> pb.ListDecisionsResponse:
    """A page of decisions."""
    message = pb.ListDecisionsResponse(next_page_token=next_page_token)
    for decision in page.decisions:
        fill_decision(message.decisions.add(), decision)
    return message
