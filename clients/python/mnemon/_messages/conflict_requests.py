"""Builds the request of every call about conflicts; both clients share it."""

from mnemon._messages import documents as convert
from mnemon._messages.documents import invalid
from mnemon._messages.fields import int32_to_pb, limit_to_pb
from mnemon._messages.rules import arbitration_to_pb, detection_to_pb, merge_to_pb
from mnemon._messages.semantic import statement_to_pb
from mnemon._messages.semantic_requests import request_id_to_pb
from mnemon._values import semantic
from mnemon._values.rules import MergeRule
from mnemon.v1 import conflicts_pb2 as pb


def detect(
    candidate: semantic.MemoryReference, *, rule: str, detection: MergeRule | None, limit: int | None
) -> pb.DetectConflictsRequest:
    """A search for conflicts."""
    return pb.DetectConflictsRequest(
        candidate=_reference_to_pb("candidate", candidate),
        rule=convert.text("rule", rule),
        detection=detection_to_pb(detection),
        limit=limit_to_pb(limit),
    )


def arbitrate(
    candidate: semantic.MemoryReference,
    existing: semantic.MemoryReference,
    *,
    rule: str,
    arbitration: MergeRule | None,
) -> pb.ArbitrateConflictRequest:
    """A question for a decision."""
    return pb.ArbitrateConflictRequest(
        candidate=_reference_to_pb("candidate", candidate),
        existing=_reference_to_pb("existing", existing),
        rule=convert.text("rule", rule),
        arbitration=arbitration_to_pb(arbitration),
    )


def merge(
    first: semantic.MemoryReference,
    second: semantic.MemoryReference,
    *,
    rule: str,
    merge: MergeRule | None,
    expected_revisions: tuple[int | None, int | None],
    dry_run: bool,
    request_id: str | None,
) -> pb.MergeMemoriesRequest:
    """A merge."""
    return pb.MergeMemoriesRequest(
        first=_reference_to_pb("first", first, expected_revisions[0]),
        second=_reference_to_pb("second", second, expected_revisions[1]),
        rule=convert.text("rule", rule),
        merge=merge_to_pb(merge),
        dry_run=dry_run,
        request_id=request_id_to_pb(request_id),
    )


def preview(memory: semantic.SemanticMemory, *, rule: str) -> pb.PreviewResolutionRequest:
    """A request for the result that a save would have."""
    if not isinstance(memory, semantic.SemanticMemory):
        raise invalid("memory", "must be a SemanticMemory")
    return pb.PreviewResolutionRequest(
        memory=statement_to_pb(memory, with_embedding=True), rule=convert.text("rule", rule)
    )


def unmerge(decision_id: str, *, memory_id: str, request_id: str | None) -> pb.UnmergeMemoryRequest:
    """A request to undo a decision, or the decision that made a statement."""
    if bool(decision_id) == bool(memory_id):
        raise invalid("target", "must be a decision_id, or the memory_id of what came of a merge; give one")
    request = pb.UnmergeMemoryRequest(request_id=request_id_to_pb(request_id))
    if decision_id:
        request.decision_id = convert.text("decision_id", decision_id)
    else:
        request.memory_id = convert.text("memory_id", memory_id)
    return request


def list_decisions(*, user: str, memory_id: str, page_size: int, page_token: str) -> pb.ListDecisionsRequest:
    """A page of decisions."""
    return pb.ListDecisionsRequest(
        user=convert.text("user", user),
        memory_id=convert.text("memory_id", memory_id),
        page_size=int32_to_pb(page_size),
        page_token=convert.text("page_token", page_token),
    )


def _reference_to_pb(field: str, given: object, expected_revision: int | None = None) -> pb.MemoryReference:
    if isinstance(given, semantic.SemanticMemory):
        return pb.MemoryReference(memory=statement_to_pb(given, with_embedding=True))
    if isinstance(given, str) and given:
        return pb.MemoryReference(memory_id=convert.text(field, given), expected_revision=expected_revision)
    raise invalid(field, "must be the id of a stored statement, or a SemanticMemory")
