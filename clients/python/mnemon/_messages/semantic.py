"""Converts the values of semantic memory to messages, and back."""

from collections.abc import Iterable
from typing import Any

from mnemon._arguments import plain
from mnemon._enums import members_by_number
from mnemon._messages import documents as convert
from mnemon._messages.decisions import conflicts_from_pb, decision_from_pb
from mnemon._messages.documents import invalid
from mnemon._messages.fields import check_keywords, field_reader, texts_of
from mnemon._messages.memories import filter_to_pb, some_text, time_to_pb, vector_to_pb
from mnemon._values import filters, semantic
from mnemon._values.documents import SCOPE_FIELDS
from mnemon.v1 import common_pb2
from mnemon.v1 import semantic_pb2 as pb

_fields_of = field_reader(semantic.SemanticMemory, pb.SemanticMemory.DESCRIPTOR)
_TIMES = {"created_from": "start_time", "created_to": "end_time"}
_STATES = members_by_number(semantic.IndexState, common_pb2.State.DESCRIPTOR)


def statement_to_pb(memory: semantic.SemanticMemory, *, with_embedding: bool = False) -> pb.SemanticMemory:
    """A statement as a message, without the fields that only the server sets; with its vector if requested."""
    message = pb.SemanticMemory(
        **texts_of(memory, semantic.TEXTS),
        scope=convert.scope_to_pb(memory.scope),
        importance=share_to_pb("importance", memory.importance),
        keywords=texts_to_pb("keywords", memory.keywords),
        metadata=convert.metadata_to_pb("metadata", memory.metadata),
        embedding=embedding_of(memory) if with_embedding else None,
    )
    if memory.create_time is not None:
        message.create_time.CopyFrom(time_to_pb("create_time", memory.create_time))
    return message


def embedding_of(memory: semantic.SemanticMemory) -> list[float] | None:
    """The statement's vector as a message field; None if it has none."""
    given = vector_to_pb("embedding", memory.embedding, may_be_empty=True)
    return given or None


def statement_from_pb(memory: pb.SemanticMemory) -> semantic.SemanticMemory:
    """The statement of a message."""
    return semantic.SemanticMemory(**_fields_of(memory))


def semantic_filter_to_pb(which: semantic.SemanticFilters) -> pb.SemanticMemoryFilter | None:
    """The filter of statements, as a message; None means all."""
    given: dict[str, Any] = dict(which)
    check_keywords(given, semantic.SemanticFilters.__annotations__)
    if not given:
        return None
    times = {end: time_to_pb(name, given[name]) for name, end in _TIMES.items() if name in given}
    fields: dict[str, Any] = {"created": common_pb2.TimeRange(**times)} if times else {}
    if "where" in given:
        fields["filter"] = filter_to_pb(filters.as_filter(given["where"]))
    scope = {name: some_text(name, given[name]) for name in SCOPE_FIELDS if name in given}
    return pb.SemanticMemoryFilter(scope=common_pb2.Scope(**scope), **fields)


def save_answer_from_pb(response: pb.SaveSemanticMemoryResponse) -> semantic.SaveAnswer:
    """The result of saving a statement."""
    return semantic.SaveAnswer(
        memory=statement_from_pb(response.memory) if response.HasField("memory") else None,
        receipt=convert.receipt_from_pb(response.receipt) if response.HasField("receipt") else None,
        duplicate=response.duplicate,
        conflicts=conflicts_from_pb(response.conflicts),
        decision=decision_from_pb(response.decision) if response.HasField("decision") else None,
        truncated=response.truncated,
    )


def saved_from_pb(position: int, saved: pb.SavedSemanticMemory) -> semantic.SaveResult:
    """The result of one statement of many."""
    return semantic.SaveResult(
        position,
        receipt=convert.receipt_from_pb(saved.receipt) if saved.HasField("receipt") else None,
        duplicate=saved.duplicate,
        decision_id=saved.decision_id,
    )


def similarity_from_pb(response: pb.SearchSimilarResponse) -> semantic.SimilarityAnswer:
    """The answer of a search."""
    said = response.diagnostics
    return semantic.SimilarityAnswer(
        tuple(map(_match_from_pb, response.results)),
        semantic.SimilarityDiagnostics(
            total_candidates=said.total_candidates,
            filtered_by_context=said.filtered_by_context,
            filtered_by_window=said.filtered_by_window,
            filtered_by_threshold=said.filtered_by_threshold,
            matched_count=said.matched_count,
            filtered_count=said.filtered_count,
            returned=said.returned,
            exact=said.exact,
            duration_s=said.duration.ToTimedelta().total_seconds(),
            mode=convert.mode_from_pb(said.mode),
            **convert.relevance_from_pb(said),
        ),
        response.truncated,
    )


def _match_from_pb(match: pb.SemanticMatch) -> semantic.SemanticMatch:
    return semantic.SemanticMatch(
        statement_from_pb(match.memory),
        match.score.relevance,
        match.score.vector if match.score.HasField("vector") else None,
        match.score.keyword if match.score.HasField("keyword") else None,
    )


def page_from_pb(response: pb.ListSemanticMemoriesResponse) -> semantic.SemanticMemoryPage:
    """A page of statements."""
    return semantic.SemanticMemoryPage(tuple(map(statement_from_pb, response.memories)), response.next_page_token)


def deleted_from_pb(response: pb.DeleteSemanticMemoriesResponse) -> semantic.SemanticDeleteReceipt:
    """What a deletion removed."""
    return semantic.SemanticDeleteReceipt(
        response.deleted_count,
        response.superseded_count,
        receipts=tuple(map(convert.receipt_from_pb, response.receipts)),
        commit_time=convert.time_from_pb(response, "commit_time"),
        replayed=response.replayed,
    )


def status_from_pb(response: pb.GetIndexStatusResponse) -> semantic.SemanticIndexStatus:
    """The state of the index."""
    return semantic.SemanticIndexStatus(
        state=_STATES.get(response.state, semantic.IndexState.UNKNOWN),
        message=response.message,
        record_count=response.record_count,
        superseded_count=response.superseded_count,
        indexed_count=response.indexed_count,
        total_count=response.total_count,
        capacity=response.capacity,
        write_latency_s=response.write_latency.ToTimedelta().total_seconds(),
        write_latency_target_s=response.write_latency_target.ToTimedelta().total_seconds(),
        memory_bytes=response.memory_bytes,
        graph_count=response.graph_count,
        snapshot_time=convert.time_from_pb(response, "snapshot_time"),
        judge_failed_count=response.judge_failed_count,
    )


def snapshot_from_pb(response: pb.CreateSnapshotResponse) -> semantic.SnapshotReceipt:
    """The result of a snapshot."""
    return semantic.SnapshotReceipt(
        convert.time_from_pb(response, "snapshot_time"), response.message, response.replayed
    )


def share_to_pb(field: str, given: object) -> float | None:
    """A number from 0 to 1, whose range the server checks; None means unknown."""
    if (given := plain(given)) is None:
        return None
    if not isinstance(given, int | float) or isinstance(given, bool):
        raise invalid(field, f"must be a number from 0 to 1, or None, not {given!r}")
    return float(given)


def texts_to_pb(field: str, given: object) -> list[str]:
    """A list of texts. Raises InvalidArgumentError for a single text, which would be read as its letters."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise invalid(field, f"must be several texts, such as [{given!r}]")
    return [convert.text(f"{field}[{index}]", each) for index, each in enumerate(given)]
