"""The local vector index: exact scans in memory, a graph once there are enough vectors, and snapshots of the graph.

Start with `LocalVectors`. `maintenance.py` maintains the graph in the background, `graph.py` guards hnswlib with a fair
lock, `projection.py` reduces a vector to a third of its components for the graph, `links.py` represents the graph as
arrays, and `snapshots.py` stores those in files.
"""

from mnemon_server.engines.hnsw.local_vectors import LocalVectors
from mnemon_server.engines.hnsw.settings import DEFAULT_GRAPH, GRAPHS_INSTALLED, GraphSettings
from mnemon_server.engines.hnsw.snapshots import SnapshotFolder, SnapshotIdentity

__all__ = ["DEFAULT_GRAPH", "GRAPHS_INSTALLED", "GraphSettings", "LocalVectors", "SnapshotFolder", "SnapshotIdentity"]
