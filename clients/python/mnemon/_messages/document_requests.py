"""Builds the request of every call; both clients share it."""

import uuid
from collections.abc import Mapping
from typing import Any, TypeAlias

from mnemon._messages import documents as convert
from mnemon._messages.documents import invalid
from mnemon._values import documents as values
from mnemon.v1 import knowledge_store_pb2 as pb

DocumentLike: TypeAlias = values.Document | tuple[str, str] | tuple[str, str, Mapping[str, values.MetadataValue] | None]
"""A document for `index_many`: a `Document`, `(id, content)` or `(id, content, metadata)`."""

_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1


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
    """A write of one document; it always carries a request_id, which makes repeating it harmless."""
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
    """A write of one item of `index_many`; `scope` counts where the item has none of its own."""
    if isinstance(given, values.Document):
        own = given.scope if given.scope != values.Scope() else scope
        return index_document(given.doc_id, given.content, given.metadata, scope=own, ack=ack)
    parts: tuple[Any, ...] = tuple(given) if isinstance(given, tuple) else ()
    if len(parts) not in (2, 3):
        raise invalid("document", "must be a Document, (id, content) or (id, content, metadata)")
    doc_id, content, metadata = (*parts, None)[:3]
    return index_document(doc_id, content, metadata, scope=scope, ack=ack)


def id_of(given: object) -> str:
    """The id of an item of `index_many`, as far as it has one."""
    found = given.doc_id if isinstance(given, values.Document) else given
    if isinstance(found, tuple) and found:
        found = found[0]
    return found if isinstance(found, str) else repr(found)


def search(
    query: str,
    *,
    top_k: int,
    filters: Mapping[str, values.FilterValue] | None,
    scope: values.Scope | None,
    mode: str,
    min_score: float,
    view: str,
) -> pb.SearchDocumentsRequest:
    """A search."""
    return pb.SearchDocumentsRequest(
        query=convert.text("query", query),
        top_k=max(_INT32_MIN, min(top_k, _INT32_MAX)),
        filters=convert.filters_to_pb(filters),
        scope=convert.scope_to_pb(scope),
        mode=convert.MODES_TO_PB[convert.choice("mode", mode, values.SearchMode)],
        min_score=min_score,
        view=_view(view),
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
    view: str,
) -> pb.ListDocumentsRequest:
    """A page of documents."""
    return pb.ListDocumentsRequest(
        page_size=page_size,
        page_token=convert.text("page_token", page_token),
        filters=convert.filters_to_pb(filters),
        scope=convert.scope_to_pb(scope),
        view=_view(view),
    )


def count_documents(
    *, filters: Mapping[str, values.FilterValue] | None, scope: values.Scope | None
) -> pb.CountDocumentsRequest:
    """A count of documents."""
    return pb.CountDocumentsRequest(filters=convert.filters_to_pb(filters), scope=convert.scope_to_pb(scope))


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
    *,
    filters: Mapping[str, values.FilterValue] | None,
    scope: values.Scope | None,
    dry_run: bool,
    ack: str,
    request_id: str | None,
) -> pb.DeleteDocumentsRequest:
    """A removal of all documents that match."""
    return pb.DeleteDocumentsRequest(
        filters=convert.filters_to_pb(filters),
        scope=convert.scope_to_pb(scope),
        dry_run=dry_run,
        request_id=_request_id(request_id),
        ack=convert.ACKS_TO_PB[convert.choice("ack", ack, values.AckLevel)],
    )


def _request_id(given: str | None) -> str:
    return convert.text("request_id", given) if given else str(uuid.uuid4())


def _view(given: str) -> pb.DocumentView.ValueType:
    return convert.VIEWS_TO_PB[convert.choice("view", given, values.DocumentView)]
