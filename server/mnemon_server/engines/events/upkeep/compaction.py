"""Compaction: erases removed events from the disk, and merges small neighbouring segments."""

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from mnemon_server.domain.events import CompactionProgress
from mnemon_server.engines.events.format.segment_reader import SegmentReader
from mnemon_server.engines.events.index.open_block import OpenColumns
from mnemon_server.engines.events.settings import EventEngineSettings
from mnemon_server.engines.events.upkeep.manifest import SegmentRow
from mnemon_server.engines.events.upkeep.rewriting import Rewriting
from mnemon_server.engines.events.upkeep.store import SegmentStore, Swap, file_name

log = logging.getLogger(__name__)

_RUN = 500
_SPAN_MAX = (1 << 32) - 1
"""Maximum extent of a segment, because a column stores sequences relative to the first."""


class Compaction:
    """One pass over the segments, in steps of a few hundred events."""

    def __init__(
        self,
        store: SegmentStore,
        settings: EventEngineSettings,
        *,
        joined_min: int,
        report: Callable[[CompactionProgress], None] | None = None,
    ) -> None:
        """Does nothing yet.

        Args:
            store: the segments.
            settings: the maximum size of a segment.
            joined_min: minimum number of small neighbours to merge.
            report: called with the progress, until it raises.
        """
        self._store = store
        self._settings = settings
        self._joined_min = joined_min
        self._report = report or _ignore_progress
        self._processed = self._total = self._written = 0
        self._rewritten = 0
        self.progress = CompactionProgress()

    def run(self) -> Iterator[None]:
        """Rewrites the selected segments in short steps.

        Raises:
            SegmentDamagedError: a segment is damaged and must be repaired first; then start again.
            StorageFullError: the disk is full.
            StorageFailedError: the disk failed, or the data read back differs from the data written.
        """
        groups = self._groups()
        self._total = sum(row.byte_count for group in groups for row in group)
        for group in groups:
            yield from self._rewrite(group)
            self._tell()
        self._tell(done=True)

    def _groups(self) -> list[list[SegmentRow]]:
        """The segments to rewrite: runs of small neighbours, those with removed events, and those to be encrypted."""
        rows, dead = self._store.manifest.segments(), self._store.manifest.dead_counts()
        runs = joinable(rows, self._settings, count_min=self._joined_min)
        joined = {row.segment_id for run in runs for row in run}
        others = [row for row in rows if row.is_sealed and row.segment_id not in joined]
        return [*runs, *([row] for row in others if row.segment_id in dead or self._store.must_encrypt(row))]

    def _rewrite(self, group: Sequence[SegmentRow]) -> Iterator[None]:
        """Replaces neighbouring segments by one segment without their removed events.

        If records.db has changed for them meanwhile, they are left alone; the next pass handles them in their new
        state.
        """
        store = self._store
        if not self._is_known(group):
            return
        dead = {row.segment_id: store.manifest.dead(row.segment_id) for row in group}
        if not any(has_survivors(store, row, dead[row.segment_id]) for row in group):
            store.swap(Swap(removed=group, added=None, erased=dead))
            self._count(group, 0)
            return
        rewriting = Rewriting(store, group[0], self._known(group))
        try:
            for row in group:
                yield from self._copy(row, set(dead[row.segment_id]), rewriting)
            if not self._is_known(group):
                rewriting.abandon()
                return
            added = rewriting.finish()
        except BaseException:
            rewriting.abandon()
            raise
        store.swap(Swap(removed=group, added=added, erased=dead))
        self._count(group, added[0].byte_count if added else 0)

    def _known(self, group: Sequence[SegmentRow]) -> OpenColumns:
        first, index = group[0].segment_id, self._store.index
        return OpenColumns.joined([index.sealed_block(row.segment_id).in_order(first) for row in group])

    def _copy(self, row: SegmentRow, dead: set[int], rewriting: Rewriting) -> Iterator[None]:
        with SegmentReader(self._store.files, file_name(row), epoch=self._store.manifest.epoch) as reader:
            before = self._processed
            frames = reader.frames(to=reader.footer.events_end)
            while run := list(islice(frames, _RUN)):
                rewriting.add([(frame.sequence, frame.body) for frame in run if frame.sequence not in dead])
                self._processed = before + run[-1].end
                self._tell()
                yield
            self._processed = before + row.byte_count

    def _is_known(self, group: Sequence[SegmentRow]) -> bool:
        return set(group) <= set(self._store.manifest.segments())

    def _count(self, group: Sequence[SegmentRow], written: int) -> None:
        self._rewritten += sum(row.byte_count for row in group)
        self._written += written
        log.info("rewrote %d segments as one of %d bytes", len(group), written)

    def _tell(self, *, done: bool = False) -> None:
        self.progress = CompactionProgress(
            processed_bytes=self._total if done else min(self._processed, self._total),
            total_bytes=self._total,
            segment_count=len(self._store.index.segment_ids),
            reclaimed_bytes=max(0, self._rewritten - self._written),
            done=done,
        )
        try:
            self._report(self.progress)
        except Exception:
            log.warning("the progress of the compaction can no longer be reported; it continues", exc_info=True)
            self._report = _ignore_progress


def _ignore_progress(progress: CompactionProgress) -> None:
    """Does nothing."""


def has_survivors(store: SegmentStore, row: SegmentRow, dead: Sequence[int]) -> bool:
    """Whether a sealed segment has events that are not among the removed ones."""
    if len(dead) < row.event_count:
        return True
    # Events that were removed before the segment was written are marked as well.
    return bool(set(store.index.sealed_block(row.segment_id).all_sequences()).difference(dead))


def joinable(rows: Sequence[SegmentRow], settings: EventEngineSettings, *, count_min: int) -> list[list[SegmentRow]]:
    """Runs of at least `count_min` sealed neighbours, each less than half full, that fit into one segment."""
    runs: list[list[SegmentRow]] = []
    run: list[SegmentRow] = []
    for row in rows:
        small = row.is_sealed and _fits([row, row], settings)
        if not small or not _fits([*run, row], settings):
            runs.append(run)
            run = []
        if small:
            run.append(row)
    return [run for run in [*runs, run] if len(run) >= count_min]


def _fits(run: Sequence[SegmentRow], settings: EventEngineSettings) -> bool:
    return (
        sum(row.byte_count for row in run) <= settings.segment_bytes_max
        and sum(row.event_count for row in run) <= settings.segment_events_max
        and run[-1].last_sequence - run[0].segment_id < _SPAN_MAX
    )
