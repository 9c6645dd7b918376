"""The manifest of the timeline's segments in records.db, and what is gone of them: removed events, and lost ones."""

from collections.abc import Iterable, Sequence
from typing import Any

import apsw

from mnemon_server.domain.clock import from_microseconds, to_microseconds
from mnemon_server.domain.episodic import LostRange
from mnemon_server.engines.sqlite.query import fetch, id_array
from mnemon_server.engines.sqlite.timeline_tables import SET_META, SegmentRow, SegmentState

_SCRUB_KEY = "timeline.scrub_time"
_PUT_SEGMENT = "INSERT OR REPLACE INTO timeline_segment VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def segments(connection: apsw.Connection) -> list[SegmentRow]:
    """The manifest, in the order of the segments."""
    return [_segment(row) for row in fetch(connection, "SELECT * FROM timeline_segment ORDER BY segment_id")]


def find_segment(connection: apsw.Connection, segment_id: int) -> SegmentRow | None:
    """A row of the manifest; None where there is no such segment any more."""
    rows = fetch(connection, "SELECT * FROM timeline_segment WHERE segment_id = ?", (segment_id,))
    return _segment(rows[0]) if rows else None


def put_segment(connection: apsw.Connection, row: SegmentRow) -> None:
    """Sets a row of the manifest."""
    connection.execute(_PUT_SEGMENT, row)


def note_synced(
    connection: apsw.Connection, segment_id: int, generation: int, *, seed: int, offset: int, sequence: int
) -> None:
    """Notes how far the file of a segment that is not sealed is on the disk, and which generation it is."""
    connection.execute(
        "UPDATE timeline_segment SET generation = ?, seed = ?, synced_offset = ?, synced_sequence = ?"
        " WHERE segment_id = ? AND state <> 'sealed'",
        (generation, seed, offset, sequence, segment_id),
    )


def swap_segments(
    connection: apsw.Connection, removed: Iterable[int], added: Sequence[SegmentRow], left_out: Iterable[int] = ()
) -> None:
    """Puts rewritten segments in the place of others.

    Args:
        connection: the writer's.
        removed: ids of the segments that were rewritten, and of those with nothing left.
        added: the new ones; their ids may be those of removed ones. Sequences of a removed one belong to the last
            added one that begins before them, or to the first.
        left_out: sequences of removed events whose bytes the new files do not hold. Those that were removed since the
            new files were written stay noted, as events of their new segment.
    """
    ids = id_array(sorted(removed))
    connection.execute(
        "DELETE FROM timeline_dead WHERE segment_id IN (SELECT value FROM carray(?))"
        " AND sequence IN (SELECT value FROM carray(?))",
        (ids, id_array(sorted(left_out))),
    )
    dead = fetch(
        connection,
        "SELECT segment_id, sequence FROM timeline_dead WHERE segment_id IN (SELECT value FROM carray(?))",
        (ids,),
    )
    for table in ("timeline_dead", "timeline_segment"):
        connection.execute(f"DELETE FROM {table} WHERE segment_id IN (SELECT value FROM carray(?))", (ids,))  # noqa: S608
    for row in added:
        put_segment(connection, row)
    starts = sorted(row.segment_id for row in added)
    if starts:
        mark_dead(
            connection,
            [(max((start for start in starts if start <= one), default=starts[0]), one) for _, one in dead],
        )


def _segment(row: Sequence[Any]) -> SegmentRow:
    return SegmentRow(row[0], row[1], SegmentState(row[2]), *row[3:])


# What is gone


def mark_dead(connection: apsw.Connection, events: Iterable[tuple[int, int]]) -> None:
    """Notes events as removed, each as (segment id, sequence)."""
    connection.executemany("INSERT OR IGNORE INTO timeline_dead (segment_id, sequence) VALUES (?, ?)", events)


def dead_sequences(connection: apsw.Connection, segment_id: int) -> list[int]:
    """The sequences of a segment's removed events, ascending."""
    statement = "SELECT sequence FROM timeline_dead WHERE segment_id = ? ORDER BY sequence"
    return [sequence for (sequence,) in fetch(connection, statement, (segment_id,))]


def dead_counts(connection: apsw.Connection) -> dict[int, int]:
    """How many removed events each segment has; those without any are left out."""
    return dict(fetch(connection, "SELECT segment_id, count(*) FROM timeline_dead GROUP BY segment_id"))


def forget_dead(connection: apsw.Connection, segment_id: int) -> None:
    """Forgets a segment's removed events: no file holds them."""
    connection.execute("DELETE FROM timeline_dead WHERE segment_id = ?", (segment_id,))


def note_lost(connection: apsw.Connection, ranges: Iterable[LostRange]) -> None:
    """Notes what damage took along."""
    connection.executemany(
        "INSERT OR REPLACE INTO timeline_lost VALUES (?, ?, ?, ?, ?)",
        [
            (
                lost.segment_id,
                lost.first_sequence,
                lost.last_sequence,
                lost.event_count,
                to_microseconds(lost.notice_time),
            )
            for lost in ranges
        ],
    )


def lost_ranges(connection: apsw.Connection) -> tuple[LostRange, ...]:
    """What damage took along, in the order of the events."""
    rows = fetch(connection, "SELECT * FROM timeline_lost ORDER BY first_sequence, segment_id")
    return tuple(LostRange(*numbers, from_microseconds(time)) for *numbers, time in rows)


def scrub_time_us(connection: apsw.Connection) -> int | None:
    """When every segment was last read and found sound; None where that was never."""
    time = connection.execute("SELECT value FROM meta WHERE key = ?", (_SCRUB_KEY,)).get
    return None if time is None else int(time)


def set_scrub_time(connection: apsw.Connection, time_us: int) -> None:
    """Notes when every segment was read and found sound."""
    connection.execute(SET_META, (_SCRUB_KEY, time_us))
