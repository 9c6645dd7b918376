"""The timeline on SQLite and segments: events are committed to records.db and moved to segment files."""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from datetime import datetime

from mnemon_server.domain.clock import Clock
from mnemon_server.domain.errors import IndexWarmingError, MnemonError
from mnemon_server.domain.events import (
    CompactionProgress,
    EventPosition,
    EventReceipt,
    EventSelection,
    EventsStatus,
    PruneReason,
    RangeSummary,
    StoredEvent,
)
from mnemon_server.domain.records import RequestKey, SearchMode
from mnemon_server.engines.events.format.files import OsFiles
from mnemon_server.engines.events.index.index import TimelineIndex
from mnemon_server.engines.events.rows import status as timeline_status
from mnemon_server.engines.events.rows.appends import Appends
from mnemon_server.engines.events.rows.bodies import BodyReader
from mnemon_server.engines.events.rows.duplicates import Duplicates
from mnemon_server.engines.events.rows.incoming import prepare
from mnemon_server.engines.events.rows.ledger import Ledger
from mnemon_server.engines.events.rows.manifest import SQLiteManifest
from mnemon_server.engines.events.rows.prunes import Prunes, note_health, removal
from mnemon_server.engines.events.rows.reads import Reads
from mnemon_server.engines.events.rows.text import StoredTexts, TextIndex
from mnemon_server.engines.events.rows.text_work import EmbedTexts
from mnemon_server.engines.events.settings import DEFAULT_TIMELINE, EventEngineSettings
from mnemon_server.engines.events.upkeep.maintenance_thread import MaintenanceThread
from mnemon_server.engines.promises.events import (
    EventsWarning,
    EventWrite,
    Expired,
    Sequences,
    TextScores,
    WindowSlice,
)
from mnemon_server.engines.promises.values import Fits, Vector
from mnemon_server.engines.sqlite import requests
from mnemon_server.engines.sqlite.connections import Connections, Follower
from mnemon_server.engines.sqlite.journal import Journal
from mnemon_server.engines.vault_key import SEGMENTS, VaultKeyFile
from mnemon_server.ranking.settings import DEFAULT_RANKING, RankingSettings


class TimelineRecords:
    """The timeline's followers of transactions in records.db. They are created before the file is opened."""

    def __init__(self, journal: Journal, connections: Connections) -> None:
        self.journal = journal
        self.connections = connections
        self.index = TimelineIndex()
        self.ledger = Ledger(self.index)
        self.manifest = SQLiteManifest(journal, self.ledger, connections)

    @property
    def followers(self) -> tuple[Follower, ...]:
        """The followers, in the order in which they are notified."""
        return self.ledger, self.manifest


def make_maintenance(
    keys: VaultKeyFile, records: TimelineRecords, clock: Clock, settings: EventEngineSettings = DEFAULT_TIMELINE
) -> MaintenanceThread:
    """The thread that maintains the segments of a vault; see SQLiteEvents for the arguments."""
    key = keys.find()
    return MaintenanceThread(
        files=OsFiles(keys.folder / "timeline", key.cipher(SEGMENTS) if key else None),
        quarantine=OsFiles(keys.folder / "quarantine"),
        manifest=records.manifest,
        index=records.index,
        clock=clock,
        settings=settings,
    )


