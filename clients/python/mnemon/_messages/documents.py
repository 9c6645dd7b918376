"""The requests about documents that need more than their fields, and the warnings about filters."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeAlias

from mnemon._enums import choice
from mnemon._messages.convert import invalid
from mnemon._messages.filters import where_to_pb
from mnemon._messages.translation import request
from mnemon._status import as_arguments
from mnemon._values import documents as values
from mnemon._values.filters import FilterLike
from mnemon.shared.errors import FieldViolation, InvalidArgumentError
from mnemon.shared.warnings import warn_of_filters
from mnemon.v1 import knowledge_store_pb2 as pb

DocumentLike: TypeAlias = values.Document | tuple[str, str] | tuple[str, str, Mapping[str, values.MetadataValue] | None]
"""A document for `put_many`: a `Document`, `(id, content)` or `(id, content, metadata)`."""

_Filtered = pb.SearchDocumentsResponse | pb.ListDocumentsResponse | pb.CountDocumentsResponse


def index_document(
    doc_id: str,
    content: str,
    metadata: Mapping[str, values.MetadataValue] | None,
    *,
    scope: values.Scope | None,
    **how: Any,
) -> pb.IndexDocumentRequest:
    """A write of one document; `how` are the other fields of the request."""
    document = request(pb.Document, doc_id=doc_id, content=content, metadata=metadata or {}, scope=scope)
    return request(pb.IndexDocumentRequest, document=document, **how)


def index_document_like(given: object, *, scope: values.Scope | None, ack: str) -> pb.IndexDocumentRequest:
    """A write of one item of `put_many`; `scope` is the default for items without one."""
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
    scope: values.Scope | Mapping[str, str] | None,
    **how: Any,
) -> pb.UpdateDocumentRequest:
    """A change of the fields that are not None, and of single keys of the metadata."""
    changes = {"content": content, "metadata": metadata}
    given = {name: value for name, value in changes.items() if value is not None}
    parts = [f"scope.{name}" for name in scope] if isinstance(scope, Mapping) else ["scope"] * (scope is not None)
    return request(
        pb.UpdateDocumentRequest,
        document=request(pb.Document, doc_id=doc_id, **given, scope=_scope(scope)),
        update_mask=[*given, *parts],
        set_metadata=set_metadata or {},
        **how,
    )


def _scope(given: values.Scope | Mapping[str, str] | None) -> values.Scope | None:
    if not isinstance(given, Mapping):
        return given
    try:
        return values.Scope(**given)
    except TypeError:
        names = ", ".join(each.name for each in fields(values.Scope))
        raise invalid("scope", f"must be a Scope, or a mapping of some of its fields: {names}") from None


def filter_of(
    scope: values.Scope | None, where: FilterLike | None, min_trust: str | None = None
) -> pb.DocumentFilter | None:
    """The filter of documents, as a message; None means all."""
    if scope is None and where is None and not min_trust:
        return None
    return request(pb.DocumentFilter, scope=scope, filter=where_to_pb(where), min_trust=min_trust or "")


def check_filters(response: _Filtered, *, strict: bool) -> None:
    """Warns of filters that were ignored or can match nothing; raises InvalidArgumentError for them if `strict`."""
    told: list[Any] = [*response.ignored_filters, *response.unmatched_filters]
    for each in told:
        each.reason = as_arguments(each.reason)
    if strict and (violations := [FieldViolation(f"filters.{each.key}", each.reason) for each in told]):
        message = "; ".join(f"{violation.field}: {violation.description}" for violation in violations)
        raise InvalidArgumentError(message, reason="INVALID_ARGUMENT", violations=violations)
    warn_of_filters(response.ignored_filters, response.unmatched_filters)


def no_answer(mode: str | None) -> values.SearchAnswer:
    """The answer to a search for zero results."""
    chosen = choice("mode", mode or values.SearchMode.HYBRID, values.SearchMode)
    diagnostics = values.SearchDiagnostics(
        mode=chosen, exact=True, total_candidates=0, scanned=0, pending=0, degraded="", duration_s=0.0
    )
    return values.SearchAnswer((), (), diagnostics)
