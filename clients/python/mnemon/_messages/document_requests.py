"""Builds the request of every call; both clients share it."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeAlias

from mnemon._messages import documents as convert
from mnemon._messages.documents import invalid
from mnemon._messages.fields import ids_filter, int32_to_pb, limit_to_pb
from mnemon._messages.memories import filter_to_pb, vector_to_pb
from mnemon._values import documents as values
from mnemon._values.filters import FilterLike, as_filter
from mnemon.v1 import knowledge_store_pb2 as pb

DocumentLike: TypeAlias = values.Document | tuple[str, str] | tuple[str, str, Mapping[str, values.MetadataValue] | None]
"""A document for `put_many`: a `Document`, `(id, content)` or `(id, content, metadata)`."""


def index_document(
    doc_id: str,
    content: str,
    metadata: Mapping[str, values.MetadataValue] | None,
    *,
    scope: values.Scope | None,
    ack: str,
    expected_revision: int | None = None,
    request_id: str | None = None,
) -> pb.IndexDocumentRequest:
    """A write of one document; it always has a request_id, so repeating it is harmless."""
    return pb.IndexDocumentRequest(
        document=pb.Document(
            doc_id=convert.text("doc_id", doc_id),
            content=convert.text("content", content),
            metadata=convert.metadata_to_pb("metadata", metadata or {}),
            scope=convert.scope_to_pb(scope),
        ),
        request_id=_request_id(request_id),
        expected_revision=expected_revision,
        ack=convert.ACKS_TO_PB[convert.choice("ack", ack, values.AckLevel)],
    )


def index_document_like(given: object, *, scope: values.Scope | None, ack: str) -> pb.IndexDocumentRequest:
    """A write of one item of `put_many`; `scope` applies if the item has none."""
    if isinstance(given, values.Document):
        own = given.scope if given.scope != values.Scope() else scope
        return index_document(given.doc_id, given.content, given.metadata, scope=own, ack=ack)
    parts: tuple[Any, ...] = tuple(given) if isinstance(given, tuple) else ()
    if len(parts) not in (2, 3):
        raise invalid("document", "must be a Document, (id, content) or (id, content, metadata)")
    doc_id, content, metadata = (*parts, None)[:3]
    return index_document(doc_id, content, metadata, scope=scope, ack=ack)


def id_of(given: object) -> str:
    """The id of an item of `put_many`, as far as it has one."""
    found = given.doc_id if isinstance(given, values.Document) else given
    if isinstance(found, tuple) and found:
        found = found[0]
    return found if isinstance(found, str) else repr(found)


def update_document(
    doc_id: str,
    *,
    content: str | None,
    metadata: Mapping[str, values.MetadataValue] | None,
    set_metadata: Mapping[str, values.MetadataValue] | None,
    remove_metadata: Iterable[str],
    scope: values.Scope | Mapping[str, str] | None,
    ack: str,
    expected_revision: int | None,
    request_id: str | None,
) -> pb.UpdateDocumentRequest:
    """A change of the fields that are not None, and of single keys of the metadata."""
    given = {"content": content, "metadata": metadata}
    parts = [f"scope.{name}" for name in scope] if isinstance(scope, Mapping) else ["scope"] * (scope is not None)
    request = pb.UpdateDocumentRequest(
        document=pb.Document(
            doc_id=convert.text("doc_id", doc_id),
            content=convert.text("content", content or ""),
            metadata=convert.metadata_to_pb("metadata", metadata or {}),
            scope=convert.scope_to_pb(_scope(scope)),
        ),
        set_metadata=convert.metadata_to_pb("set_metadata", set_metadata or {}),
        remove_metadata=convert.keys("remove_metadata", remove_metadata),
        request_id=_request_id(request_id),
        expected_revision=expected_revision,
        ack=convert.ACKS_TO_PB[convert.choice("ack", ack, values.AckLevel)],
    )
    request.update_mask.paths.extend([*(name for name, value in given.items() if value is not None), *parts])
    return request


def search(
    query: str,
    *,
    vector: Sequence[float] | None,
    limit: int,
    filters: Mapping[str, values.FilterValue] | None,
    scope: values.Scope | None,
    where: FilterLike | None,
    mode: str | None,
    min_score: float,
    view: str,
) -> pb.SearchDocumentsRequest:
    """A search; `limit` is at least 1."""
    return pb.SearchDocumentsRequest(
        query=convert.text("query", query),
        vector=vector_to_pb("vector", vector),
        mode=convert.mode_to_pb(mode),
        limit=limit_to_pb(limit),
        min_score=min_score,
        filter=_filter(scope, where),
        view=_view(view),
        filters=convert.filters_to_pb(filters),
    )


def get_document(doc_id: str, *, view: str) -> pb.GetDocumentRequest:
    """A read of one document."""
    return pb.GetDocumentRequest(doc_id=convert.text("doc_id", doc_id), view=_view(view))


def list_documents(
    *,
    page_size: int,
    page_token: str,
    filters: Mapping[str, values.FilterValue] | None,
    scope: values.Scope | None,
    where: FilterLike | None,
    view: str,
) -> pb.ListDocumentsRequest:
    """A page of documents."""
    return pb.ListDocumentsRequest(
        filter=_filter(scope, where),
        page_size=int32_to_pb(page_size),
        page_token=convert.text("page_token", page_token),
        view=_view(view),
        filters=convert.filters_to_pb(filters),
    )


def count_documents(
    *, filters: Mapping[str, values.FilterValue] | None, scope: values.Scope | None, where: FilterLike | None
) -> pb.CountDocumentsRequest:
    """A count of documents."""
    return pb.CountDocumentsRequest(filter=_filter(scope, where), filters=convert.filters_to_pb(filters))


def delete_document(
    doc_id: str,
    *,
    allow_missing: bool,
    ack: str,
    expected_revision: int | None,
    request_id: str | None,
) -> pb.DeleteDocumentRequest:
    """A removal of one document."""
    return pb.DeleteDocumentRequest(
        doc_id=convert.text("doc_id", doc_id),
        request_id=_request_id(request_id),
        expected_revision=expected_revision,
        allow_missing=allow_missing,
        ack=convert.ACKS_TO_PB[convert.choice("ack", ack, values.AckLevel)],
    )


def delete_documents(
    doc_ids: Iterable[str] | None,
    *,
    filters: Mapping[str, values.FilterValue] | None,
    scope: values.Scope | None,
    where: FilterLike | None,
    dry_run: bool,
    ack: str,
    request_id: str | None,
) -> pb.DeleteDocumentsRequest:
    """A request to remove the documents with these ids, or all that match."""
    if doc_ids is not None:
        where = ids_filter("doc_ids", doc_ids, "doc_id", alone=not filters and scope is None and where is None)
    return pb.DeleteDocumentsRequest(
        filter=_filter(scope, where),
        filters=convert.filters_to_pb(filters),
        dry_run=dry_run,
        request_id=_request_id(request_id),
        ack=convert.ACKS_TO_PB[convert.choice("ack", ack, values.AckLevel)],
    )


def _request_id(given: str | None) -> str:
    return convert.text("request_id", given) if given else str(uuid.uuid4())


def _filter(scope: values.Scope | None, where: FilterLike | None) -> pb.DocumentFilter | None:
    if scope is None and where is None:
        return None
    return pb.DocumentFilter(
        scope=convert.scope_to_pb(scope), filter=None if where is None else filter_to_pb(as_filter(where))
    )


def _scope(given: values.Scope | Mapping[str, str] | None) -> values.Scope | None:
    if not isinstance(given, Mapping):
        return given
    try:
        return values.Scope(**given)
    except TypeError:
        names = ", ".join(each.name for each in fields(values.Scope))
        raise invalid("scope", f"must be a Scope, or a mapping of some of its fields: {names}") from None


def _view(given: str) -> Any:
    return convert.VIEWS_TO_PB[convert.choice("view", given, values.View)]
