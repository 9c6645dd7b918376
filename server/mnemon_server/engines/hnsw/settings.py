"""When a graph is built, of what kind, and when it is rebuilt and saved."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSettings:
    """Counts are of vectors."""

    graph_min: int = 20_000
    """From here on there is a graph; below half of it there is none any more."""
    m: int = 16
    ef_construction: int = 200
    ef_search: int = 128
    dimension_share: float = 1 / 3
    """Of a vector's numbers, how many the graph works with, ..."""
    dimension_min: int = 64
    """... and never fewer than these, or than there are."""
    overfetch: int = 2
    """How many times as many vectors as are wanted the graph proposes, where it works with fewer numbers, ..."""
    proposed_min: int = 64
    """... and never fewer than these."""
    tail_max: int = 1_024
    """How many new vectors are compared one by one before the graph takes them."""
    dead_share_max: float = 0.25
    """Of the graph's vectors, how many may be deleted ones before it is rebuilt."""
    snapshot_changes_min: int = 10_000
    snapshot_changes_share: float = 0.2
    """A snapshot is written once as many changes came as both of these say, ..."""
    snapshot_idle_s: float = 120.0
    """... or this long after the last one, and when closing."""
    snapshot_retry_s: float = 60.0
    """How long after a failure it is tried again."""

    snapshot_wait_s: float = 60.0
    """How long whoever asks for a snapshot waits for it."""

    @property
    def graph_kept_min(self) -> int:
        """Below this there is no graph any more."""
        return max(1, self.graph_min // 2)

    def graph_dimension(self, dimension: int) -> int:
        """How many numbers of a vector of `dimension` the graph works with."""
        return min(dimension, max(self.dimension_min, round(self.dimension_share * dimension)))


DEFAULT_GRAPH = GraphSettings()
