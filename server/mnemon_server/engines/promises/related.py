"""Documents of a user that are related to another one: what is asked, and the answer in columns.

Columns, because a user's related documents may be most of what the user has: as objects, tens of thousands of them take
longer to make and to look at than everything else about a write.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.clock import from_microseconds, to_microseconds

NO_TIME = int(np.iinfo(np.int64).min)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelatedQuery:
    """The documents of a user that are related to another one, in any of four ways; None or empty asks for nothing."""

    user: str
    without: frozenset[str] = frozenset()
    """Ids that are left out."""
    vector: NDArray[np.float32] | None = None
    similarity_above: float | None = None
    """Cosine similarity above this."""
    terms: frozenset[str] = frozenset()
    overlap_above: float | None = None
    """Terms in common above this share of the smaller set."""
    time: datetime | None = None
    time_within: timedelta | None = None
    """Not further apart than this."""
    number: float | None = None
    number_apart: float | None = None
    """Further apart than this."""


class RelatedDocument(NamedTuple):
    """A document of the user, as far as it tells how it is related; None where either side lacks the value."""

    doc_id: str
    position: int
    """In the order of first indexing."""
    similarity: float | None
    """-1 to 1."""
    shared_terms: int
    term_count: int
    """Its own terms, different ones; 0 where it shares none."""
    time: datetime | None
    number: float | None


@dataclass(frozen=True, slots=True, eq=False)
class RelatedDocuments:
    """Related documents by position, in columns of one length; iterating gives them one by one."""

    doc_ids: Sequence[str]
    positions: NDArray[np.int64]
    similarities: NDArray[np.float64]
    """NaN where either side has no vector."""
    shared_terms: NDArray[np.int64]
    term_counts: NDArray[np.int64]
    """0 where no term is shared."""
    times: NDArray[np.int64]
    """Microseconds since 1970; NO_TIME where there is none."""
    numbers: NDArray[np.float64]
    """NaN where there is none."""

    @classmethod
    def of(cls, rows: Iterable[RelatedDocument]) -> "RelatedDocuments":
        """The columns of documents that come by position."""
        columns = list(zip(*rows, strict=True)) or [()] * len(RelatedDocument._fields)
        doc_ids, positions, similarities, shared_terms, term_counts, times, numbers = columns
        return cls(
            doc_ids,
            np.array(positions, np.int64),
            np.array(similarities, np.float64),
            np.array(shared_terms, np.int64),
            np.array(term_counts, np.int64),
            np.array([NO_TIME if time is None else to_microseconds(time) for time in times], np.int64),
            np.array(numbers, np.float64),
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


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value
