"""What is set about searches, and what indexes the vectors that they compare."""

from dataclasses import dataclass

from mnemon_server.ranking.fusion import DEFAULT_FUSION, Fusion
from mnemon_server.services.search.index_applier import IndexApplier
from mnemon_server.services.search.reranking import Ranker


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How the passages of a collection are searched."""

    exact_scan_max: int = 20_000
    """Up to so many candidates are compared one by one."""
    fusion: Fusion = DEFAULT_FUSION
    """How meaning and words become the score of a hybrid search."""
    ranker: Ranker | None = None
    """Takes a second look at what a hybrid search finds."""
    threads: int = 4
    """Reads at the same time."""


DEFAULT_SEARCH = SearchSettings()


@dataclass(frozen=True, slots=True)
class VectorBackend:
    """What indexes the vectors of a collection."""

    name: str = "local"
    """As results and health tell it."""
    collection: str = ""
    """The name of the collection in the index."""
    applier: IndexApplier | None = None
    """Feeds the index; None for a backend without one."""


LOCAL_BACKEND = VectorBackend()