class SQLiteEvents:
    """See Timeline."""

    def __init__(
        self,
        keys: VaultKeyFile,
        records: TimelineRecords,
        *,
        clock: Clock,
        settings: EventEngineSettings,
        ranking: RankingSettings = DEFAULT_RANKING,
        model_identity: str = "",
        embed: EmbedTexts | None = None,
    ) -> None:
        """Starts to load the index in the background.

        Args:
            keys: the vault's key, in its folder; segments are in `timeline`, copies of damaged ones in `quarantine`.
            records: the timeline's followers; their connections are open.
            clock: the current time.
            settings: when segments are sealed, and further settings.
            ranking: how events are ranked by a text.
            model_identity: the model that `embed` runs.
            embed: computes the vectors of events, in the background; None leaves events without vectors.
        """
        index, ledger = records.index, records.ledger
        self._records = records
        self._index = index
        self._connections = records.connections
        self._maintenance = make_maintenance(keys, records, clock, settings)
        bodies = BodyReader(
            index, ledger, records.connections, self._maintenance.store.readers, self._maintenance.repair
        )
        self._reads = Reads(index, bodies, settings.slice_reads_max)
        duplicates = Duplicates(index, bodies, self._maintenance.repair_soon)
        self._appends = Appends(records.journal, ledger, duplicates, settings)
        self._prunes = Prunes(records.journal, ledger, index, records.connections.removals)
        self._texts = TextIndex(
            keys,
            StoredTexts(index, bodies, records.connections, ranking.heads),
            epoch=records.manifest.epoch,
            model_identity=" ".join((model_identity, *ranking.heads.keys)),
            embed=embed,
            wait_until_warm=self._maintenance.wait_until_warm,
            ranking=ranking,
        )
        ledger.listen(self._note_appended, self._note_removed)
        self._maintenance.start()
        self._texts.start()

    @property
    def is_warm(self) -> bool:
        """See Timeline."""
        return self._maintenance.is_warm

    @property
    def has_embeddings(self) -> bool:
        """See Timeline."""
        return self._texts.has_vectors

    def wait_until_warm(self, timeout_s: float) -> bool:
        """See Timeline."""
        return self._maintenance.wait_until_warm(timeout_s)

    # Writes

    def append(self, writes: Sequence[EventWrite]) -> Future[list[EventReceipt | MnemonError]]:
        """See Timeline."""
        self._check_warm()
        events = [prepare(write) for write in writes]
        return self._connections.submit(lambda connection: self._appends.run(connection, events))

    def prune(
        self,
        events: Sequence[StoredEvent],
        reason: PruneReason,
        *,
        answer: Callable[[], str] | None = None,
        request: RequestKey | None = None,
    ) -> Future[int]:
        """See Timeline."""
        self._check_warm()
        removals = [removal(stored) for stored in events]
        return self._connections.submit(
            lambda connection: self._prunes.run(connection, removals, reason, answer, request)
        )

    def warn(self, warning: EventsWarning | None) -> Future[None]:
        """See Timeline."""
        self._check_warm()
        return self._connections.submit(lambda connection: note_health(connection, self._records.journal, warning))

    # Reads

    def window(self, where: EventSelection, *, after: EventPosition | None = None, limit: int) -> WindowSlice:
        """See Timeline."""
        return self._warm_reads().window(where, after, limit)

    def window_at_once(
        self, where: EventSelection, *, after: EventPosition | None = None, limit: int
    ) -> WindowSlice | None:
        """See Timeline."""
        return self._warm_reads().window_at_once(where, after, limit)

    def count(self, where: EventSelection) -> int:
        """See Timeline."""
        return self._warm_reads().count(where)

    def get(self, event_ids: Sequence[str], *, fits: Fits | None = None) -> list[StoredEvent | None]:
        """See Timeline."""
        return self._warm_reads().get(event_ids, fits)

    def summarize(self, where: EventSelection) -> RangeSummary:
        """See Timeline."""
        return self._warm_reads().summarize(where)

    def sequences(self, where: EventSelection) -> Sequences:
        """See Timeline."""
        return self._warm_reads().sequences(where)

    def read(self, sequences: Sequence[int], *, bytes_max: int | None = None) -> list[StoredEvent]:
        """See Timeline."""
        return self._warm_reads().read(sequences, bytes_max)

    def expired(self, before: datetime, *, limit: int) -> Expired:
        """See Timeline."""
        return self._warm_reads().expired(before, limit)

    def kept_answer(self, request: RequestKey) -> str | None:
        """See Timeline."""
        self._check_warm()
        with self._connections.lend() as connection:
            answer = requests.stored_answer(connection, request, self._records.journal.now())
        return None if answer is None else str(answer["answer"])

    def search_text(self, query: str, vector: Vector | None, among: Sequences, mode: SearchMode) -> TextScores:
        """See Timeline."""
        self._check_warm()
        return self._texts.search(query, vector, among, mode)

    # Status and maintenance

    def compact(self, report: Callable[[CompactionProgress], None]) -> CompactionProgress:
        """See Timeline."""
        self._check_warm()
        return self._maintenance.compact(report)

    def scrub(self) -> None:
        """See Timeline."""
        self._check_warm()
        self._maintenance.scrub()

    def status(self) -> EventsStatus:
        """See Timeline."""
        return timeline_status.status(self._index, self._reads, self._connections, self._maintenance, self._texts)

    def failure(self) -> str | None:
        """See Timeline."""
        return self._maintenance.failure()

    def close(self) -> None:
        """See Timeline."""
        self._texts.close()
        self._maintenance.close()

    def _note_appended(self, byte_count: int) -> None:
        self._maintenance.appended(byte_count)
        self._texts.appended()

    def _note_removed(self, sequences: Collection[int]) -> None:
        self._maintenance.pruned()
        self._texts.removed(sequences)

    def _warm_reads(self) -> Reads:
        self._check_warm()
        return self._reads

    def _check_warm(self) -> None:
        if not self._maintenance.is_warm:
            raise IndexWarmingError("the timeline is loading; try again in a moment")
