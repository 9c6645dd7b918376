"""The timeline on SQLite: events are committed to records.db, and moved to the files of sealed segments."""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TypeVar

import apsw

from mnemon_server.domain.clock import Clock, from_microseconds
from mnemon_server.domain.errors import IndexWarmingError, MnemonError
from mnemon_server.domain.events import (
    CompactionProgress,
    EventReceipt,
    EventsState,
    EventsStatus,
    PruneReason,
    StoredEvent,
)
from mnemon_server.domain.records import RequestKey, SearchMode
from mnemon_server.engines.events import tables
from mnemon_server.engines.events.catalogue import Catalogue, Snapshot
from mnemon_server.engines.events.incoming import prepare
from mnemon_server.engines.events.reads import Reads
from mnemon_server.engines.events.segment_files import SegmentFiles
from mnemon_server.engines.events.segments import SegmentStore
from mnemon_server.engines.events.settings import DEFAULT_TIMELINE, EventEngineSettings
from mnemon_server.engines.events.tables import SegmentState
from mnemon_server.engines.events.text import TextIndex
from mnemon_server.engines.events.text_work import EmbedTexts, StoredTexts
from mnemon_server.engines.events.upkeep import Upkeep
from mnemon_server.engines.events.writes import EventFollower, EventWrites, removal
from mnemon_server.engines.promises.events import (
    EventWrite,
    Sequences,
    TextScores,
)
from mnemon_server.engines.promises.values import Vector
from mnemon_server.engines.sqlite import requests
from mnemon_server.engines.sqlite.connections import Connections
from mnemon_server.engines.sqlite.journal import Journal
from mnemon_server.engines.vault_key import VaultKeyFile
from mnemon_server.ranking.settings import DEFAULT_RANKING, RankingSettings

T = TypeVar("T")


class EventRecords:
    """The events of a vault whose records.db is about to be opened."""

    def __init__(self, keys: VaultKeyFile, journal: Journal, connections: Connections) -> None:
        """Opens nothing yet. The connections to records.db are to be opened with `follower`."""
        self.keys = keys
        self.journal = journal
        self.connections = connections
        self.follower = EventFollower()
        self.catalogue = Catalogue(SegmentFiles(keys))
        self.store = SegmentStore(self.catalogue.files, self.catalogue, connections, journal)

    def upkeep(self, clock: Clock, settings: EventEngineSettings = DEFAULT_TIMELINE) -> Upkeep:
        """The maintenance of these events, to be started once the connections are open."""
        return Upkeep(self.store, self.connections, self.journal, clock=clock, settings=settings)


