"""Restores a graph from the links of a snapshot and the vectors of the records."""

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
    """Restores the snapshot's graph, and updates it for vectors that were removed or missed in between.

    Vectors newer than all of the snapshot's are not added here. `note` is called with the number of vectors so far.

    Raises:
        SnapshotStaleError: the snapshot was made of other vectors.
    """
    elements = np.empty(len(links), element_type(len(links.directions), settings.m))
    alive = _fill_alive(links, vectors, elements["vector"], note)
    if (alive & links.deleted).any():
        raise SnapshotStaleError("it marks vectors as deleted that exist")
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
    """Projects the vectors that still exist, and returns which rows they are."""
    projection, alive = Projection(links.directions), np.zeros(len(links), np.bool_)
    for start in range(0, len(links), _CHUNK_ROWS):
        wanted = links.passage_ids[start : start + _CHUNK_ROWS]
        ids, held = vectors.select(wanted)
        rows = start + np.flatnonzero(np.isin(wanted, ids))
        if (fingerprints(held) != links.fingerprints[rows]).any():
            raise SnapshotStaleError("it was made from other vectors")
        target[rows], alive[rows] = projection.apply(held), True
        note(start + len(wanted))
    return alive


def _with_ids_freed(links: Links, alive: NDArray[np.bool_]) -> Links:
    """The links with new ids for rows whose vectors no longer exist.

    If the records were restored from a backup but the snapshot was not, their ids are assigned again.
    """
    rows = np.arange(len(links))
    return replace(links, passage_ids=np.where(alive, links.passage_ids, FREE_IDS_FROM + rows))


def _fill_gone(links: Links, target: NDArray[np.float32], alive: NDArray[np.bool_]) -> None:
    """Supplies vectors for rows whose own vectors no longer exist, so that searches can pass through them.

    The mean of a row's neighbours, scaled to their length, is close enough to the lost vector.
    """
    for row in np.flatnonzero(~alive):
        rows = links.neighbours(int(row))
        near = target[rows[alive[rows]]]
        total = near.sum(axis=0)
        length = float(np.linalg.norm(near, axis=1).sum()) / max(len(near), 1)
        target[row] = total * (length / max(float(np.linalg.norm(total)), 1e-12))
