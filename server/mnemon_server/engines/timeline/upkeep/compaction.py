"""Compaction: what was removed leaves the disk, and small neighbours become one segment."""

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from mnemon_server.domain.episodic import CompactionProgress
from mnemon_server.engines.timeline.format.segment_reader import SegmentReader
from mnemon_server.engines.timeline.index.open_block import OpenColumns
from mnemon_server.engines.timeline.settings import TimelineSettings
from mnemon_server.engines.timeline.upkeep.manifest import SegmentRow
from mnemon_server.engines.timeline.upkeep.rewriting import Rewriting
from mnemon_server.engines.timeline.upkeep.store import SegmentStore, Swap, file_name

log = logging.getLogger(__name__)

_RUN = 500
_SPAN_MAX = (1 << 32) - 1
"""A column holds sequences as distances from the first."""


class Compaction:
    """One pass over the segments, in steps of a few hundred events."""

    def __init__(
        self,
        store: SegmentStore,
        settings: TimelineSettings,
        *,
        joined_min: int,
        report: Callable[[CompactionProgress], None] | None = None,
    ) -> None:
        """Looks at nothing yet.

        Args:
            store: the segments.
            settings: how large a segment may become.
            joined_min: so many small neighbours at least are joined.
            report: is told how far it is, until it raises.
        """
        self._store = store
        self._settings = settings
        self._joined_min = joined_min
        self._report = report or _tell_nobody
        self._processed = self._total = self._written = 0
        self._rewritten = 0
        self.progress = CompactionProgress()

    def run(self) -> Iterator[None]:
        """Rewrites what is to be rewritten; each step is short.

        Raises:
            SegmentDamagedError: a segment is damaged, and is to be repaired first; then this begins anew.
            StorageFullError: no space is left.
            StorageFailedError: the disk failed, or what was read back is not what was written.
        """
        groups = self._groups()
        self._total = sum(row.byte_count for group in groups for row in group)
        for group in groups:
            yield from self._rewrite(group)
            self._tell()
        self._tell(done=True)

    def _groups(self) -> list[list[SegmentRow]]:
        """What is rewritten: runs of small neighbours, and segments with removed events."""
        rows, dead = self._store.manifest.segments(), self._store.manifest.dead_counts()
        runs = joinable(rows, self._settings, count_min=self._joined_min)
        joined = {row.segment_id for run in runs for row in run}
        holed = [row for row in rows if row.is_sealed and row.segment_id in dead]
        return [*runs, *([row] for row in holed if row.segment_id not in joined)]

    def _rewrite(self, group: Sequence[SegmentRow]) -> Iterator[None]:
        """Puts one segment in the place of neighbours, without what was removed of them.

        Where records.db says something else of them meanwhile, they stay: the next pass finds them as they are then.
        """
        store = self._store
        if not self._is_known(group):
            return
        dead = {row.segment_id: store.manifest.dead(row.segment_id) for row in group}
        if not any(self._has_survivors(row, dead[row.segment_id]) for row in group):
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

    def _has_survivors(self, row: SegmentRow, dead: Sequence[int]) -> bool:
        # Not by numbers: what was removed before it was written is marked as well.
        return bool(set(self._store.index.sealed_block(row.segment_id).all_sequences()).difference(dead))

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
            log.warning("nobody listens to the compaction any more; it goes on", exc_info=True)
            self._report = _tell_nobody


def _tell_nobody(progress: CompactionProgress) -> None:
    """Does nothing."""


def joinable(rows: Sequence[SegmentRow], settings: TimelineSettings, *, count_min: int) -> list[list[SegmentRow]]:
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


def _fits(run: Sequence[SegmentRow], settings: TimelineSettings) -> bool:
    return (
        sum(row.byte_count for row in run) <= settings.segment_bytes_max
        and sum(row.event_count for row in run) <= settings.segment_events_max
        and run[-1].last_sequence - run[0].segment_id < _SPAN_MAX
    )
