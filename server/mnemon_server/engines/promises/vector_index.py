"""The contract of a vector index that is fed from the records."""

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
    """One passage in a vector index."""

    passage_id: int
    doc_id: str
    index: int
    text: str
    vector: Vector
    document: Document


@dataclass(frozen=True, slots=True)
class IndexState:
    """The state of a vector index."""

    generation: str
    """Identifies the index. It changes when the index is recreated, so that a position in the previous one is not
    used.
    """
    entry_count: int


class VectorIndex(Protocol):
    """A vector index that is fed from the records. Any thread may call any method; all block.

    Every method except `close` raises BackendConnectionError if the index cannot be reached after sensible retries.
    Earlier updates stay applied, and the call may be repeated.
    """

    @property
    def name(self) -> str:
        """The key under which the position of this index is stored; it contains the collection's name."""

    @property
    def host(self) -> str:
        """The address of its server."""

    def open(self) -> IndexState:
        """Connects, creates what is missing, and checks that the index can be searched.

        A damaged index is replaced by an empty one with a new generation.
        """

    def apply(self, entries: Sequence[IndexEntry], deleted_doc_ids: Sequence[str]) -> None:
        """Makes the index contain exactly `entries` for their documents, and nothing for the deleted ones.

        A call has all entries of a document or none. Repeating a call changes nothing. When it returns, searches find
        the entries, even after `open` was called again.
        """

    def search(self, query: Vector, *, limit: int, equal: RecordFilter) -> Scores:
        """Up to `limit` passages close to the query that match the filter. Approximate; scores are cosine
        similarities.
        """

    def ping(self) -> None:
        """Returns once the server of the index has answered, within seconds."""

    def reset(self) -> IndexState:
        """Empties the index; returns the state with a new generation. Its server may keep the bytes in its files."""

    def close(self) -> None:
        """Releases all resources. Further calls have no effect."""
