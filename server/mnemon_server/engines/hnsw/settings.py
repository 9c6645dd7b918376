"""Settings of the graph: when it is built, its parameters, and when it is rebuilt and saved."""

from dataclasses import dataclass
from importlib.util import find_spec


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSettings:
    """Counts are numbers of vectors."""

    graph_min: int = 20_000
    """With this many vectors a graph is built. It is dropped again below half of that."""
    m: int = 16
    ef_construction: int = 200
    ef_search: int = 128
    dimension_share: float = 1 / 3
    """The share of a vector's components that the graph uses."""
    dimension_min: int = 64
    """The minimum number of components that the graph uses, if a vector has that many."""
    overfetch: int = 2
    """If the graph uses fewer components, it proposes this many times the number of vectors requested."""
    proposed_min: int = 64
    """The minimum number of proposals in that case."""
    tail_max: int = 1_024
    """Maximum number of new vectors to compare one by one before the graph adds them."""
    dead_share_max: float = 0.25
    """Maximum share of deleted vectors in the graph before it is rebuilt."""
    snapshot_changes_min: int = 10_000
    snapshot_changes_share: float = 0.2
    """A snapshot is written after this number of changes, and at least this share of the graph's vectors."""
    snapshot_idle_s: float = 120.0
    """A snapshot is also written this long after the previous one if anything changed, and when closing."""
    snapshot_retry_s: float = 60.0
    """Time until the next attempt after a failure."""

    snapshot_wait_s: float = 60.0
    """How long a caller waits for a requested snapshot."""

    @property
    def graph_kept_min(self) -> int:
        """With fewer vectors than this, the graph is dropped."""
        return max(1, self.graph_min // 2)

    def graph_dimension(self, dimension: int) -> int:
        """The number of components that the graph uses for vectors of `dimension` components."""
        return min(dimension, max(self.dimension_min, round(self.dimension_share * dimension)))


GRAPHS_INSTALLED = find_spec("hnswlib") is not None
"""Whether the library of graphs is installed. It comes as source, so it is an extra."""

DEFAULT_GRAPH = GraphSettings()
