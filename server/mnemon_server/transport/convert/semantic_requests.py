"""Requests to the semantic memory service as values.

Each function raises InvalidArgumentError if a field cannot be read as a value, and then with everything that is wrong;
see `Reader`."""

from collections.abc import Mapping
from typing import NamedTuple

from mnemon.v1 import semantic_pb2 as pb

from mnemon_server.domain.records import View
from mnemon_server.domain.semantic import (
    TOP_K_DEFAULT,
    ConflictPolicy,
    SaveSemantic,
    SemanticFilter,
    SemanticMemory,
    SimilarQuery,
)
from mnemon_server.domain.validation import doc_id_violations
from mnemon_server.services.semantic.checks import deletion_violations, query_violations, save_violations
from mnemon_server.services.semantic.filters import filter_violations
from mnemon_server.transport.convert.shared.filters import read_filter
from mnemon_server.transport.convert.shared.reader import Reader, expected_revision, require
from mnemon_server.transport.convert.shared.vectors import vector_from_pb
from mnemon_server.wire.values import SEARCH_MODES, VIEWS, scope_of

CONFLICT_POLICIES: Mapping[int, ConflictPolicy] = {
    pb.CONFLICT_POLICY_UNSPECIFIED: ConflictPolicy.IGNORE,
    pb.CONFLICT_POLICY_IGNORE: ConflictPolicy.IGNORE,
    pb.CONFLICT_POLICY_DETECT: ConflictPolicy.DETECT,
    pb.CONFLICT_POLICY_RESOLVE: ConflictPolicy.RESOLVE,
}
_EVERYTHING = SemanticFilter()


class Page(NamedTuple):
    """Which statements a page is of, and how many it has at most."""

    where: SemanticFilter
    limit: int


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
    view = reader.enum("view", request.view, VIEWS)
    reader.finish(doc_id_violations(request.memory_id, "memory_id"))
    return view


def read_list(request: pb.ListSemanticMemoriesRequest) -> Page:
    """The page."""
    reader = Reader()
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
        expression=read_filter(reader, "filter.filter", message.filter) if message.HasField("filter") else None,
    )
