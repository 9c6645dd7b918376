"""A graph out of the links of a snapshot and the vectors of the records."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.hnsw.graph import Graph, fingerprints, load_graph
from mnemon_server.engines.hnsw.links import FREE_IDS_FROM, Links, element_type
from mnemon_server.engines.hnsw.projection import Projection
from mnemon_server.engines.hnsw.settings import GraphSettings
from mnemon_server.engines.hnsw.snapshots import SnapshotStaleError
from mnemon_server.engines.vector_cache import VectorCache

_CHUNK_ROWS = 1_024


def restore_graph(links: Links, vectors: VectorCache, settings: GraphSettings, note: Callable[[int], None]) -> Graph:
    """A graph that knows what is held of what the snapshot linked, and takes up what it missed in between.

    What is newer than everything in the snapshot is not taken up here. `note` is told how many vectors it has so far.

    Raises:
        SnapshotStaleError: the snapshot was made of other vectors.
    """
    elements = np.empty(len(links), element_type(len(links.directions), settings.m))
    alive = _fill_alive(links, vectors, elements["vector"], note)
    if (alive & links.deleted).any():
        raise SnapshotStaleError("vectors are there that it knows as deleted")
    _fill_gone(links, elements["vector"], alive)
    links = _with_ids_freed(links, alive)
    elements["links"], elements["label"] = links.ground, links.passage_ids
    graph = load_graph(settings, links, elements)
    graph.remove(links.passage_ids[~alive].tolist())
    held = vectors.passage_ids
    missing = np.setdiff1d(held[held <= graph.newest], links.passage_ids[alive])
    graph.add(*vectors.select(missing))
    return graph


def _fill_alive(
    links: Links, vectors: VectorCache, target: NDArray[np.float32], note: Callable[[int], None]
) -> NDArray[np.bool_]:
    """Projects the vectors that are still held, and tells which rows they are."""
    projection, alive = Projection(links.directions), np.zeros(len(links), np.bool_)
    for start in range(0, len(links), _CHUNK_ROWS):
        wanted = links.passage_ids[start : start + _CHUNK_ROWS]
        ids, held = vectors.select(wanted)
        rows = start + np.flatnonzero(np.isin(wanted, ids))
        if (fingerprints(held) != links.fingerprints[rows]).any():
            raise SnapshotStaleError("it was made of other vectors")
        target[rows], alive[rows] = projection.apply(held), True
        note(start + len(wanted))
    return alive


def _with_ids_freed(links: Links, alive: NDArray[np.bool_]) -> Links:
    """The links with other ids for rows whose vectors are gone.

    Where the records came out of a backup, and the snapshot did not, their ids are given out again.
    """
    rows = np.arange(len(links))
    return replace(links, passage_ids=np.where(alive, links.passage_ids, FREE_IDS_FROM + rows))


def _fill_gone(links: Links, target: NDArray[np.float32], alive: NDArray[np.bool_]) -> None:
    """Vectors for rows whose own are gone for good, so that searches can still pass through them.

    The mean of its neighbours, made as long as they are, lies near enough to where a lost vector lay.
    """
    for row in np.flatnonzero(~alive):
        rows = links.neighbours(int(row))
        near = target[rows[alive[rows]]]
        total = near.sum(axis=0)
        length = float(np.linalg.norm(near, axis=1).sum()) / max(len(near), 1)
        target[row] = total * (length / max(float(np.linalg.norm(total)), 1e-12))
