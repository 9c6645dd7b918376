"""Checks of the conflict service's requests: what is no value yet, and then also what is wrong with the rest.

What a value may be, the service checks itself.
"""

from collections.abc import Iterable, Iterator, Mapping

from mnemon.v1 import conflicts_pb2 as pb

from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.domain.validation import refuse
from mnemon_server.services.conflicts.statements import reference_violations
from mnemon_server.services.semantic.checks import statement_violations
from mnemon_server.transport.checks.rules import shape_violations
from mnemon_server.transport.convert import conflicts as convert
from mnemon_server.transport.convert import semantic_requests
from mnemon_server.transport.convert.shared.reading import others, page_size_violations

References = Mapping[str, pb.MemoryReference]
"""The statements that a request names, by field."""


def check_detect_conflicts(request: pb.DetectConflictsRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    _refuse({"candidate": request.candidate}, shape_violations("detection", request.detection))


def check_arbitrate_conflict(request: pb.ArbitrateConflictRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    references = {"candidate": request.candidate, "existing": request.existing}
    _refuse(references, shape_violations("arbitration", request.arbitration))


def check_merge_memories(request: pb.MergeMemoriesRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    references = {"first": request.first, "second": request.second}
    _refuse(references, shape_violations("merge", request.merge))


def check_preview_resolution(request: pb.PreviewResolutionRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    if not request.HasField("memory"):
        raise InvalidArgumentError.of("memory", "is required")
    if found := [*semantic_requests.shape_violations(request.memory, "memory")]:
        refuse(others(found, statement_violations(convert.given_from_pb(request.memory))))


def check_list_decisions(request: pb.ListDecisionsRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    refuse(page_size_violations(request.page_size))


def _refuse(references: References, further: Iterable[FieldViolation]) -> None:
    shapes = [violation for field, message in references.items() for violation in _shape_violations(field, message)]
    if found := [*shapes, *further]:
        refuse(others(found, _other_violations(references)))


def _other_violations(references: References) -> Iterator[FieldViolation]:
    for field, message in references.items():
        if message.WhichOneof("reference") is None:
            continue
        dimension = len(message.memory.embedding)
        yield from reference_violations(convert.reference_from_pb(message), field, dimension)


def _shape_violations(field: str, message: pb.MemoryReference) -> Iterator[FieldViolation]:
    match message.WhichOneof("reference"):
        case None:
            yield FieldViolation(field, "must be set: memory_id or memory")
        case "memory":
            yield from semantic_requests.shape_violations(message.memory, f"{field}.memory")
