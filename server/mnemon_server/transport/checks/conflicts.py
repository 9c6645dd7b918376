"""Checks of the conflict service's requests: what is no value yet. What a value may be, the service checks itself."""

from collections.abc import Iterator

from mnemon.v1 import conflicts_pb2 as pb

from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.domain.validation import refuse
from mnemon_server.transport.checks.common import page_size_violations
from mnemon_server.transport.checks.rules import shape_violations
from mnemon_server.transport.checks.semantic import memory_violations


def check_detect_conflicts(request: pb.DetectConflictsRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    refuse(
        [
            *_reference_violations("candidate", request.candidate),
            *shape_violations("detection", request.detection),
        ]
    )


def check_arbitrate_conflict(request: pb.ArbitrateConflictRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    refuse(
        [
            *_reference_violations("candidate", request.candidate),
            *_reference_violations("existing", request.existing),
            *shape_violations("arbitration", request.arbitration),
        ]
    )


def check_merge_memories(request: pb.MergeMemoriesRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    refuse(
        [
            *_reference_violations("first", request.first),
            *_reference_violations("second", request.second),
            *shape_violations("merge", request.merge),
        ]
    )


def check_preview_resolution(request: pb.PreviewResolutionRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    if not request.HasField("memory"):
        raise InvalidArgumentError.of("memory", "is required")
    refuse(memory_violations(request.memory, "memory"))


def check_list_decisions(request: pb.ListDecisionsRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    refuse(page_size_violations(request.page_size))


def _reference_violations(field: str, message: pb.MemoryReference) -> Iterator[FieldViolation]:
    match message.WhichOneof("reference"):
        case None:
            yield FieldViolation(field, "must be set: memory_id or memory")
        case "memory":
            yield from memory_violations(message.memory, f"{field}.memory")
