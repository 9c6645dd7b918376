"""A vault in one SQLite file: one writer for all collections and the change log, and concurrent readers."""

import logging
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path

import apsw
import numpy as np

from mnemon_server.domain.backup import BackupStep, Manifest
from mnemon_server.domain.clock import Clock, from_microseconds, system_clock
from mnemon_server.domain.collections import COLLECTIONS, DOCUMENTS, VERSIONS, Collection
from mnemon_server.domain.errors import EmbeddingModelMismatchError, InvalidOperationError
from mnemon_server.domain.history import NO_HISTORY, HistorySettings, current_author
from mnemon_server.domain.records import RequestKey
from mnemon_server.engines.backups.copying import discard_copies
from mnemon_server.engines.backups.parts import back_up
from mnemon_server.engines.events.engine import EventRecords, SQLiteEvents
from mnemon_server.engines.events.settings import DEFAULT_TIMELINE, EventEngineSettings
from mnemon_server.engines.events.text_work import EmbedTexts as EmbedEvents
from mnemon_server.engines.file_scan import scan_files
from mnemon_server.engines.folder import FolderLock
from mnemon_server.engines.master_keys import NO_MASTER_KEYS, MasterKeys
from mnemon_server.engines.past import PastRecords
from mnemon_server.engines.promises.marks import Marks
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import Vector
from mnemon_server.engines.promises.vault import FileScan, TransactionReceipt, VaultTransaction
from mnemon_server.engines.quantized import round_vectors
from mnemon_server.engines.sqlite import history_gaps, requests, tombstones, values
from mnemon_server.engines.sqlite.change_log import SQLiteChangeLog
from mnemon_server.engines.sqlite.connections import Connections
from mnemon_server.engines.sqlite.documents import VECTOR_TYPE, DocumentTable
from mnemon_server.engines.sqlite.follower import Follower
from mnemon_server.engines.sqlite.journal import Journal
from mnemon_server.engines.sqlite.keywords.packing import KeywordPacking
from mnemon_server.engines.sqlite.mutations import Mutations
from mnemon_server.engines.sqlite.query import stored_meta
from mnemon_server.engines.sqlite.records import SQLiteCollection
from mnemon_server.engines.sqlite.scanners import DEFAULT_VECTORS, VectorScanners, VectorSettings
from mnemon_server.engines.sqlite.tables import collection_keywords, store_heads, stored_heads
from mnemon_server.engines.sqlite.transactions import Transactions
from mnemon_server.engines.sqlite.upkeep import shadow
from mnemon_server.engines.sqlite.upkeep.packing import Packing, PackingThread
from mnemon_server.engines.sqlite.upkeep.shadow import NO_SECOND_MODEL, ShadowModel, VaultModels
from mnemon_server.engines.sqlite.upkeep.shadow_thread import ShadowThread
from mnemon_server.engines.sqlite.write_ahead_log import LIFE_S
from mnemon_server.engines.vault_folders import discard_quarantined, set_unfinished
from mnemon_server.engines.vault_key import VaultKeyFile
from mnemon_server.ranking.settings import DEFAULT_RANKING, RankingSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VaultSettings:
    """How a vault is kept."""

    vectors: VectorSettings = DEFAULT_VECTORS
    events: EventEngineSettings = DEFAULT_TIMELINE
    ranking: RankingSettings = DEFAULT_RANKING
    erasure_delay_s: float = LIFE_S
    """Maximum time after which removed data is erased from the write-ahead log of records.db."""
    master: MasterKeys = NO_MASTER_KEYS
    """The cipher of the vault's key. Without one, the key protects from damage, and not from readers."""
    models: VaultModels = NO_SECOND_MODEL
    """The model whose vectors are computed in the background."""
    history: HistorySettings = NO_HISTORY
    """How much of the history is kept."""
    is_durable: bool = True
    """Whether a write waits until the disk has it. Otherwise a crash of the machine may damage the vault."""


DEFAULT_VAULT = VaultSettings()


