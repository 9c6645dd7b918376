"""The semantic memory service's requests and answers."""

from mnemon.v1 import semantic_pb2 as pb

from mnemon_server.domain.records import PageOf, View
from mnemon_server.domain.semantic import (
    LISTS,
    TEXTS,
    TOP_K_DEFAULT,
    ConflictPolicy,
    DeletedSemantic,
    IndexStatus,
    SavedSemantic,
    SaveSemantic,
    SemanticFilter,
    SemanticMemory,
    SimilarAnswer,
    SimilarQuery,
    Snapshot,
)
from mnemon_server.domain.validation import doc_id_violations
from mnemon_server.services.background.offload import Pause
from mnemon_server.services.reading.answers import ANSWER_BYTES_MAX
from mnemon_server.services.semantic.checks import deletion_violations, query_violations, save_violations
from mnemon_server.services.semantic.filters import filter_violations
from mnemon_server.transport.convert.decisions import fill_conflicts
from mnemon_server.transport.convert.shared.fields import filled, writes
from mnemon_server.transport.convert.shared.reader import (
    Page,
    Reader,
    expected_revision,
    read_conditions,
    require,
    vector_from_pb,
)
from mnemon_server.transport.convert.shared.several import fill_each
from mnemon_server.wire.enums import members_of
from mnemon_server.wire.values import (
    SEARCH_MODES,
    VIEWS,
    fill_diagnostics,
    fill_metadata,
    fill_receipt,
    fill_scope,
    fill_score,
    fill_time,
    scope_of,
)


@writes(pb.SemanticMemory)
def fill_memory(target: pb.SemanticMemory, memory: SemanticMemory) -> None:
    """Writes a statement into a message of its own, with its vector if it has one."""
    target.memory_id = memory.memory_id
    target.content = memory.content
    for name in TEXTS:
        setattr(target, name, getattr(memory, name))
    for name in LISTS:
        getattr(target, name).extend(getattr(memory, name))
    fill_scope(target, memory.scope)
    if memory.importance is not None:
        target.importance = memory.importance
    if memory.metadata:
        fill_metadata(target.metadata, memory.metadata)
    fill_time(target.create_time, memory.create_time)
    # One that was never stored has no time of its last change.
    if memory.revision:
        fill_time(target.update_time, memory.update_time)
    target.revision = memory.revision
    if memory.embedding is not None:
        target.embedding.extend(memory.embedding)


def fill_view(target: pb.SemanticMemory, memory: SemanticMemory, view: View) -> None:
    """The same, but only what the view shows."""
    if view is not View.IDS:
        fill_memory(target, memory)
        return
    target.memory_id = memory.memory_id
    target.revision = memory.revision


def saved_to_pb(saved: SavedSemantic) -> pb.SaveSemanticMemoryResponse:
    """The result of a save."""
    message = pb.SaveSemanticMemoryResponse(duplicate=saved.duplicate)
    if saved.memory is not None:
        fill_memory(message.memory, saved.memory)
    if saved.receipt is not None:
        fill_receipt(message.receipt, saved.receipt)
    if saved.decision is not None:
        filled(message.decision, saved.decision)
    message.truncated = fill_conflicts(message.conflicts, saved.conflicts, ANSWER_BYTES_MAX - message.ByteSize())
    return message


async def answer_to_pb(
    answer: SimilarAnswer, view: View = View.STANDARD, *, truncated: bool = False
) -> pb.SearchSimilarResponse:
    """The answer to a search; yields to other calls."""
    message = pb.SearchSimilarResponse(truncated=truncated)
    fill_diagnostics(message.diagnostics, answer.diagnostics)
    pause = Pause()
    for match in answer.results:
        target = message.results.add()
        fill_view(target.memory, match.memory, view)
        fill_score(target.score, match.score, vector=match.similarity, keyword=match.keyword_score)
        await pause.where_due()
    return message


async def page_to_pb(page: PageOf[SemanticMemory], next_page_token: str) -> pb.ListSemanticMemoriesResponse:
    """The page; yields to other calls."""
    message = pb.ListSemanticMemoriesResponse(next_page_token=next_page_token)
    await fill_each(message.memories, page.items, fill_memory)
    return message


