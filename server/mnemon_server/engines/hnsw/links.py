"""A graph without its vectors, as arrays: the content of a snapshot, validated so that native code can rely on it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.hnsw.projection import Projection, ProjectionError
from mnemon_server.engines.hnsw.settings import GraphSettings
from mnemon_server.engines.promises.values import PassageIds

if TYPE_CHECKING:
    import hnswlib

# The first word of a list of links holds the number of links and, on the lowest level, the deletion mark of the vector.
_COUNT = np.uint32(0xFFFF)
_DELETED = np.uint32(0x1_0000)
_SEED = 100

FREE_IDS_FROM = 1 << 62
"""An id that no passage has: for rows that keep their place in the graph after their passage was removed."""
_CHUNK_ROWS = 4_096


class LinksError(Exception):
    """The arrays are not a valid graph."""


@dataclass(frozen=True, slots=True)
class Links:
    """A graph of `n` vectors. Its links are row numbers, 0 to n - 1."""

    passage_ids: PassageIds
    """Passage ids, of shape (n)."""
    fingerprints: NDArray[np.uint32]
    """Checksums of the vectors for which the links were made, of shape (n)."""
    levels: NDArray[np.int32]
    """The highest level of each row, of shape (n)."""
    ground: NDArray[np.uint32]
    """The link lists of the lowest level, of shape (n, 1 + 2 m)."""
    upper: NDArray[np.uint32]
    """The link lists of the higher levels, row by row, lowest level first, of shape (sum of levels, 1 + m)."""
    directions: NDArray[np.float32]
    """The directions of the projection with which the links were made, of shape (width, dimension)."""
    entry: int
    """The row where every search starts."""

    def __len__(self) -> int:
        return len(self.passage_ids)

    @property
    def deleted(self) -> NDArray[np.bool_]:
        """Which rows are marked as deleted."""
        marked: NDArray[np.bool_] = (self.ground[:, 0] & _DELETED) != 0
        return marked

    def check(self) -> None:
        """Raises LinksError if following the links could leave the graph, or if the projection is not valid."""
        count = len(self)
        if not 0 <= self.entry < count or self.levels.min() < 0 or self.levels[self.entry] != self.levels.max():
            raise LinksError("the entry point is not a row of the highest level")
        if len(np.unique(self.passage_ids)) != count or self.passage_ids.min() < 0:
            raise LinksError("passage ids are not unique")
        if (self.ground[:, 0] & ~(_COUNT | _DELETED)).any() or (self.upper[:, 0] & ~_COUNT).any():
            raise LinksError("a list of links has unknown flags")
        if len(self.upper) != self.levels.sum(dtype=np.int64):
            raise LinksError("lists of upper levels are missing")
        try:
            Projection(self.directions).check()
        except ProjectionError as error:
            raise LinksError(str(error)) from error
        _check_lists(self.ground, np.zeros(count, np.int32), self.levels)
        starts = np.repeat(np.cumsum(self.levels) - self.levels, self.levels)
        _check_lists(self.upper, np.arange(len(self.upper), dtype=np.int32) - starts.astype(np.int32) + 1, self.levels)

    def neighbours(self, row: int) -> NDArray[np.uint32]:
        """The rows to which a row is linked on the lowest level."""
        found: NDArray[np.uint32] = self.ground[row, 1 : 1 + int(self.ground[row, 0] & _COUNT)]
        return found


def element_type(width: int, m: int) -> np.dtype[Any]:
    """The memory layout in hnswlib of a projected vector of `width` components with the links of its lowest level."""
    return np.dtype([("links", "<u4", (1 + 2 * m,)), ("vector", "<f4", (width,)), ("label", "<u8")])


def new_index(width: int, settings: GraphSettings, capacity: int) -> "hnswlib.Index":
    """An empty index. Searches and additions run in the calling thread.

    Raises:
        RuntimeError: this version of hnswlib has an unknown memory layout.
    """
    import hnswlib

    # Not the inner product: projected vectors differ in length, and the longest would be proposed for every query.
    index = hnswlib.Index("l2", width)
    index.init_index(capacity, M=settings.m, ef_construction=settings.ef_construction, random_seed=_SEED)
    index.set_num_threads(1)
    index.set_ef(settings.ef_search)
    state, element = take_state(index), element_type(width, settings.m)
    if (state["size_data_per_element"], state["offset_data"]) != (element.itemsize, element["links"].itemsize):
        raise RuntimeError("this version of hnswlib has an unknown memory layout")
    return index


def take_state(index: "hnswlib.Index") -> dict[str, Any]:
    """The state of an index as copied arrays. The index must not change meanwhile."""
    # The state that hnswlib offers for pickling, without pickle: `save_index` reports no errors, and `load_index`
    # trusts its input.
    state: dict[str, Any] = index.__getstate__()[0]
    return state


def load_index(links: Links, elements: NDArray[Any], settings: GraphSettings, capacity: int) -> "hnswlib.Index":
    """Creates an index from validated links, and elements with their projected vectors."""
    import hnswlib

    empty = take_state(new_index(elements["vector"].shape[1], settings, 1))
    state = empty | {
        "ep_added": True,
        "max_elements": capacity,
        "cur_element_count": len(links),
        "max_level": int(links.levels.max()),
        "enterpoint_node": links.entry,
        "has_deletions": bool(links.deleted.any()),
        "label_lookup_external": links.passage_ids.astype(np.uint64),
        "label_lookup_internal": np.arange(len(links), dtype=np.uint32),
        "element_levels": links.levels,
        "data_level0": elements.view(np.int8),
        "link_lists": np.ascontiguousarray(links.upper).view(np.int8).reshape(-1),
    }
    return hnswlib.Index(state)


def links_of(
    state: dict[str, Any], elements: NDArray[Any], fingerprints: NDArray[np.uint32], projection: Projection
) -> Links:
    """Extracts the links from the state of an index."""
    count, m = state["cur_element_count"], state["M"]
    return Links(
        passage_ids=elements["label"].astype(np.int64),
        fingerprints=fingerprints,
        levels=state["element_levels"][:count].astype(np.int32),
        ground=elements["links"].copy(),
        upper=state["link_lists"].view(np.uint32).reshape(-1, 1 + m).copy(),
        directions=projection.directions,
        entry=int(state["enterpoint_node"]),
    )


def _check_lists(lists: NDArray[np.uint32], level: NDArray[np.int32], levels: NDArray[np.int32]) -> None:
    """Checks that every link leads to a row that has a list on the same level."""
    # In chunks, because the allocator would not return the memory of large temporary arrays.
    for start in range(0, len(lists), _CHUNK_ROWS):
        part = slice(start, start + _CHUNK_ROWS)
        _check_part(lists[part], level[part], levels)


def _check_part(lists: NDArray[np.uint32], level: NDArray[np.int32], levels: NDArray[np.int32]) -> None:
    counts = lists[:, 0] & _COUNT
    if (counts >= lists.shape[1]).any():
        raise LinksError("a list of links is too long")
    used = np.arange(lists.shape[1] - 1) < counts[:, None]
    rows = lists[:, 1:][used]
    if (rows >= len(levels)).any():
        raise LinksError("a link points outside the graph")
    if (levels[rows] < np.repeat(level, counts)).any():
        raise LinksError("a link points to a row that is not on its level")