class SQLiteVault:
    """Stores everything in `records.db` in a folder that this process has locked."""

    def __init__(
        self,
        folder: Path,
        *,
        model_identity: str,
        dimension: int,
        settings: VaultSettings = DEFAULT_VAULT,
        embed_events: EmbedEvents | None = None,
        clock: Clock = system_clock,
        vfs: str | None = None,
    ) -> None:
        """Opens the folder of `records.db`, and creates what is missing, with mode 0700.

        Each vector in the vault has `dimension` components. `embed_events` runs the same model in the background;
        without it, events have no vectors. `vfs` is the name of a registered SQLite VFS for records.db.

        Raises:
            ConfigurationError: another process has locked the folder, or the file is foreign or has another layout.
            EmbeddingModelMismatchError: the stored vectors were made by another model.
            StorageFailedError: the file cannot be read.
        """
        self._lock = FolderLock(folder)
        self._folder, self._clock = folder, clock
        self._backing_up = threading.Lock()
        discard_copies(folder)
        self._journal = journal = Journal(clock)
        self._listeners = _Listeners()
        self.subscribe = self._listeners.add
        """See Vault."""
        self._keys = keys = VaultKeyFile(folder, settings.master, is_durable=settings.is_durable)
        self._connections = Connections(folder / "records.db", keys, vfs, erasure_delay_s=settings.erasure_delay_s)
        self.waiting_writes, self.recover = self._connections.waiting_writes, self._connections.recover
        self.failure = self._connections.failure
        """See Vault."""
        self.changes = SQLiteChangeLog(journal, self._connections)
        self._scanners = VectorScanners(
            keys,
            self._connections,
            model_identity=model_identity,
            dimension=dimension,
            settings=settings.vectors,
            clock=clock,
        )
        self._ranking = settings.ranking
        self._collections: dict[Collection, SQLiteCollection] = {}
        versions = self._add(VERSIONS, journal), settings.history
        mutations = {
            collection: versions[0]
            if collection == VERSIONS
            else self._add(collection, journal, versions if collection.keeps_versions else None)
            for collection in COLLECTIONS
        }
        self._transactions = Transactions(journal, mutations, self._connections.removals)
        records = EventRecords(keys, journal, self._connections)
        self._packing = PackingThread(self._connections, _packings(mutations.values(), dimension))
        # Housekeeping comes first: it checks the model before any vectors are loaded.
        housekeeping = _Housekeeping(model_identity, settings, journal)
        self._shadow = ShadowThread(self._connections, settings.models.shadow)
        self._open([housekeeping, *mutations.values(), records.follower, self._packing, self._shadow, journal])
        self.events = SQLiteEvents(
            records,
            clock=clock,
            settings=settings.events,
            ranking=replace(settings.ranking, heads=self._collections[DOCUMENTS].heads),
            model_identity=model_identity,
            embed=embed_events,
        )
        self._packing.start()
        self._shadow.start()

    def _open(self, followers: Sequence[Follower]) -> None:
        """Opens the file. The journal comes last but one, so the log only has changes that reads can see."""
        try:
            self._connections.open([*followers, self._listeners])
        except BaseException:
            self._scanners.close(save=False)
            self._lock.close()
            raise

    def _add(
        self, collection: Collection, journal: Journal, versions: tuple[Mutations, HistorySettings] | None = None
    ) -> Mutations:
        """Registers a collection; returns its write side."""
        table = DocumentTable(collection)
        opening = partial(self._scanners.open, table.tables)
        writing = Mutations(table, journal, self._connections, opening, versions)
        self._collections[collection] = SQLiteCollection(
            writing, self._connections, self.subscribe, ranking=self._ranking
        )
        return writing

    def collection(self, collection: Collection) -> SQLiteCollection:
        """See Vault."""
        return self._collections[collection]

    def past(self, collection: Collection, at: datetime) -> RecordEngine:
        """See Vault."""
        return PastRecords(self.collection(collection), self.collection(VERSIONS), collection, at)

    def misses_history(self, collection: Collection, at: datetime, owner: str = "") -> bool:
        """See Vault."""
        with self._connections.lend() as connection:
            return history_gaps.is_within(connection, self._journal.origin, collection.name, owner, at)

    def transact(
        self, program: Callable[[VaultTransaction], str], *, request: RequestKey | None = None
    ) -> Future[TransactionReceipt]:
        """See Vault."""
        author = current_author.get()
        return self._connections.submit(lambda connection: self._transactions.run(connection, program, request, author))

    def is_answered(self, request_id: str) -> bool:
        """See Vault."""
        with self._connections.lend() as connection:
            return requests.is_answered(connection, request_id, self._journal.now())

    def value(self, key: str) -> str | None:
        """See Vault."""
        with self._connections.lend() as connection:
            return values.stored_value(connection, key)

    def values(self, prefix: str) -> dict[str, str]:
        """See Vault."""
        with self._connections.lend() as connection:
            return values.stored_values(connection, prefix)

    def answers(self, after: str, *, limit: int) -> list[tuple[str, str]]:
        """See Vault."""
        with self._connections.lend() as connection:
            return requests.answers_after(connection, after, limit)

    def tombstones(self, after: bytes, *, limit: int) -> list[tuple[bytes, datetime]]:
        """See Vault."""
        with self._connections.lend() as connection:
            return [(key, from_microseconds(time)) for key, time in tombstones.page(connection, after, limit)]

    def scan(self, marks: Marks) -> FileScan:
        """See Vault."""
        return scan_files(self._keys, marks)

    def forms_of(self, vector: Vector) -> list[bytes]:
        """See Vault."""
        rounded = round_vectors(vector.reshape(1, -1), np.zeros_like(vector))
        return [vector.astype(VECTOR_TYPE).tobytes(), rounded.codes.tobytes()]

    def discard(self, files: Sequence[str]) -> None:
        """See Vault."""
        discard_quarantined(self._folder, files)

    def set_unfinished(self, *, is_unfinished: bool) -> None:
        """See Vault."""
        set_unfinished(self._folder, is_unfinished=is_unfinished)

    def back_up(self, base: Manifest | None) -> Generator[BackupStep]:
        """See Copyable."""
        if not self._backing_up.acquire(blocking=False):
            raise InvalidOperationError("a backup of this vault is being made; wait until it has ended")
        try:
            yield from back_up(self._folder, self._connections, base, self._clock)
        finally:
            self._backing_up.release()

    def is_shadow_current(self) -> bool:
        """See Vault."""
        return self._shadow.is_current

    def close(self) -> None:
        """See Vault."""
        # Stop the background work first, since it uses what is closed below.
        self._shadow.close()
        self.events.close()
        self._packing.close()
        self._connections.close()
        # After the last write, so that the snapshots include it.
        self._scanners.close()
        self._lock.close()


