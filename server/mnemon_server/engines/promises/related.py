"""Documents that are related to a given one of the same user, household and persona: the query, and the answer in
columns.

The answer uses columns because a user's related documents may be most of that user's documents. Creating and visiting
tens of thousands of objects would take longer than the rest of a write.
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.clock import from_microseconds

NO_TIME = int(np.iinfo(np.int64).min)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelatedQuery:
    """Selects documents of one user, household and persona that are related in any of four ways. None or an empty value
    disables a way.
    """

    user: str
    household: str = ""
    persona: str = ""
    without: frozenset[str] = frozenset()
    """Ids to leave out."""
    vector: NDArray[np.float32] | None = None
    similarity_above: float | None = None
    """Related if the cosine similarity is above this."""
    terms: frozenset[str] = frozenset()
    overlap_above: float | None = None
    """Related if the common terms exceed this share of the smaller set of terms."""
    time: datetime | None = None
    time_within: timedelta | None = None
    """Related if the times are at most this far apart."""
    number: float | None = None
    number_apart: float | None = None
    """Related if the numbers differ by more than this."""


class RelatedDocument(NamedTuple):
    """A related document, with the values that show the relation; None if either side lacks the value."""

    doc_id: str
    position: int
    """Position in the order of first indexing."""
    similarity: float | None
    """Cosine similarity, -1 to 1."""
    shared_terms: int
    term_count: int
    """The number of the document's distinct terms; 0 if it has none in common."""
    time: datetime | None
    number: float | None


@dataclass(frozen=True, slots=True, eq=False)
class RelatedDocuments:
    """Related documents ordered by position, in columns of equal length. Iterate to get them one by one."""

    doc_ids: Sequence[str]
    positions: NDArray[np.int64]
    similarities: NDArray[np.float64]
    """NaN if either side has no vector."""
    shared_terms: NDArray[np.int64]
    term_counts: NDArray[np.int64]
    """0 if no term is common."""
    times: NDArray[np.int64]
    """Microseconds since 1970; NO_TIME if missing."""
    numbers: NDArray[np.float64]
    """NaN if missing."""

    def among(self, doc_ids: Set[str]) -> "RelatedDocuments":
        """The documents with one of these ids."""
        kept = np.array([each in doc_ids for each in self.doc_ids], np.bool_)
        return RelatedDocuments(
            [each for each in self.doc_ids if each in doc_ids],
            self.positions[kept],
            self.similarities[kept],
            self.shared_terms[kept],
            self.term_counts[kept],
            self.times[kept],
            self.numbers[kept],
        )

    def __len__(self) -> int:
        return len(self.doc_ids)

    def __iter__(self) -> Iterator[RelatedDocument]:
        columns = (self.positions, self.similarities, self.shared_terms, self.term_counts, self.times, self.numbers)
        rows = zip(self.doc_ids, *(column.tolist() for column in columns), strict=True)
        for doc_id, position, similarity, shared_terms, term_count, time, number in rows:
            yield RelatedDocument(
                doc_id,
                position,
                _known(similarity),
                shared_terms,
                term_count,
                None if time == NO_TIME else from_microseconds(time),
                _known(number),
            )


_NO_INTEGERS, _NO_NUMBERS = np.empty(0, np.int64), np.empty(0, np.float64)
NONE_RELATED = RelatedDocuments((), _NO_INTEGERS, _NO_NUMBERS, _NO_INTEGERS, _NO_INTEGERS, _NO_INTEGERS, _NO_NUMBERS)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value
