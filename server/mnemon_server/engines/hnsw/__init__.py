"""The local vector index: exact scans in memory, a graph beside them once it pays, and its snapshots.

`LocalVectors` is the door. `keeper.py` looks after the graph in the background, `graph.py` guards hnswlib with one fair
lock, `projection.py` leaves a third of a vector's numbers to it, `links.py` is the graph as arrays, and `snapshots.py`
keeps those in files.
"""

from mnemon_server.engines.hnsw.local_vectors import LocalVectors
from mnemon_server.engines.hnsw.settings import DEFAULT_GRAPH, GraphSettings
from mnemon_server.engines.hnsw.snapshots import SnapshotFolder, SnapshotIdentity

__all__ = ["DEFAULT_GRAPH", "GraphSettings", "LocalVectors", "SnapshotFolder", "SnapshotIdentity"]
