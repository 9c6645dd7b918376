"""The conflict service's requests and answers."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from mnemon.v1 import conflicts_pb2 as pb
from mnemon.v1 import semantic_pb2

from mnemon_server.domain.conflicts import CONFLICTS_DEFAULT, Decision
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.records import PageOf
from mnemon_server.domain.semantic import (
    Arbitrated,
    Detected,
    MemoryRef,
    MergedMemories,
    SavedSemantic,
    SemanticMemory,
    Unmerged,
)
from mnemon_server.services.conflicts.statements import reference_violations
from mnemon_server.services.reading.answers import ANSWER_BYTES_MAX
from mnemon_server.services.semantic.checks import statement_violations
from mnemon_server.transport.convert.decisions import fill_conflicts
from mnemon_server.transport.convert.rules import read_values
from mnemon_server.transport.convert.semantic import fill_memory, read_statement
from mnemon_server.transport.convert.shared.fields import filled
from mnemon_server.transport.convert.shared.reader import Reader, expected_revision, require


def detected_to_pb(detected: Detected) -> pb.DetectConflictsResponse:
    """The conflicts."""
    message = pb.DetectConflictsResponse(total_count=detected.total_count, rule=detected.rule)
    message.truncated = fill_conflicts(message.conflicts, detected.conflicts, ANSWER_BYTES_MAX)
    return message


def arbitrated_to_pb(arbitrated: Arbitrated) -> pb.ArbitrateConflictResponse:
    """The decision between two statements."""
    return filled(pb.ArbitrateConflictResponse(), arbitrated, arbitration=arbitrated.result)


def merged_to_pb(merged: MergedMemories) -> pb.MergeMemoriesResponse:
    """The merged statement."""
    return filled(pb.MergeMemoriesResponse(), merged)


def preview_to_pb(saved: SavedSemantic) -> pb.PreviewResolutionResponse:
    """The result that saving a statement would have."""
    return filled(pb.PreviewResolutionResponse(), saved)


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
    filled(message.decision, unmerged.decision)
    return message


def decisions_to_pb(page: PageOf[Decision], next_page_token: str) -> pb.ListDecisionsResponse:
    """A page of decisions."""
    message = pb.ListDecisionsResponse(next_page_token=next_page_token)
    for decision in page.items:
        filled(message.decisions.add(), decision)
    return message


Changes = Mapping[str, Any]
"""Changes to a part of a rule, for one call."""
_SOME_STATEMENT = MemoryRef(memory_id="some statement")
"""The reference that is read instead of a missing one."""


class Detection(NamedTuple):
    """The statement whose conflicts are asked for, how they are found, and how many to return at most."""

    candidate: MemoryRef
    changes: Changes
    limit: int


class Pair(NamedTuple):
    """The two statements that are compared or merged, and how."""

    one: MemoryRef
    other: MemoryRef
    changes: Changes


def read_detection(request: pb.DetectConflictsRequest) -> Detection:
    """The detection."""
    reader = Reader()
    detection = Detection(
        candidate=_reference(reader, "candidate", request.candidate),
        changes=read_values(reader, "detection", request.detection),
        limit=request.limit or CONFLICTS_DEFAULT,
    )
    reader.finish(_violations(candidate=detection.candidate))
    return detection


def read_arbitration(request: pb.ArbitrateConflictRequest) -> Pair:
    """The candidate, the stored statement, and how to decide between them."""
    return _pair(request, "candidate", "existing", how="arbitration")


def read_merge(request: pb.MergeMemoriesRequest) -> Pair:
    """The request for a merge."""
    return _pair(request, "first", "second", how="merge")


def read_preview(request: pb.PreviewResolutionRequest) -> SemanticMemory:
    """The statement that would be saved, with its embedding if it has one."""
    require(request, "memory")
    reader = Reader()
    memory = _given(reader, "memory", request.memory)
    reader.finish(statement_violations(memory))
    return memory


def _pair(request: Any, *names: str, how: str) -> Pair:
    reader = Reader()
    found = {name: _reference(reader, name, getattr(request, name)) for name in names}
    changes = read_values(reader, how, getattr(request, how))
    reader.finish(_violations(**found))
    one, other = found.values()
    return Pair(one, other, changes)


def _reference(reader: Reader, field: str, message: pb.MemoryReference) -> MemoryRef:
    """The statement that the reference names."""
    expected = expected_revision(message)
    match message.WhichOneof("reference"):
        case None:
            reader.note(field, "must be set: memory_id or memory")
            return _SOME_STATEMENT
        case "memory":
            return MemoryRef(memory=_given(reader, f"{field}.memory", message.memory), expected_revision=expected)
        case _:
            return MemoryRef(memory_id=message.memory_id, expected_revision=expected)


def _given(reader: Reader, field: str, message: semantic_pb2.SemanticMemory) -> SemanticMemory:
    """A statement that is given, with its embedding if it has one."""
    return replace(read_statement(reader, field, message), embedding=tuple(message.embedding) or None)


def _violations(**references: MemoryRef) -> Iterator[FieldViolation]:
    """Violations in the statements that a request names, by field."""
    for field, reference in references.items():
        given = reference.memory
        # Only the service knows how many numbers a vector must have.
        dimension = len(given.embedding) if given and given.embedding else 0
        yield from reference_violations(reference, field, dimension)
