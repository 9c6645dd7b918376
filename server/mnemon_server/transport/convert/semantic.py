"""Conversion of the semantic memory service's requests and answers. Both directions."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from mnemon.v1 import semantic_pb2 as pb

from mnemon_server.domain.records import Scope
from mnemon_server.domain.semantic import (
    MIN_SIMILARITY_DEFAULT,
    TOP_K_DEFAULT,
    ConflictPolicy,
    DeletedSemantic,
    IndexState,
    IndexStatus,
    SavedSemantic,
    SaveSemantic,
    SemanticFilter,
    SemanticMemory,
    SemanticPage,
    SimilarAnswer,
    SimilarityDiagnostics,
    SimilarQuery,
)
from mnemon_server.transport.convert.decisions import fill_conflicts, fill_decision
from mnemon_server.transport.convert.memories import vector_from_pb
from mnemon_server.transport.convert.shared.filters import expression_from_pb
from mnemon_server.transport.convert.shared.pause import Pause
from mnemon_server.transport.status import Failure
from mnemon_server.wire.values import (
    checked_time_from_pb,
    duration_to_pb,
    fill_metadata,
    fill_receipt,
    fill_scope,
    fill_time,
    metadata_from_pb,
    scope_from_pb,
    time_from_pb,
)

CONFLICT_POLICIES: Mapping[int, ConflictPolicy] = {
    pb.CONFLICT_POLICY_UNSPECIFIED: ConflictPolicy.IGNORE,
    pb.CONFLICT_POLICY_IGNORE: ConflictPolicy.IGNORE,
    pb.CONFLICT_POLICY_DETECT: ConflictPolicy.DETECT,
    pb.CONFLICT_POLICY_RESOLVE: ConflictPolicy.RESOLVE,
}
_STATES_TO_PB = {state: pb.IndexState.Value(f"INDEX_STATE_{state.name}") for state in IndexState}
_NO_SCOPE = Scope()
_EVERYTHING = SemanticFilter()


def memory_from_pb(message: pb.SemanticMemory) -> SemanticMemory:
    """The statement as a caller gives it; what only the server sets is left out, and so is its vector."""
    return SemanticMemory(
        memory_id="",
        content=message.content,
        summary=message.summary,
        scope=scope_from_pb(message.scope) if message.HasField("scope") else _NO_SCOPE,
        importance=message.importance if message.HasField("importance") else None,
        keywords=tuple(message.keywords),
        source=message.source,
        metadata=metadata_from_pb(message.metadata),
        create_time=time_from_pb(message.create_time) if message.HasField("create_time") else None,
    )


def save_from_pb(message: pb.SaveSemanticMemoryRequest) -> SaveSemantic:
    """The request to store a statement."""
    return SaveSemantic(
        memory=memory_from_pb(message.memory),
        embedding=vector_from_pb(message.embedding),
        conflict_policy=CONFLICT_POLICIES.get(message.conflict_policy, ConflictPolicy.IGNORE),
        rule=message.rule,
        request_id=message.request_id,
    )


def query_from_pb(message: pb.SearchSimilarRequest) -> SimilarQuery:
    """The search."""
    return SimilarQuery(
        vector=vector_from_pb(message.vector),
        text=message.query,
        top_k=message.top_k if message.HasField("top_k") else TOP_K_DEFAULT,
        min_similarity=message.min_similarity if message.HasField("min_similarity") else MIN_SIMILARITY_DEFAULT,
        where=filter_from_pb(message.filter) if message.HasField("filter") else _EVERYTHING,
        embeddings=message.include_embedding,
    )


def filter_from_pb(message: pb.SemanticMemoryFilter) -> SemanticFilter:
    """Which statements are meant."""
    return SemanticFilter(
        scope=scope_from_pb(message.scope) if message.HasField("scope") else _NO_SCOPE,
        created_from=checked_time_from_pb(message.created_from) if message.HasField("created_from") else None,
        created_to=checked_time_from_pb(message.created_to) if message.HasField("created_to") else None,
        expression=expression_from_pb(message.filter) if message.HasField("filter") else None,
    )


def fill_memory(target: pb.SemanticMemory, memory: SemanticMemory) -> None:
    """Writes a statement into a message of its own; with its vector, where it carries one."""
    target.memory_id = memory.memory_id
    target.content = memory.content
    target.summary = memory.summary
    fill_scope(target, memory.scope)
    if memory.importance is not None:
        target.importance = memory.importance
    target.keywords.extend(memory.keywords)
    target.source = memory.source
    if memory.metadata:
        fill_metadata(target.metadata, memory.metadata)
    _fill_times(target, memory)
    target.revision = memory.revision
    target.merged_from.extend(memory.merged_from)
    target.superseded_by = memory.superseded_by
    if memory.embedding is not None:
        target.embedding.extend(memory.embedding)


def saved_to_pb(saved: SavedSemantic) -> pb.SaveSemanticMemoryResponse:
    """The acknowledgement of a statement."""
    message = pb.SaveSemanticMemoryResponse(duplicate=saved.duplicate)
    if saved.memory is not None:
        fill_memory(message.memory, saved.memory)
    if saved.receipt is not None:
        fill_receipt(message.receipt, saved.receipt)
    fill_conflicts(message.conflicts, saved.conflicts)
    if saved.decision is not None:
        fill_decision(message.decision, saved.decision)
    return message


def save_results_to_pb(outcomes: Iterable[SavedSemantic | Failure]) -> pb.SaveSemanticMemoriesResponse:
    """What became of each statement of a run."""
    message = pb.SaveSemanticMemoriesResponse()
    for outcome in outcomes:
        result = message.results.add()
        if isinstance(outcome, Failure):
            result.error.CopyFrom(outcome.to_item_error())
        else:
            _fill_saved(result.saved, outcome)
    return message


async def answer_to_pb(answer: SimilarAnswer) -> pb.SearchSimilarResponse:
    """The answer to a search; lets other calls through where it is long."""
    message = pb.SearchSimilarResponse()
    _fill_diagnostics(message.diagnostics, answer.diagnostics)
    pause = Pause()
    for match in answer.results:
        target = message.results.add()
        fill_memory(target.memory, match.memory)
        target.similarity = match.similarity
        await pause.where_due()
    return message


async def page_to_pb(page: SemanticPage, next_page_token: str) -> pb.ListSemanticMemoriesResponse:
    """The page; lets other calls through where it is long."""
    message = pb.ListSemanticMemoriesResponse(next_page_token=next_page_token)
    pause = Pause()
    for memory in page.memories:
        fill_memory(message.memories.add(), memory)
        await pause.where_due()
    return message


def deleted_to_pb(deleted: DeletedSemantic) -> pb.DeleteSemanticMemoriesResponse:
    """What a deletion did."""
    return pb.DeleteSemanticMemoriesResponse(
        deleted_count=deleted.deleted_count, superseded_count=deleted.superseded_count, replayed=deleted.replayed
    )


def status_to_pb(status: IndexStatus) -> pb.GetIndexStatusResponse:
    """How the index is."""
    message = pb.GetIndexStatusResponse(
        state=_STATES_TO_PB[status.state],
        message=status.message,
        record_count=status.record_count,
        superseded_count=status.superseded_count,
        indexed_count=status.indexed_count,
        total_count=status.total_count,
        capacity=status.capacity,
        write_latency=duration_to_pb(status.write_latency_s),
        write_latency_target=duration_to_pb(status.write_latency_target_s),
        memory_bytes=status.memory_bytes,
        graph_count=status.graph_count,
    )
    if status.snapshot_time is not None:
        fill_time(message.snapshot_time, status.snapshot_time)
    return message


def snapshot_to_pb(written: datetime | None, why_not: str) -> pb.CreateSnapshotResponse:
    """When a snapshot was written, or why none was."""
    message = pb.CreateSnapshotResponse(message=why_not)
    if written is not None:
        fill_time(message.snapshot_time, written)
    return message


def _fill_times(target: pb.SemanticMemory, memory: SemanticMemory) -> None:
    if memory.create_time is not None:
        fill_time(target.create_time, memory.create_time)
    # What was never stored was never changed.
    if memory.revision:
        fill_time(target.update_time, memory.update_time)


def _fill_saved(target: pb.SavedSemanticMemory, saved: SavedSemantic) -> None:
    # Of a statement that was rejected, nothing may be set but this.
    target.SetInParent()
    if saved.receipt is not None:
        fill_receipt(target.receipt, saved.receipt)
    target.duplicate = saved.duplicate
    if saved.decision is not None:
        target.decision_id = saved.decision.decision_id


def _fill_diagnostics(target: pb.SimilarityDiagnostics, diagnostics: SimilarityDiagnostics) -> None:
    target.total_candidates = diagnostics.total_candidates
    target.filtered_by_context = diagnostics.filtered_by_context
    target.filtered_by_window = diagnostics.filtered_by_window
    target.filtered_by_threshold = diagnostics.filtered_by_threshold
    target.matched_count = diagnostics.matched_count
    target.filtered_count = diagnostics.filtered_count
    target.returned = diagnostics.returned
    target.exact = diagnostics.exact
    target.duration.CopyFrom(duration_to_pb(diagnostics.duration_s))
