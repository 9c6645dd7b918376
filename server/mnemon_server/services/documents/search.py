"""Search of the knowledge store by text; the answer tells which filters were ignored or cannot match."""

from dataclasses import replace

from mnemon_server.domain.documents import (
    TOP_K_MAX,
    Passage,
    SearchAnswer,
    SearchQuery,
    SearchResult,
)
from mnemon_server.domain.records import NOTHING_RELEVANT, SearchDiagnostics, View
from mnemon_server.engines.promises.values import Fits
from mnemon_server.services.documents.filters import lenient_filter
from mnemon_server.services.search.passage_queries import PassageHit, PassageQuery
from mnemon_server.services.search.passage_search import PassageSearch
from mnemon_server.services.search.rankings import timed_search


class DocumentSearch:
    """Finds documents through their passages; see PassageSearch."""

    def __init__(self, passages: PassageSearch, backend: str) -> None:
        """`backend` is named in results that name no source themselves."""
        self._passages = passages
        self._backend = backend

    @timed_search
    def find(self, query: SearchQuery, *, fits: Fits | None = None) -> SearchAnswer:
        """The documents nearest to a query that was checked, best first, each once, through its best passage. Blocks.

        `fits` is asked before one is read.
        """
        where, notes = lenient_filter(self._passages.records, query.where)
        if query.is_empty or query.top_k <= 0:
            nothing = SearchDiagnostics(mode=query.chosen_mode, exact=True, relevance=NOTHING_RELEVANT)
            return SearchAnswer((), notes, nothing)
        asked = replace(PassageQuery.of(query, where, min(query.top_k, TOP_K_MAX)), min_score=query.min_score)
        found = self._passages.find(asked, fits=fits)
        backend = "" if query.view is View.IDS else self._backend
        return SearchAnswer(tuple(_result(hit, backend) for hit in found.hits), notes, found.diagnostics)


def _result(hit: PassageHit, backend: str) -> SearchResult:
    """The result of a hit; the backend is its source unless its metadata names one."""
    document, place = hit.document, hit.place
    source = document.metadata.get("source")
    return SearchResult(
        doc_id=document.doc_id,
        content=document.content,
        metadata=document.metadata,
        score=hit.score,
        source=source if isinstance(source, str) else backend,
        vector_score=None if hit.cosine is None else min(max(hit.cosine, 0.0), 1.0),
        keyword_score=hit.keyword_score,
        passage=Passage(place.index, place.start, place.end),
        document=document,
    )
