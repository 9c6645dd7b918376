"""Converts protobuf messages to the answers of the conflict service."""

from mnemon._enums import words_by_number
from mnemon._messages.decisions import arbitration_from_pb, conflicts_from_pb, decision_from_pb, statistics_from_pb
from mnemon._messages.semantic import statement_from_pb
from mnemon._values import conflicts
from mnemon.v1 import conflicts_pb2 as pb
from mnemon.v1 import decisions_pb2

_CONTENT_STRATEGIES = words_by_number(decisions_pb2.DESCRIPTOR.enum_types_by_name["ContentStrategy"])


def detected_from_pb(response: pb.DetectConflictsResponse) -> conflicts.DetectedConflicts:
    """The conflicts of a statement."""
    found = conflicts_from_pb(response.conflicts)
    return conflicts.DetectedConflicts(found, response.total_count, response.rule, response.truncated)


def arbitrated_from_pb(response: pb.ArbitrateConflictResponse) -> conflicts.ArbitrationAnswer:
    """A requested decision."""
    return conflicts.ArbitrationAnswer(arbitration_from_pb(response.arbitration), response.rule)


def merged_from_pb(response: pb.MergeMemoriesResponse) -> conflicts.MergeAnswer:
    """A merged statement."""
    strategy = response.content_strategy
    return conflicts.MergeAnswer(
        memory=statement_from_pb(response.memory),
        statistics=statistics_from_pb(response.statistics),
        content_strategy=_CONTENT_STRATEGIES.get(strategy, str(strategy)),
        decision=decision_from_pb(response.decision) if response.HasField("decision") else None,
        rule=response.rule,
    )


def preview_from_pb(response: pb.PreviewResolutionResponse) -> conflicts.ResolutionPreview:
    """What saving a statement would do."""
    return conflicts.ResolutionPreview(
        memory=statement_from_pb(response.memory) if response.HasField("memory") else None,
        duplicate=response.duplicate,
        decision=decision_from_pb(response.decision) if response.HasField("decision") else None,
    )


def unmerged_from_pb(response: pb.UnmergeMemoryResponse) -> conflicts.UnmergeAnswer:
    """What undoing a decision restored."""
    return conflicts.UnmergeAnswer(
        restored=tuple(map(statement_from_pb, response.restored)),
        removed_id=response.removed_id,
        decision=decision_from_pb(response.decision),
        remaining_ids=tuple(response.remaining_ids),
    )
