"""A vault in one SQLite file: one writer for all collections and the event log, readers beside it."""

import threading
from collections.abc import Callable, Container, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import apsw

from mnemon_server.domain.clock import Clock, system_clock
from mnemon_server.domain.collections import COLLECTIONS, Collection
from mnemon_server.domain.errors import EmbeddingModelMismatchError
from mnemon_server.domain.records import RequestKey
from mnemon_server.engines.folder import FolderLock
from mnemon_server.engines.hnsw import DEFAULT_GRAPH, GraphSettings
from mnemon_server.engines.promises.timeline import SLICE_READS_MAX
from mnemon_server.engines.promises.vault import TransactionReceipt, VaultTransaction
from mnemon_server.engines.sqlite import requests, values
from mnemon_server.engines.sqlite.change_log import SQLiteChangeLog
from mnemon_server.engines.sqlite.connections import Connections, Follower
from mnemon_server.engines.sqlite.documents import DocumentTable
from mnemon_server.engines.sqlite.journal import Journal
from mnemon_server.engines.sqlite.mutations import Mutations
from mnemon_server.engines.sqlite.records import SQLiteCollection
from mnemon_server.engines.sqlite.scanners import VectorScanners
from mnemon_server.engines.sqlite.transactions import Transactions
from mnemon_server.engines.sqlite.write_ahead_log import LIFE_S
from mnemon_server.engines.timeline.engine import SQLiteTimeline, TimelineRecords
from mnemon_server.engines.timeline.rows.text_work import EmbedTexts
from mnemon_server.engines.timeline.settings import TimelineSettings
from mnemon_server.ranking.fusion import DEFAULT_FUSION, Fusion
from mnemon_server.ranking.keyword_context import CONTEXT_WEIGHT

DEFAULT_TIMELINE = TimelineSettings()


class SQLiteVault:
    """Keeps everything in `records.db` of a folder that this process holds alone."""

    def __init__(
        self,
        folder: Path,
        *,
        model_identity: str,
        dimension: int,
        clock: Clock = system_clock,
        vector_cache_bytes_max: int = 256 << 20,
        graph: GraphSettings = DEFAULT_GRAPH,
        graphs_of: Container[Collection] = COLLECTIONS,
        timeline: TimelineSettings = DEFAULT_TIMELINE,
        slice_reads_max: int = SLICE_READS_MAX,
        embed_events: EmbedTexts | None = None,
        context_weight: float = CONTEXT_WEIGHT,
        fusion: Fusion = DEFAULT_FUSION,
        erasure_delay_s: float = LIFE_S,
        vfs: str | None = None,
    ) -> None:
        """Opens the folder, creating what is missing; records of an older format are brought to the newest.

        Args:
            folder: where `records.db` lies; created with mode 0700.
            model_identity: the embedding model of all vectors here, each of `dimension` components.
            clock: the time of commits and of the lifetime of request ids.
            vector_cache_bytes_max: a collection's vectors are held in memory up to this size; so is a graph of them.
            graph, graphs_of: when and how a graph of vectors is built, and of which collections.
            timeline: when its segments are sealed, and so on; `slice_reads_max` is explained at SLICE_READS_MAX.
            embed_events: makes the vectors of events, of that model, called in the background; None: they get none.
            context_weight, fusion: how words count for the next passage, and for the relevance of an event.
            erasure_delay_s: so long after it was removed, nothing of it is in the log of records.db any more.
            vfs: the name of a registered SQLite VFS for records.db; None: the operating system's.

        Raises:
            ConfigurationError: another process holds the folder, the file is not ours, or its format is newer.
            EmbeddingModelMismatchError: the vectors stored here are another model's.
            StorageFailedError: the file cannot be read.
        """
        self._lock = FolderLock(folder)
        journal = Journal(clock)
        self._listeners = _Listeners()
        self._connections = Connections(folder / "records.db", vfs, erasure_delay_s=erasure_delay_s)
        self._changes = SQLiteChangeLog(journal, self._connections)
        self._scanners = VectorScanners(
            folder,
            self._connections,
            model_identity=model_identity,
            dimension=dimension,
            bytes_max=vector_cache_bytes_max,
            graph=graph,
            graphs_of=graphs_of,
            clock=clock,
        )
        self._context_weight = context_weight
        self._collections: dict[Collection, SQLiteCollection] = {}
        mutations = {collection: self._add(collection, journal) for collection in COLLECTIONS}
        self._transactions = Transactions(journal, mutations)
        records = TimelineRecords(journal, self._connections)
        # The model is checked before its vectors are read.
        self._open([_Housekeeping(model_identity, journal), *mutations.values(), *records.followers, journal])
        self._timeline = SQLiteTimeline(
            folder,
            records,
            clock=clock,
            settings=timeline,
            reads_max=slice_reads_max,
            model_identity=model_identity,
            embed=embed_events,
            context_weight=context_weight,
            fusion=fusion,
        )

    def _open(self, followers: Sequence[Follower]) -> None:
        """Opens the file. The journal comes last, then the listeners: the log tells only of what can be found."""
        try:
            self._connections.open([*followers, self._listeners])
        except BaseException:
            self._scanners.close(save=False)
            self._lock.close()
            raise

    def _add(self, collection: Collection, journal: Journal) -> Mutations:
        """Makes a collection known; returns its writer's side."""
        table = DocumentTable(collection)
        opening = partial(self._scanners.open, table.tables)
        writing = Mutations(table, journal, self._connections.removals, opening)
        self._collections[collection] = SQLiteCollection(
            table, writing, self._connections, self.subscribe, context_weight=self._context_weight
        )
        return writing

    @property
    def timeline(self) -> SQLiteTimeline:
        """See Vault."""
        return self._timeline

    @property
    def changes(self) -> SQLiteChangeLog:
        """See Vault."""
        return self._changes

    def collection(self, collection: Collection) -> SQLiteCollection:
        """See Vault."""
        return self._collections[collection]

    def transact(
        self, program: Callable[[VaultTransaction], str], *, request: RequestKey | None = None
    ) -> Future[TransactionReceipt]:
        """See Vault."""
        return self._connections.submit(lambda connection: self._transactions.run(connection, program, request))

    def value(self, key: str) -> str | None:
        """See Vault."""
        with self._connections.lend() as connection:
            return values.stored_value(connection, key)

    def subscribe(self, on_commit: Callable[[], None]) -> Callable[[], None]:
        """See Vault."""
        return self._listeners.add(on_commit)

    def failure(self) -> str | None:
        """See Vault."""
        return self._connections.failure()

    def recover(self) -> None:
        """See Vault."""
        self._connections.recover()

    def close(self) -> None:
        """See Vault."""
        # What is done in the background ends before what it works on.
        self._timeline.close()
        self._connections.close()
        # After the last write, so that the snapshots know of it.
        self._scanners.close()
        self._lock.close()


