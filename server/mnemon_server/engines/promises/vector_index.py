"""What an index of vectors promises that is fed from the records."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mnemon_server.domain.documents import Document
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.engines.promises.values import (
    Scores,
    Vector,
)


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One passage for a vector index."""

    passage_id: int
    doc_id: str
    index: int
    text: str
    vector: Vector
    document: Document


@dataclass(frozen=True, slots=True)
class IndexState:
    """What a vector index says of itself."""

    generation: str
    """Changes whenever the index was created anew, so that a position in an older one is not believed."""
    entry_count: int


class VectorIndex(Protocol):
    """An index of vectors fed from the records. Any thread may call any method; all block.

    Every method but `close` raises BackendConnectionError when the index cannot be reached, after the retries that make
    sense; what was applied before stays applied, and the call may be made again.
    """

    @property
    def name(self) -> str:
        """What the position of this index is stored under; names the collection."""

    @property
    def host(self) -> str:
        """The address, or "embedded"."""

    @property
    def belongs_to_records(self) -> bool:
        """Whether this server alone uses the index, so that one of another embedding model may be emptied unasked."""

    def open(self) -> IndexState:
        """Connects, creates what is missing, and checks that what is there can be searched.

        An index found damaged is moved aside and created anew, under a new generation.
        """

    def apply(self, entries: Sequence[IndexEntry], deleted_doc_ids: Sequence[str]) -> None:
        """Makes the index hold exactly `entries` for their documents, and nothing for the deleted ones.

        Entries of one document come together and whole. Applying the same again changes nothing. When it returns, a
        search finds the entries, also after the process of the index was killed and `open` was called again.
        """

    def search(self, query: Vector, *, limit: int, equal: RecordFilter) -> Scores:
        """Up to `limit` passages near the query that match the filter: approximate, best effort, scores are cosine."""

    def ping(self) -> None:
        """Returns once the index that was opened has answered."""

    def reset(self) -> IndexState:
        """Empties the index, in its files too, under a new generation."""

    def close(self) -> None:
        """Gives everything back. Calling it again does nothing."""
