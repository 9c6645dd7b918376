"""Settings of searches, and the backend that indexes the vectors."""

from dataclasses import dataclass

from mnemon_server.ranking.fusion import DEFAULT_FUSION, Fusion
from mnemon_server.services.search.index_applier import IndexApplier
from mnemon_server.services.search.reranking import Ranker


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How the passages of a collection are searched."""

    exact_scan_max: int = 20_000
    """Up to this many candidates are compared one by one."""
    fusion: Fusion = DEFAULT_FUSION
    """How meaning and words become the score of a hybrid search."""
    ranker: Ranker | None = None
    """Reranks the results of a hybrid search; None turns that off."""
    threads: int = 4
    """The number of concurrent reads."""


DEFAULT_SEARCH = SearchSettings()


@dataclass(frozen=True, slots=True)
class VectorBackend:
    """The backend that indexes the vectors of a collection."""

    name: str = "local"
    """The name in results and in the health status."""
    collection: str = ""
    """The name of the collection in the index."""
    applier: IndexApplier | None = None
    """Keeps the index up to date; None if the records index the vectors themselves."""

    async def outage(self) -> str:
        """Why the index is unavailable; empty if it is available or being checked. Waits briefly."""
        return await self.applier.outage() if self.applier else ""

    def pending(self) -> int | None:
        """How many changes the index has not seen yet; None if the records index the vectors. Blocks."""
        return None if self.applier is None else self.applier.pending()

    def removals(self) -> int:
        """How many documents were removed or replaced, but may still be in the files of an external index."""
        return self.applier.removals() if self.applier else 0

    def close(self) -> None:
        """Closes the index."""
        if self.applier:
            self.applier.close()


LOCAL_BACKEND = VectorBackend()