def deleted_to_pb(deleted: DeletedSemantic) -> pb.DeleteSemanticMemoriesResponse:
    """The result of a deletion."""
    return filled(pb.DeleteSemanticMemoriesResponse(), deleted)


def status_to_pb(status: IndexStatus) -> pb.GetIndexStatusResponse:
    """The status of the index."""
    return filled(pb.GetIndexStatusResponse(), status)


def snapshot_to_pb(snapshot: Snapshot) -> pb.CreateSnapshotResponse:
    """When a snapshot was written, or why it was not."""
    return filled(pb.CreateSnapshotResponse(), snapshot, snapshot_time=snapshot.time)


def fill_result(target: pb.SaveSemanticMemoryResult, saved: SavedSemantic) -> None:
    """Writes the result of one of many saves."""
    message = target.saved
    # For a statement that was rejected, all the other fields may stay unset.
    message.SetInParent()
    if saved.receipt is not None:
        fill_receipt(message.receipt, saved.receipt)
    message.duplicate = saved.duplicate
    if saved.decision is not None:
        message.decision_id = saved.decision.decision_id


CONFLICT_POLICIES = members_of(pb.ConflictPolicy, ConflictPolicy, ConflictPolicy.IGNORE)
_EVERYTHING = SemanticFilter()


def read_save(request: pb.SaveSemanticMemoryRequest) -> SaveSemantic:
    """The statement to store."""
    require(request, "memory")
    reader = Reader()
    save = SaveSemantic(
        memory=read_statement(reader, "memory", request.memory),
        embedding=vector_from_pb(request.embedding),
        conflict_policy=reader.enum("conflict_policy", request.conflict_policy, CONFLICT_POLICIES),
        rule=request.rule,
        request_id=request.request_id,
    )
    reader.finish(save_violations(save, len(request.embedding)))
    return save


def read_search(request: pb.SearchSimilarRequest) -> SimilarQuery:
    """The search."""
    reader = Reader()
    reader.as_of(request)
    query = SimilarQuery(
        vector=vector_from_pb(request.vector),
        text=request.query,
        mode=reader.enum("mode", request.mode, SEARCH_MODES) if request.mode else None,
        top_k=request.limit or TOP_K_DEFAULT,
        min_similarity=request.min_score if request.HasField("min_score") else None,
        where=_filter(reader, request.filter) if request.HasField("filter") else _EVERYTHING,
        view=reader.enum("view", request.view, VIEWS),
    )
    reader.finish(query_violations(query, len(request.vector)))
    return query


def read_view(request: pb.GetSemanticMemoryRequest) -> View:
    """How much of a statement is asked for."""
    reader = Reader()
    reader.as_of(request)
    view = reader.enum("view", request.view, VIEWS)
    reader.finish(doc_id_violations(request.memory_id, "memory_id"))
    return view


def read_list(request: pb.ListSemanticMemoriesRequest) -> Page[SemanticFilter]:
    """The page."""
    reader = Reader()
    reader.as_of(request)
    page = Page(_filter(reader, request.filter), reader.page_size(request.page_size))
    reader.finish(filter_violations(page.where))
    return page


def read_deletion(request: pb.DeleteSemanticMemoriesRequest) -> SemanticFilter:
    """Which statements are to be deleted, if they are not named by their ids."""
    reader = Reader()
    where = _filter(reader, request.filter)
    reader.finish(deletion_violations(request.memory_ids, where, request.request_id, expected_revision(request)))
    return where


def read_statement(reader: Reader, field: str, message: pb.SemanticMemory) -> SemanticMemory:
    """The statement as a caller gives it; what only the server sets is left out, and so is its vector."""
    return SemanticMemory(
        memory_id="",
        content=message.content,
        summary=message.summary,
        scope=scope_of(message),
        importance=message.importance if message.HasField("importance") else None,
        keywords=tuple(message.keywords),
        source=message.source,
        metadata=reader.metadata(f"{field}.metadata", message.metadata),
        create_time=reader.time(f"{field}.create_time", message, "create_time"),
    )


def _filter(reader: Reader, message: pb.SemanticMemoryFilter) -> SemanticFilter:
    """The filter of statements."""
    created_from, created_to = reader.span("filter.created", message.created)
    return SemanticFilter(
        scope=scope_of(message),
        created_from=created_from,
        created_to=created_to,
        expression=read_conditions(reader, message),
    )
