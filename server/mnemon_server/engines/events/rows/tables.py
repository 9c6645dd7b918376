"""The timeline's tables in records.db, and the rows of events whose segment is not sealed.

Here and in `segments.py`, functions that read work on any connection. Those that write must be called within an
operation of the writer.
"""

from collections.abc import Sequence
from itertools import accumulate, takewhile
from typing import Any, NamedTuple, TypeAlias

import apsw

from mnemon_server.domain.records import INT64_MAX, Scope
from mnemon_server.engines.events.index.rows import NO_OFFSET, EventRow
from mnemon_server.engines.events.upkeep.manifest import SegmentRow
from mnemon_server.engines.sqlite.query import fetch, id_array, insert_rows

REMOVED_AT_ONCE_MAX = 2_000
"""Maximum number of rows that one transaction removes. Deleted text is overwritten, and other writes wait meanwhile."""
REMOVED_BYTES_MAX = 4 << 20
"""The removal also ends with the row that brings the bodies to this size, in bytes."""

SEQUENCE_KEY = "timeline.sequence"
SET_META = "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)"
_INSERT_EVENT = "INSERT INTO timeline_event VALUES"


class TimelineRow(NamedTuple):
    """A row of `timeline_event`. Times are in microseconds, hashes are signed."""

    sequence: int
    segment_id: int
    time_us: int
    id_hash: int
    key_hash: int
    user: str
    household: str
    persona: str
    agent: str
    project: str
    event_type: str
    importance: float | None
    body: bytes


EventValues: TypeAlias = tuple[int, int, int, int, int, str, str, str, str, str, str, float | None, bytes]
"""The fields of a TimelineRow as a plain tuple."""


def unsigned(number: int) -> int:
    """Converts a hash from the table's to the index's form."""
    return number & 0xFFFF_FFFF_FFFF_FFFF


def signed(number: int) -> int:
    """Converts a hash from the index's to the table's form."""
    return number - (1 << 64) if number >> 63 else number


def index_row(row: TimelineRow) -> EventRow:
    """The index row of an event that is not sealed."""
    return EventRow(
        row.sequence,
        row.time_us,
        unsigned(row.id_hash),
        unsigned(row.key_hash),
        Scope(row.user, row.household, row.persona, row.agent, row.project),
        row.event_type,
        row.importance,
        NO_OFFSET,
    )


def insert_events(connection: apsw.Connection, rows: Sequence[EventValues]) -> None:
    """Adds events."""
    insert_rows(connection, _INSERT_EVENT, rows)


def event_rows(
    connection: apsw.Connection, segment: SegmentRow, *, after: int = 0, limit: int, bytes_max: int = 8 << 20
) -> list[TimelineRow]:
    """Up to `limit` rows of a segment after a sequence, in order; fewer if their bodies exceed `bytes_max`."""
    cursor = connection.execute(
        "SELECT * FROM timeline_event WHERE sequence > ? AND sequence <= ? AND segment_id = ? ORDER BY sequence"
        " LIMIT ?",
        (max(after, segment.segment_id - 1), segment.last_sequence, segment.segment_id, limit),
    )
    rows: list[TimelineRow] = []
    size = 0
    for row in cursor:
        rows.append(TimelineRow(*row))
        size += len(rows[-1].body)
        if size >= bytes_max:
            break
    return rows


def event_bodies(
    connection: apsw.Connection, sequences: Sequence[int], bytes_max: int | None = None
) -> dict[int, bytes]:
    """The bodies of the events that have a row, by sequence.

    With `bytes_max`, it ends with the body that brings the total to that size.
    """
    statement = (
        "SELECT e.sequence, e.body FROM carray(?) AS wanted CROSS JOIN timeline_event AS e ON e.sequence = wanted.value"
    )
    bodies: dict[int, bytes] = {}
    size = 0
    row: Any
    # Row by row, so that no more is read than needed.
    for row in connection.execute(statement, (id_array(sequences),)):
        bodies[row[0]] = row[1]
        size += len(row[1])
        if bytes_max is not None and size >= bytes_max:
            break
    return bodies


def delete_events(connection: apsw.Connection, sequences: Sequence[int]) -> None:
    """Deletes the rows of these events, as far as they exist."""
    connection.execute(
        "DELETE FROM timeline_event WHERE sequence IN (SELECT value FROM carray(?))", (id_array(sequences),)
    )


def delete_sealed_rows(connection: apsw.Connection) -> int:
    """Deletes some rows of events whose segment is sealed; returns how many, 0 if none are left."""
    oldest = _sealed_rows(connection, REMOVED_AT_ONCE_MAX)
    if not oldest:
        return 0
    sizes = accumulate(size for _, size in oldest)
    count = 1 + sum(1 for _ in takewhile(lambda size: size < REMOVED_BYTES_MAX, sizes))
    connection.execute("DELETE FROM timeline_event WHERE sequence <= ?", (oldest[:count][-1][0],))
    return connection.changes()


def has_sealed_rows(connection: apsw.Connection) -> bool:
    """Whether `delete_sealed_rows` has rows to delete."""
    return bool(_sealed_rows(connection, 1))


def _sealed_rows(connection: apsw.Connection, limit: int) -> list[tuple[int, int]]:
    """The oldest rows of sealed segments, up to the first unsealed segment: (sequence, size of the body)."""
    unsealed = connection.execute("SELECT min(segment_id) FROM timeline_segment WHERE state <> 'sealed'").get
    return fetch(
        connection,
        "SELECT sequence, length(body) FROM timeline_event WHERE sequence < ? ORDER BY sequence LIMIT ?",
        (INT64_MAX if unsealed is None else unsealed, limit),
    )


def last_sequence(connection: apsw.Connection) -> int:
    """The last assigned sequence; 0 if no sequence was assigned."""
    return int(connection.execute("SELECT coalesce(max(value), 0) FROM meta WHERE key = ?", (SEQUENCE_KEY,)).get)


def set_last_sequence(connection: apsw.Connection, sequence: int) -> None:
    """Stores the last assigned sequence, so that none is assigned twice, whatever is removed."""
    connection.execute(SET_META, (SEQUENCE_KEY, sequence))
