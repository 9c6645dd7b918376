"""Finds related documents by comparing all of them."""

from collections.abc import Iterable, Set
from datetime import datetime
from typing import Any

import numpy as np

from mnemon_server.domain.collections import RelatedFields
from mnemon_server.domain.documents import Document
from mnemon_server.engines.in_memory.stored import Stored
from mnemon_server.engines.promises.related import RelatedDocument, RelatedQuery


def related_documents(stored: Iterable[Stored], fields: RelatedFields, query: RelatedQuery) -> list[RelatedDocument]:
    """The related documents among those that are not hidden; see RecordEngine.related_documents."""
    others = (
        _compared(each, fields, query)
        for each in stored
        if _is_compared(each.document, query) and each.document.doc_id not in query.without
    )
    related = (other for other in others if _is_related(other, query))
    return sorted(map(_counted, related), key=lambda other: other.position)


def _is_compared(document: Document, query: RelatedQuery) -> bool:
    scope = document.scope
    return (scope.user, scope.household, scope.persona) == (query.user, query.household, query.persona)


def _compared(stored: Stored, fields: RelatedFields, query: RelatedQuery) -> RelatedDocument:
    values: dict[str, Any] = dict(stored.document.fields)
    terms: Set[str] = frozenset(values.get(fields.terms) or ())
    time: datetime | None = values.get(fields.time)
    number: float | None = values.get(fields.number)
    return RelatedDocument(
        doc_id=stored.document.doc_id,
        position=stored.position,
        similarity=_similarity(stored, query),
        shared_terms=len(terms & query.terms),
        term_count=len(terms),
        time=time,
        number=None if number is None else float(number),
    )


def _counted(other: RelatedDocument) -> RelatedDocument:
    return other if other.shared_terms else other._replace(term_count=0)


def _similarity(stored: Stored, query: RelatedQuery) -> float | None:
    if query.vector is None or not stored.passages:
        return None
    return max(float(np.clip(np.dot(passage.vector, query.vector), -1.0, 1.0)) for passage in stored.passages)


def _is_related(other: RelatedDocument, query: RelatedQuery) -> bool:
    return _is_near(other, query) or _overlaps(other, query) or _is_of_its_time(other, query) or _is_apart(other, query)


def _is_near(other: RelatedDocument, query: RelatedQuery) -> bool:
    above = query.similarity_above
    return other.similarity is not None and above is not None and other.similarity > above


def _overlaps(other: RelatedDocument, query: RelatedQuery) -> bool:
    smaller = min(len(query.terms), other.term_count)
    return bool(smaller) and query.overlap_above is not None and other.shared_terms / smaller > query.overlap_above


def _is_of_its_time(other: RelatedDocument, query: RelatedQuery) -> bool:
    if other.time is None or query.time is None or query.time_within is None:
        return False
    return abs(other.time - query.time) <= query.time_within


def _is_apart(other: RelatedDocument, query: RelatedQuery) -> bool:
    if other.number is None or query.number is None or query.number_apart is None:
        return False
    return abs(other.number - query.number) > query.number_apart
