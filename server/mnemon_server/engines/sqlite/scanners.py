"""The vector scanners of a vault, one per collection, opened with the file and closed with the vault."""

from collections.abc import Callable, Container
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import apsw

from mnemon_server.domain.clock import Clock
from mnemon_server.domain.collections import COLLECTIONS, Collection
from mnemon_server.engines.hnsw import (
    DEFAULT_GRAPH,
    GRAPHS_INSTALLED,
    GraphSettings,
    LocalVectors,
    SnapshotFolder,
    SnapshotIdentity,
)
from mnemon_server.engines.quantized import QuantizedVectors
from mnemon_server.engines.sqlite.connections import Connections
from mnemon_server.engines.sqlite.tables import Tables
from mnemon_server.engines.sqlite.vectors import MemoryLimits, VectorScanner
from mnemon_server.engines.vault_key import SNAPSHOTS, VaultKeyFile


def _new_rounder() -> Executor:
    return ThreadPoolExecutor(1, "vector-rounder")


@dataclass(frozen=True, slots=True)
class VectorSettings:
    """How the vectors of a vault are kept in memory."""

    cache_bytes_max: int = 256 << 20
    """Maximum size in memory of a collection's vectors, with their graph if they have one."""
    graph: GraphSettings = DEFAULT_GRAPH
    """When and how a graph of vectors is built."""
    graphs_of: Container[Collection] = COLLECTIONS
    """The collections that get a graph."""
    with_graphs: bool = GRAPHS_INSTALLED
    """Whether graphs can be built. If not, vectors are quantized where a graph would be built."""
    full_max: int = 200_000
    """Maximum number of vectors that are held in full. More, or more than fit with their graph, are quantized."""
    new_rounder: Callable[[], Executor] = _new_rounder
    """Creates what quantizes vectors while they are still searched in full."""


DEFAULT_VECTORS = VectorSettings()


class VectorScanners:
    """Opens scanners, also after the file was reopened, and closes them."""

    def __init__(
        self,
        keys: VaultKeyFile,
        connections: Connections,
        *,
        model_identity: str,
        dimension: int,
        settings: VectorSettings,
        clock: Clock,
    ) -> None:
        """Opens nothing yet; see SQLiteVault for the arguments."""
        self._keys = keys
        self._connections = connections
        self._model_identity = model_identity
        self._dimension = dimension
        self._settings = settings
        self._clock = clock
        self._rounder = settings.new_rounder()
        self._open: dict[Collection, VectorScanner] = {}

    def open(self, tables: Tables, connection: apsw.Connection) -> VectorScanner:
        """Opens a scanner of what the connection sees, which replaces the collection's previous one.

        If the previous one was warm, the new one is warm from the start, so that a reopened vault keeps serving.
        """
        former = self._open.pop(tables.collection, None)
        warm = former is not None and former.usage().warm
        if former is not None:
            former.close(save=False)
        scanner = self._open[tables.collection] = VectorScanner(
            tables,
            self._connections,
            connection,
            dimension=self._dimension,
            limits=self._limits_of(tables.collection),
            new_vectors=partial(self._new_vectors, tables.collection),
            rounder=self._rounder,
        )
        if self._settings.with_graphs and tables.collection in self._settings.graphs_of:
            scanner.start_graph(warm=warm)
        return scanner

    def close(self, *, save: bool = True) -> None:
        """Stops all background work. Writes last snapshots if `save` is set."""
        for scanner in self._open.values():
            scanner.close(save=save)
        self._rounder.shutdown()

    def _limits_of(self, collection: Collection) -> MemoryLimits:
        settings, bytes_max = self._settings, self._settings.cache_bytes_max
        full = min(settings.full_max, bytes_max // LocalVectors.bytes_per_vector(self._dimension, settings.graph))
        if collection in settings.graphs_of and not settings.with_graphs:
            full = min(full, settings.graph.graph_min - 1)
        signs = bytes_max // QuantizedVectors.bytes_per_vector(self._dimension, with_codes=False)
        return MemoryLimits(full, signs, bytes_max)

    def _new_vectors(self, collection: Collection, store: str) -> LocalVectors:
        graph = self._settings.graph
        identity = SnapshotIdentity.of(store, self._model_identity, self._dimension, graph)
        folder, key = self._keys.folder / (collection.index_folder or f"index/{collection.name}"), self._keys.find()
        snapshots = SnapshotFolder(
            folder, self._keys.folder / "quarantine", identity, self._clock, key.cipher(SNAPSHOTS) if key else None
        )
        return LocalVectors(self._dimension, graph, snapshots)