def _packings(mutations: Iterable[Mutations], dimension: int) -> list[Packing]:
    return [
        *map(KeywordPacking, collection_keywords()),
        *(writing.vector_packing(dimension) for writing in mutations),
    ]


class _Housekeeping(Follower):
    """State of the vault as a whole: its embedding model, and the stored answers for request ids."""

    def __init__(self, model_identity: str, settings: VaultSettings, journal: Journal) -> None:
        self._model_identity = model_identity
        self._embed = settings.models.embed
        self._heads = settings.ranking.heads
        self._history = settings.history
        self._journal = journal

    def load(self, connection: apsw.Connection) -> None:
        """Records the model of a new store. Refuses to open a store that has no vectors of the model."""
        identity = self._model_identity
        with connection:
            connection.execute("INSERT OR IGNORE INTO meta (key, value) VALUES ('embedding_model', ?)", (identity,))
            if is_new := bool(connection.changes()):
                store_heads(connection, self._heads)
            history_gaps.begin(connection, self._history, now=self._journal.now(), is_new=is_new)
            stored = stored_meta(connection, "embedding_model")
        if (heads := stored_heads(connection)) != self._heads:
            log.warning(
                "this vault embeds and indexes the metadata keys %s, and search_metadata_keys says %s: `mnemon-server "
                "reembed` changes it",
                ",".join(heads.keys) or "(none)",
                ",".join(self._heads.keys) or "(none)",
            )
        if stored == identity:
            return
        if self._embed is not None and shadow.is_shadow(connection, identity):
            shadow.exchange(connection, ShadowModel(identity, self._embed))
        else:
            raise EmbeddingModelMismatchError(
                f"the vectors stored here were made by {stored}, and the configured model is {identity}: configure "
                f"{stored.partition('@')[0]} again, alone or with the new one as embedding_shadow_model, or replace "
                "all vectors with `mnemon-server reembed`"
            )

    def before_commit(self, connection: apsw.Connection) -> None:
        """Deletes answers whose lifetime has passed."""
        requests.forget_expired(connection, self._journal.now())


class _Listeners(Follower):
    """The callbacks for commits."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._listeners: dict[object, Callable[[], None]] = {}

    def add(self, on_commit: Callable[[], None]) -> Callable[[], None]:
        """Adds a callback; returns a function that removes it."""
        key = object()
        with self._changing:
            self._listeners = {**self._listeners, key: on_commit}
        return lambda: self._remove(key)

    def after_commit(self) -> None:
        """Calls all listeners."""
        for listener in self._listeners.values():
            listener()

    def _remove(self, key: object) -> None:
        with self._changing:
            self._listeners = {known: listener for known, listener in self._listeners.items() if known is not key}
