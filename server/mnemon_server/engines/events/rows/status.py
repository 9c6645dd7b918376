"""The status of the timeline, from the index, records.db and the maintenance thread."""

from collections.abc import Mapping
from typing import NamedTuple

import apsw

from mnemon_server.domain.clock import from_microseconds
from mnemon_server.domain.errors import MnemonError
from mnemon_server.domain.events import EventsState, EventsStatus, LostRange
from mnemon_server.engines.events.index.index import TimelineIndex
from mnemon_server.engines.events.rows import segments as timeline_segments
from mnemon_server.engines.events.rows.reads import Reads
from mnemon_server.engines.events.rows.text import TextIndex
from mnemon_server.engines.events.upkeep.maintenance_thread import MaintenanceThread
from mnemon_server.engines.events.upkeep.manifest import SegmentState
from mnemon_server.engines.sqlite.connections import Connections


class _Stored(NamedTuple):
    """The part that comes from records.db."""

    segment_count: int = 0
    active_segment_id: int = 0
    segment_bytes: int = 0
    unsealed_count: int = 0
    removal_pending_count: int = 0
    lost: tuple[LostRange, ...] = ()
    scrub_time_us: int | None = None


def status(
    index: TimelineIndex, reads: Reads, connections: Connections, maintenance: MaintenanceThread, texts: TextIndex
) -> EventsStatus:
    """See Timeline.status."""
    stored, problem = _stored(connections, maintenance)
    message = problem or maintenance.failure() or ""
    is_warm = maintenance.is_warm
    earliest, latest = reads.ends() if is_warm else (None, None)
    return EventsStatus(
        state=_state(message, is_warm=is_warm),
        message=message,
        event_count=index.count,
        segment_count=stored.segment_count,
        active_segment_id=stored.active_segment_id,
        segment_bytes=stored.segment_bytes,
        unsealed_count=stored.unsealed_count,
        earliest=earliest,
        latest=latest,
        index_bytes=index.nbytes,
        loaded_segment_count=maintenance.loaded_segment_count,
        # Each of them may still contain the same removed events, so the largest count applies. The files come after
        # records.db, which forgets removed events just before the files are deleted.
        removal_pending_count=max(
            stored.removal_pending_count, maintenance.erasing_count, texts.removed_count, connections.removals.events
        ),
        lost=stored.lost,
        scrub_time=None if stored.scrub_time_us is None else from_microseconds(stored.scrub_time_us),
        text_pending_count=texts.pending_count if is_warm else 0,
    )


def _state(message: str, *, is_warm: bool) -> EventsState:
    if not is_warm:
        return EventsState.STARTING
    return EventsState.DEGRADED if message else EventsState.READY


def _stored(connections: Connections, maintenance: MaintenanceThread) -> tuple[_Stored, str]:
    """The part from records.db, and its problem; defaults and the problem if it cannot be read."""
    problem = connections.failure() or ""
    try:
        with connections.lend() as connection:
            return _read(connection, maintenance.erased_counts()), problem
    except (MnemonError, apsw.Error):
        return _Stored(), problem or "the records cannot be read; the log says why"


def _read(connection: apsw.Connection, erased: Mapping[tuple[int, int], int]) -> _Stored:
    """`erased` is read first and the segments last, so that a rewrite in between can only make the count larger."""
    dead = timeline_segments.dead_counts(connection)
    rows = timeline_segments.segments(connection)
    gone = sum(min(erased.get((row.segment_id, row.generation), 0), dead.get(row.segment_id, 0)) for row in rows)
    unsealed = [row for row in rows if not row.is_sealed]
    return _Stored(
        segment_count=len(rows),
        active_segment_id=next((row.segment_id for row in rows if row.state is SegmentState.OPEN), 0),
        segment_bytes=sum(row.byte_count for row in rows),
        unsealed_count=sum(row.event_count - dead.get(row.segment_id, 0) for row in unsealed),
        removal_pending_count=sum(dead.values()) - gone,
        lost=timeline_segments.lost_ranges(connection),
        scrub_time_us=timeline_segments.scrub_time_us(connection),
    )