class SQLiteEvents(Reads):
    """See EventEngine."""

    def __init__(
        self,
        records: EventRecords,
        *,
        clock: Clock,
        settings: EventEngineSettings,
        ranking: RankingSettings = DEFAULT_RANKING,
        model_identity: str = "",
        embed: EmbedTexts | None = None,
    ) -> None:
        """Starts to read the summaries of the segments in the background. The connections of `records` are open.

        `embed` runs the model in the background; without it, events have no vectors.
        """
        journal, catalogue, follower = records.journal, records.catalogue, records.follower
        self._records = records
        self._upkeep = records.upkeep(clock, settings)
        self.wait_until_warm, self.failure = self._upkeep.wait_until_warm, self._upkeep.failure
        self.has_embeddings = embed is not None
        """See EventEngine."""
        super().__init__(catalogue, records.connections, self._upkeep.repair, settings.slice_reads_max)
        self._writes = EventWrites(
            journal, catalogue, follower, records.connections.removals, settings, self._upkeep.repair_soon
        )
        self._texts = TextIndex(
            records.keys,
            StoredTexts(self, records.connections, ranking.heads),
            origin=journal.origin,
            model_identity=" ".join((model_identity, *ranking.heads.keys)),
            embed=embed,
            wait_until_warm=self._upkeep.wait_until_warm,
            ranking=ranking,
        )
        follower.listen(self._note_appended, self._note_removed)
        self._upkeep.start()
        self._texts.start()

    @property
    def is_warm(self) -> bool:
        """See EventEngine."""
        return self._upkeep.is_warm

    # Writes

    def append(self, writes: Sequence[EventWrite]) -> Future[list[EventReceipt | MnemonError]]:
        """See EventEngine."""
        self._check_warm()
        events = [prepare(write) for write in writes]
        return self._connections.submit(lambda connection: self._writes.append(connection, events))

    def prune(
        self,
        events: Sequence[StoredEvent],
        reason: PruneReason,
        *,
        answer: Callable[[], str] | None = None,
        request: RequestKey | None = None,
    ) -> Future[int]:
        """See EventEngine."""
        self._check_warm()
        removals = [removal(stored) for stored in events]
        return self._connections.submit(
            lambda connection: self._writes.prune(connection, removals, reason, answer, request)
        )

    # Reads, in addition to those inherited from Reads

    def at_once(self, read: Callable[[Snapshot], T]) -> T:
        """See Reads. Raises IndexWarmingError until the timeline is warm."""
        self._check_warm()
        return super().at_once(read)

    def may_record(self, origin: str) -> bool:
        """See EventEngine."""
        return True

    def get_stored(self, event_ids: Sequence[str]) -> list[StoredEvent | None]:
        """See EventEngine."""
        return self.get(event_ids)

    def kept_answer(self, request: RequestKey) -> str | None:
        """See EventEngine."""
        self._check_warm()
        with self._connections.lend() as connection:
            answer = requests.stored_answer(connection, request, self._records.journal.now())
        return None if answer is None else str(answer["answer"])

    def search_text(self, query: str, vector: Vector | None, among: Sequences, mode: SearchMode) -> TextScores:
        """See EventEngine."""
        self._check_warm()
        return self._texts.search(query, vector, among, mode)

    # Status and maintenance

    def compact(self, report: Callable[[CompactionProgress], None]) -> CompactionProgress:
        """See EventEngine."""
        self._check_warm()
        return self._upkeep.compact(report)

    def scrub(self) -> None:
        """See EventEngine."""
        self._check_warm()
        self._upkeep.scrub()

    def status(self) -> EventsStatus:
        """See EventEngine."""
        upkeep, is_warm = self._upkeep, self._upkeep.is_warm
        problem = self._connections.failure() or ""
        stored = EventsStatus(state=EventsState.STARTING, loaded_segment_count=upkeep.loaded_count)
        try:
            stored = self._stored(stored)
            if is_warm:
                earliest, latest = self.ends()
                pending = self._texts.pending_count
                stored = replace(stored, earliest=earliest, latest=latest, text_pending_count=pending)
        except (MnemonError, apsw.Error):
            problem = problem or "the records cannot be read; the log says why"
        message = problem or upkeep.failure() or ""
        state = EventsState.DEGRADED if message else EventsState.READY
        return replace(stored, message=message, state=state if is_warm else EventsState.STARTING)

    def _stored(self, status: EventsStatus) -> EventsStatus:
        """The status with what records.db says."""
        # Each of them may still contain the same removed events, so the largest count applies. What is read first can
        # only make it larger.
        removed = max(self._records.store.erasing_count, self._texts.removed_count, self._connections.removals.events)
        with self._connections.lend() as connection:
            snapshot = self._records.catalogue.snapshot(connection)
            sealed, unsealed = snapshot.sealed.segments, snapshot.unsealed
            scrub_time_us = tables.scrub_time_us(connection)
            return replace(
                status,
                event_count=snapshot.event_count,
                segment_count=len(sealed) + len(unsealed),
                active_segment_id=next((row.segment_id for row in unsealed if row.state is SegmentState.OPEN), 0),
                segment_bytes=sum(row.byte_count for row in (*(each.row for each in sealed), *unsealed)),
                unsealed_count=sum(row.event_count for row in unsealed),
                index_bytes=self._records.catalogue.nbytes,
                removal_pending_count=max(removed, sum(len(each.dead) for each in sealed)),
                lost=tables.lost_ranges(connection),
                scrub_time=None if scrub_time_us is None else from_microseconds(scrub_time_us),
            )

    def close(self) -> None:
        """See EventEngine."""
        self._texts.close()
        self._upkeep.close()

    def _note_appended(self) -> None:
        self._upkeep.appended()
        self._texts.appended()

    def _note_removed(self, sequences: Collection[int]) -> None:
        self._upkeep.pruned()
        self._texts.removed(sequences)

    def _check_warm(self) -> None:
        if not self._upkeep.is_warm:
            raise IndexWarmingError("the timeline is loading; try again in a moment")
