"""The list of the timeline's segments in records.db, with their removed and lost events."""

from collections.abc import Iterable, Sequence
from typing import Any

import apsw

from mnemon_server.domain.clock import from_microseconds, to_microseconds
from mnemon_server.domain.events import LostRange
from mnemon_server.engines.events.format.layout import segment_name
from mnemon_server.engines.events.rows.tables import SET_META
from mnemon_server.engines.events.upkeep.manifest import SegmentRow, SegmentState, SyncedFile
from mnemon_server.engines.sqlite.query import fetch

_SCRUB_KEY = "timeline.scrub_time"
_WARNED_KEY = "timeline.warned"
_PUT_SEGMENT = "INSERT OR REPLACE INTO timeline_segment VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def segments(connection: apsw.Connection) -> list[SegmentRow]:
    """All segments, in order."""
    return [_segment(row) for row in fetch(connection, "SELECT * FROM timeline_segment ORDER BY segment_id")]


def sealed_names(connection: apsw.Connection) -> set[str]:
    """The names of the files of sealed segments."""
    return {segment_name(row.segment_id, row.generation) for row in segments(connection) if row.is_sealed}


def find_segment(connection: apsw.Connection, segment_id: int) -> SegmentRow | None:
    """The row of a segment; None if it no longer exists."""
    rows = fetch(connection, "SELECT * FROM timeline_segment WHERE segment_id = ?", (segment_id,))
    return _segment(rows[0]) if rows else None


def put_segment(connection: apsw.Connection, row: SegmentRow) -> None:
    """Stores the row of a segment."""
    connection.execute(_PUT_SEGMENT, row)


def note_appended(connection: apsw.Connection, row: SegmentRow) -> None:
    """Updates state and events of a segment that is not sealed, without the columns about its file."""
    connection.execute(
        "UPDATE timeline_segment SET state = ?, last_sequence = ?, event_count = ?, byte_count = ?"
        " WHERE segment_id = ?",
        (row.state, row.last_sequence, row.event_count, row.byte_count, row.segment_id),
    )


def note_synced(connection: apsw.Connection, synced: SyncedFile) -> None:
    """Records how far the file of an unsealed segment is synced, and its generation."""
    connection.execute(
        "UPDATE timeline_segment SET generation = ?, seed = ?, synced_offset = ?, synced_sequence = ?"
        " WHERE segment_id = ? AND state <> 'sealed'",
        (synced.generation, synced.seed, synced.synced_offset, synced.synced_sequence, synced.segment_id),
    )


def drop_segments(connection: apsw.Connection, segment_ids: Iterable[int], *, joined_into: int | None = None) -> None:
    """Removes segments. Their marks of removed events are deleted, or moved to the segment into which they were
    merged.
    """
    ids = [(segment_id,) for segment_id in segment_ids]
    connection.executemany("DELETE FROM timeline_segment WHERE segment_id = ?", ids)
    if joined_into is not None:
        connection.executemany(
            "INSERT OR IGNORE INTO timeline_dead SELECT ?, sequence FROM timeline_dead WHERE segment_id = ?",
            [(joined_into, *one) for one in ids if one != (joined_into,)],
        )
    connection.executemany(
        "DELETE FROM timeline_dead WHERE segment_id = ?", [one for one in ids if one != (joined_into,)]
    )


def _segment(row: Sequence[Any]) -> SegmentRow:
    return SegmentRow(row[0], row[1], SegmentState(row[2]), *row[3:])


# Removed and lost events


def mark_dead(connection: apsw.Connection, events: Iterable[tuple[int, int]]) -> None:
    """Marks events as removed, each given as (segment id, sequence)."""
    connection.executemany("INSERT OR IGNORE INTO timeline_dead (segment_id, sequence) VALUES (?, ?)", events)


def dead_sequences(connection: apsw.Connection, segment_id: int) -> list[int]:
    """The sequences of a segment's removed events, ascending."""
    statement = "SELECT sequence FROM timeline_dead WHERE segment_id = ? ORDER BY sequence"
    return [sequence for (sequence,) in fetch(connection, statement, (segment_id,))]


def dead_counts(connection: apsw.Connection) -> dict[int, int]:
    """The number of removed events per segment, without segments that have none."""
    return dict(fetch(connection, "SELECT segment_id, count(*) FROM timeline_dead GROUP BY segment_id"))


def forget_dead(connection: apsw.Connection, segment_id: int, sequences: Iterable[int]) -> None:
    """Deletes the marks of removed events that are no longer in any file."""
    connection.executemany(
        "DELETE FROM timeline_dead WHERE segment_id = ? AND sequence = ?", [(segment_id, one) for one in sequences]
    )


def note_lost(connection: apsw.Connection, ranges: Iterable[LostRange]) -> None:
    """Records lost events."""
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
    """The lost events, in the order of sequences."""
    rows = fetch(connection, "SELECT * FROM timeline_lost ORDER BY first_sequence, segment_id")
    return tuple(
        LostRange(segment_id, first, last, count, from_microseconds(time))
        for segment_id, first, last, count, time in rows
    )


def scrub_time_us(connection: apsw.Connection) -> int | None:
    """When all segments were last read and found intact; None if never."""
    time = connection.execute("SELECT value FROM meta WHERE key = ?", (_SCRUB_KEY,)).get
    return None if time is None else int(time)


def set_scrub_time(connection: apsw.Connection, time_us: int) -> None:
    """Records when all segments were read and found intact."""
    connection.execute(SET_META, (_SCRUB_KEY, time_us))


def is_warned(connection: apsw.Connection) -> bool:
    """Whether the feed's last entry about the timeline's health was a warning."""
    return bool(connection.execute("SELECT value FROM meta WHERE key = ?", (_WARNED_KEY,)).get)


def set_warned(connection: apsw.Connection, *, is_warned: bool) -> None:
    """Records whether the feed's last entry about the timeline's health was a warning."""
    connection.execute(SET_META, (_WARNED_KEY, int(is_warned)))
