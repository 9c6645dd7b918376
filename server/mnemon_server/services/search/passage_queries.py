"""Queries and answers of the search for passages."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.documents import Document
from mnemon_server.domain.events import WindowQuery
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import SearchDiagnostics, SearchMode, TextQuery, View
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.values import FieldsOnly, KeywordScores, PassageIds, PassageLocation, Scores, Vector
from mnemon_server.services.search.embedded_passages import unit_vector
from mnemon_server.services.search.rankings import Ranking


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageQuery:
    """A search of passages. If `vector` is None and the mode needs one, the text is embedded."""

    text: str = ""
    vector: Vector | None = None
    of_model: bool = False
    """See TextQuery."""
    where: RecordFilter
    mode: SearchMode
    limit: int
    skip: int = 0
    """How many of the best to leave out of the answer; they count towards `limit`."""
    min_score: float = 0.0
    min_cosine: float | None = None
    """The least cosine of a result of a hybrid search, inclusive; None means any."""
    vectors: bool = False
    """Whether to read the documents with the vectors of their passages."""
    fields_only: FieldsOnly = False
    """Which parts of the documents to read; see FieldsOnly."""
    broad: bool = False
    """Whether `where` is expected to match most passages. Then it is cheaper to check what was found than to look up
    the matching passages first. The weights of words are then computed over all passages."""

    @classmethod
    def of(cls, query: TextQuery, where: RecordFilter, limit: int) -> Self:
        """The search of the passages that match a filter, by a caller's query that was checked."""
        return cls(
            text=query.text,
            vector=None if query.vector is None else unit_vector(query.vector),
            of_model=query.of_model,
            where=where,
            mode=query.chosen_mode,
            limit=limit,
            vectors=query.view is View.FULL,
            fields_only=query.view is View.IDS,
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """The candidates of a search, before they are compared."""

    candidates: int
    among: PassageIds | None
    """The passages that match the filter; None means all passages, or that `check` filters them later."""
    check: RecordFilter | None
    """The filter to apply to the passages that were found; None if they are filtered already."""
    keywords: KeywordScores | None
    near: Scores | None = None
    """The first proposals of the records, if they were looked up at the same time as the words."""


@dataclass(frozen=True, slots=True)
class PassageHit:
    """A document, found through its best passage. The cosine may be negative; None if meaning was not compared."""

    document: Document
    place: PassageLocation
    score: float
    cosine: float | None
    keyword_score: float | None
    vector_part: float | None = None
    """The contribution of the cosine to the score, 0 to 1; None if it is not part of the score."""
    keyword_part: float | None = None
    """The same for the keyword score."""

    @classmethod
    def of(cls, document: Document, scored: "ScoredPlace", ranking: Ranking) -> Self:
        """The hit at a place of a ranking."""
        row = scored.row
        return cls(
            document=document,
            place=scored.place,
            score=scored.score,
            cosine=_in_row(ranking.cosines, row),
            keyword_score=_in_row(ranking.keyword_scores, row),
            vector_part=_in_row(ranking.vector_parts, row),
            keyword_part=_in_row(ranking.keyword_parts, row),
        )


class ScoredPlace(NamedTuple):
    """The best passage of a document, its row in a ranking, and its score, 0 to 1."""

    place: PassageLocation
    row: int
    score: float


@dataclass(frozen=True, slots=True)
class Choice:
    """Documents chosen from a ranking, best first: the row and the location of the best passage of each."""

    ranking: Ranking
    places: dict[str, tuple[int, PassageLocation]]
    candidates: int
    """The number of passages that match the filter; if it was applied afterwards, only among those looked at."""
    compared: Ranking
    """The ranking before rounded scores were replaced: it has every passage that was compared."""
    widened: "Callable[[int], Choice]"
    """Chooses the given number of documents from the same ranking, whatever their score."""
    matched: int
    """The number of compared passages with a positive score."""

    def shown_scores(self) -> NDArray[np.float64]:
        """The scores of the documents, best first."""
        return self.ranking.scores[[row for row, _ in self.places.values()]]

    def scored(self) -> list[ScoredPlace]:
        """The places with their scores."""
        scores = self.ranking.scores
        return [ScoredPlace(place, row, min(max(float(scores[row]), 0.0), 1.0)) for row, place in self.places.values()]


@dataclass(frozen=True, slots=True)
class PassageAnswer:
    """The hits, best first. `vector_weight` is the weight of meaning in their scores, 0 to 1."""

    hits: tuple[PassageHit, ...]
    diagnostics: SearchDiagnostics
    vector_weight: float
    matched: int
    """The number of compared passages with a positive score, before the limit."""


def _in_row(column: NDArray[np.float64] | None, row: int) -> float | None:
    return None if column is None else float(column[row])


async def fetch_vector(embedder: EmbeddingBatcher, query: TextQuery | WindowQuery) -> None:
    """Asks an endpoint for the vector of a query, if the search needs it.

    Threads are few, and an endpoint may take long: searches by word would wait for a free one. Does nothing if the
    model runs in this process.

    Raises:
        EmbeddingUnavailableError: the endpoint failed.
        TooManyRequestsError, NotServingError: see EmbeddingBatcher.
    """
    if query.text and query.text.strip() and query.vector is None and query.mode is not SearchMode.KEYWORD:
        await embedder.fetch_query(query.text)
