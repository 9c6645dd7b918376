"""Builds the requests to semantic memory; both clients share it."""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from mnemon._enums import numbers_by_member
from mnemon._messages import documents as convert
from mnemon._messages import semantic as semantic_convert
from mnemon._messages.documents import invalid
from mnemon._messages.fields import ids_to_pb, int32_to_pb, limit_to_pb
from mnemon._messages.memories import vector_to_pb
from mnemon._values import documents as values
from mnemon._values import semantic
from mnemon.v1 import semantic_pb2 as pb

_POLICIES = numbers_by_member(semantic.ConflictPolicy, pb.DESCRIPTOR.enum_types_by_name["ConflictPolicy"])


def save(
    memory: semantic.SemanticMemory, *, conflict_policy: str, rule: str, request_id: str | None = None
) -> pb.SaveSemanticMemoryRequest:
    """A new statement; it always has a request_id, so repeating it is harmless."""
    return pb.SaveSemanticMemoryRequest(
        memory=semantic_convert.statement_to_pb(memory),
        embedding=semantic_convert.embedding_of(memory),
        conflict_policy=_POLICIES[convert.choice("conflict_policy", conflict_policy, semantic.ConflictPolicy)],
        rule=convert.text("rule", rule),
        request_id=request_id_to_pb(request_id),
    )


def save_like(
    given: object, *, scope: values.Scope | None, conflict_policy: str, rule: str
) -> pb.SaveSemanticMemoryRequest:
    """A new statement from one item of `add_many`; `scope` applies if the item has none."""
    memory = semantic.SemanticMemory(given) if isinstance(given, str) else given
    if not isinstance(memory, semantic.SemanticMemory):
        raise invalid("memory", "must be text or a SemanticMemory")
    if scope is not None and memory.scope == values.Scope():
        memory = replace(memory, **asdict(scope))
    return save(memory, conflict_policy=conflict_policy, rule=rule)


def search(
    query: str,
    *,
    vector: Sequence[float] | None,
    limit: int,
    mode: str | None,
    min_similarity: float | None,
    which: semantic.SemanticFilters,
    view: str,
) -> pb.SearchSimilarRequest:
    """A search for statements."""
    if min_similarity is not None:
        # The server would report this field by its name in the request.
        if not 0.0 <= min_similarity <= 1.0:
            raise invalid("min_similarity", "must be between 0 and 1")
        if mode == values.SearchMode.KEYWORD:
            raise invalid("min_similarity", 'must be None if mode is "keyword", which does not compare meaning')
    return pb.SearchSimilarRequest(
        query=convert.text("query", query),
        vector=vector_to_pb("vector", vector),
        limit=limit_to_pb(limit),
        mode=convert.mode_to_pb(mode),
        min_score=min_similarity,
        filter=semantic_convert.semantic_filter_to_pb(which),
        view=_view(view),
    )


def get(memory_id: str, *, view: str) -> pb.GetSemanticMemoryRequest:
    """A read of one statement."""
    return pb.GetSemanticMemoryRequest(memory_id=convert.text("memory_id", memory_id), view=_view(view))


def list_page(
    *, page_size: int, page_token: str, which: semantic.SemanticFilters, show_superseded: bool
) -> pb.ListSemanticMemoriesRequest:
    """A page of statements."""
    return pb.ListSemanticMemoriesRequest(
        filter=semantic_convert.semantic_filter_to_pb(which),
        page_size=int32_to_pb(page_size),
        page_token=convert.text("page_token", page_token),
        show_superseded=show_superseded,
    )


def delete(
    memory_ids: Iterable[str] | None,
    *,
    which: semantic.SemanticFilters,
    allow_missing: bool,
    expected_revision: int | None = None,
    dry_run: bool = False,
    request_id: str | None,
) -> pb.DeleteSemanticMemoriesRequest:
    """A removal for good."""
    return pb.DeleteSemanticMemoriesRequest(
        memory_ids=ids_to_pb("memory_ids", memory_ids),
        filter=semantic_convert.semantic_filter_to_pb(which),
        allow_missing=allow_missing,
        expected_revision=expected_revision,
        dry_run=dry_run,
        request_id=request_id_to_pb(request_id),
    )


def create_snapshot(*, request_id: str | None) -> pb.CreateSnapshotRequest:
    """A snapshot, asked for."""
    return pb.CreateSnapshotRequest(request_id=request_id_to_pb(request_id))


def request_id_to_pb(given: str | None) -> str:
    """The request_id that was given, or a new one."""
    return convert.text("request_id", given) if given else str(uuid.uuid4())


def _view(given: str) -> Any:
    return convert.VIEWS_TO_PB[convert.choice("view", given, values.View)]