class _Housekeeping:
    """What belongs to the vault as a whole: its model, and the answers to request ids."""

    def __init__(self, model_identity: str, journal: Journal) -> None:
        self._model_identity = model_identity
        self._journal = journal

    def load(self, connection: apsw.Connection) -> None:
        """Records the model of a new store; refuses to open a store of another model."""
        identity = self._model_identity
        with connection:
            connection.execute("INSERT OR IGNORE INTO meta (key, value) VALUES ('embedding_model', ?)", (identity,))
            stored = connection.execute("SELECT value FROM meta WHERE key = 'embedding_model'").get
        if stored != identity:
            raise EmbeddingModelMismatchError(
                f"the vectors stored here were made by {stored}, and the configured model is {identity}: configure the "
                "former again, or embed everything anew with `mnemon-server reembed`"
            )

    def before_commit(self, connection: apsw.Connection) -> None:
        """Forgets answers whose lifetime is over."""
        requests.forget_expired(connection, self._journal.now())

    def after_commit(self) -> None:
        """Nothing is kept beside the file."""

    def after_rollback(self) -> None:
        """Nothing is kept beside the file."""


class _Listeners:
    """Who is told of commits."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._listeners: dict[object, Callable[[], None]] = {}

    def add(self, on_commit: Callable[[], None]) -> Callable[[], None]:
        """Adds one; returns what removes it."""
        key = object()
        with self._changing:
            self._listeners = {**self._listeners, key: on_commit}
        return lambda: self._remove(key)

    def load(self, connection: apsw.Connection) -> None:
        """Nothing of the file matters here."""

    def before_commit(self, connection: apsw.Connection) -> None:
        """Nobody is told before it is true."""

    def after_commit(self) -> None:
        """Tells everybody."""
        for listener in self._listeners.values():
            listener()

    def after_rollback(self) -> None:
        """Nobody is told."""

    def _remove(self, key: object) -> None:
        with self._changing:
            self._listeners = {known: listener for known, listener in self._listeners.items() if known is not key}
