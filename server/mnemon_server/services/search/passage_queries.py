"""What is asked of a search for passages, and what it answers."""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.documents import Document
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import SearchDiagnostics, SearchMode
from mnemon_server.engines.promises.values import FieldsOnly, PassageLocation, Vector
from mnemon_server.services.search.rankings import Ranking


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageQuery:
    """What to search for. `vector` None: the text's, where the mode needs one."""

    text: str = ""
    vector: Vector | None = None
    where: RecordFilter
    mode: SearchMode
    limit: int
    skip: int = 0
    """How many of the best are passed over; they count among `limit`."""
    min_score: float = 0.0
    vectors: bool = False
    """Whether the documents come with the vectors of their passages."""
    fields_only: FieldsOnly = False
    """Whether they come with their collection's own fields alone."""
    broad: bool = False
    """Whether `where` is expected to leave most passages, so that it pays to check what was found, and not to look up
    first what may be found. How telling a word is then counts among all."""


@dataclass(frozen=True, slots=True)
class PassageHit:
    """A document, found through its best passage. A cosine may be below 0, and None where meaning was not compared."""

    document: Document
    place: PassageLocation
    score: float
    cosine: float | None
    keyword_score: float | None
    vector_part: float | None = None
    """What the cosine counts for in the score, 0 to 1; None where it is not in it."""
    keyword_part: float | None = None
    """The same of the keyword score."""

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
class PassageAnswer:
    """The hits, best first. `vector_weight` is the share of meaning in their scores."""

    hits: tuple[PassageHit, ...]
    diagnostics: SearchDiagnostics
    vector_weight: float


def _in_row(column: NDArray[np.float64] | None, row: int) -> float | None:
    return None if column is None else float(column[row])
