"""Conversion of the conflict service's requests and answers. Both directions."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from google.protobuf.message import Message
from mnemon.v1 import conflicts_pb2 as pb
from mnemon.v1 import semantic_pb2

from mnemon_server.domain.conflicts import CONFLICTS_DEFAULT, DecisionPage
from mnemon_server.domain.resolution import Arbitrated, Detected, MemoryRef, MergedMemories, Unmerged
from mnemon_server.domain.semantic import SavedSemantic, SemanticMemory
from mnemon_server.services.shared.answers import ANSWER_BYTES_MAX
from mnemon_server.transport.convert.decisions import (
    CONTENT_STRATEGIES_TO_PB,
    fill_arbitration,
    fill_conflicts,
    fill_decision,
    fill_statistics,
)
from mnemon_server.transport.convert.rules import values_from_pb
from mnemon_server.transport.convert.semantic import fill_memory
from mnemon_server.transport.convert.semantic_requests import statement_from_pb


def reference_from_pb(message: pb.MemoryReference) -> MemoryRef:
    """The statement that is meant."""
    expected = message.expected_revision if message.HasField("expected_revision") else None
    if message.HasField("memory"):
        return MemoryRef(memory=given_from_pb(message.memory), expected_revision=expected)
    return MemoryRef(memory_id=message.memory_id, expected_revision=expected)


def given_from_pb(message: semantic_pb2.SemanticMemory) -> SemanticMemory:
    """A statement that is given, with its embedding where it has one."""
    return replace(statement_from_pb(message), embedding=tuple(message.embedding) or None)


def changes_from_pb(message: Message) -> Mapping[str, Any]:
    """Changes to a part of a rule, for one call; empty where there are none."""
    return values_from_pb(message)


def limit_from_pb(message: pb.DetectConflictsRequest) -> int:
    """Most conflicts to return."""
    return message.limit or CONFLICTS_DEFAULT


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
    """What saving a statement would come to."""
    message = pb.PreviewResolutionResponse(duplicate=saved.duplicate)
    if saved.memory is not None:
        fill_memory(message.memory, saved.memory)
    if saved.decision is not None:
        fill_decision(message.decision, saved.decision)
    return message


def unmerged_to_pb(unmerged: Unmerged) -> pb.UnmergeMemoryResponse:
    """What is found again."""
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
