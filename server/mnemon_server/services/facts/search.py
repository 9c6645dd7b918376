"""Searches facts by a text or a vector; without either, lists the facts that match the filter."""

from datetime import datetime

from mnemon_server.domain.clock import Clock
from mnemon_server.domain.documents import Document
from mnemon_server.domain.facts import Fact, FactMatch, FactQuery, FactSearchAnswer
from mnemon_server.domain.records import SearchDiagnostics, View
from mnemon_server.domain.validation import refuse
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import FieldsOnly, Fits
from mnemon_server.services.facts.checks import query_violations
from mnemon_server.services.facts.filters import living
from mnemon_server.services.facts.stored_form import NAME, to_fact, to_name
from mnemon_server.services.search.embedded_passages import unit_vector
from mnemon_server.services.search.passage_queries import PassageHit, PassageQuery, mode_of
from mnemon_server.services.search.passage_search import PassageSearch
from mnemon_server.services.search.timed import timed_search


class FactSearch:
    """Finds facts through the passages of their texts."""

    def __init__(self, records: RecordEngine, passages: PassageSearch, *, dimension: int, clock: Clock) -> None:
        self._records = records
        self._passages = passages
        self._dimension = dimension
        self._clock = clock

    @timed_search
    def find(self, query: FactQuery, *, fits: Fits | None = None) -> FactSearchAnswer:
        """The facts nearest to the query, best first, each once; calls `fits` before it reads one. Blocks."""
        refuse(query_violations(query, self._dimension))
        has_query = query.text.strip() or query.vector is not None
        find = self._ranked if has_query else self._listed
        return find(query, self._clock(), fits)

    def close(self) -> None:
        """Waits for the searches that have begun."""
        self._passages.close()

    def _ranked(self, query: FactQuery, now: datetime, fits: Fits | None) -> FactSearchAnswer:
        where = query.filter
        found = self._passages.find(
            PassageQuery(
                text=query.text,
                vector=None if query.vector is None else unit_vector(query.vector),
                where=living(where, now),
                mode=mode_of(query.mode, query.text, query.vector),
                limit=query.offset + query.limit,
                skip=query.offset,
                min_score=query.min_score,
                broad=where.namespace is None and where.where is None,
                vectors=query.view is View.FULL,
                fields_only=_fields(query),
            ),
            fits=fits,
        )
        return FactSearchAnswer(tuple(_match(hit, query) for hit in found.hits), found.diagnostics)

    def _listed(self, query: FactQuery, now: datetime, fits: Fits | None) -> FactSearchAnswer:
        rows = self._records.list_documents(
            living(query.filter, now),
            limit=query.limit,
            skip=query.offset,
            vectors=query.view is View.FULL,
            fields_only=_fields(query),
            fits=fits,
        )
        matches = tuple(FactMatch(_fact(document, query)) for _, document in rows)
        return FactSearchAnswer(
            matches, SearchDiagnostics(mode=mode_of(query.mode, query.text, query.vector), exact=True)
        )


def _match(hit: PassageHit, query: FactQuery) -> FactMatch:
    similarity = None if hit.cosine is None else min(max(hit.cosine, 0.0), 1.0)
    return FactMatch(_fact(hit.document, query), hit.score, similarity, hit.keyword_score)


def _fields(query: FactQuery) -> FieldsOnly:
    return NAME if query.view is View.IDS else True


def _fact(document: Document, query: FactQuery) -> Fact:
    return to_name(document) if query.view is View.IDS else to_fact(document, as_text=True)
