"""The timeline's tables in records.db. Functions that read work on any connection; those that write must be called
within an operation of the writer.
"""

import json
import secrets
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import accumulate, takewhile
from typing import Any, NamedTuple

import apsw
import numpy as np

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.clock import from_microseconds, to_microseconds
from mnemon_server.domain.encoding import scope_values
from mnemon_server.domain.events import LostRange
from mnemon_server.domain.records import INT64_MAX, Scope
from mnemon_server.engines.promises.events import EventsWarning, Sequences
from mnemon_server.engines.sqlite.journal import Journal
from mnemon_server.engines.sqlite.query import fetch, id_array, set_meta, stored_meta

REMOVED_AT_ONCE_MAX = 2_000
"""Maximum number of rows that one transaction removes. Deleted text is overwritten while other writes wait."""
REMOVED_BYTES_MAX = 4 << 20
"""The removal also ends with the row that brings the bodies to this size, in bytes."""
RECORD_ID = "timeline"
HEALTHY = EventsWarning("info", "the timeline is healthy again", "")

_SEQUENCE_KEY = "timeline.sequence"
_VERSION_KEY = "timeline.version"
_DISCARDED_KEY = "timeline.discarded"
_SCRUB_KEY = "timeline.scrub_time"
_WARNED_KEY = "timeline.warned"


class SegmentState(StrEnum):
    """The state of a segment."""

    OPEN = "open"
    """Events are added to it. There is at most one, the newest."""
    ROLLED = "rolled"
    """It receives no more events, and is to be sealed."""
    SEALED = "sealed"
    """Its events are in a file."""


class SegmentRow(NamedTuple):
    """A segment. Times are in microseconds."""

    segment_id: int
    """The sequence of its first event in its first generation."""
    generation: int
    state: SegmentState
    last_sequence: int
    """The highest sequence that it ever had."""
    event_count: int
    """The number of its events; for a sealed segment, the number in its file."""
    byte_count: int
    """The size of its file if it is sealed, otherwise of its events."""
    create_time_us: int
    min_time_us: int | None = None
    """The times of its events; None before it is sealed."""
    max_time_us: int | None = None
    runs: bytes = b""
    """The sequences in its file, as pairs of `runs_of`. Any loss can therefore be reported exactly."""

    @property
    def is_sealed(self) -> bool:
        """Whether it has a file."""
        return self.state is SegmentState.SEALED

    @property
    def file_name(self) -> str:
        """The name of its file. Names sort by sequence, then by generation."""
        return f"{self.segment_id:020d}-{self.generation:04d}.segment"

    def sequences(self, first: int = 0, last: int = INT64_MAX) -> Sequences:
        """The sequences in its file between two, ascending."""
        runs = np.frombuffer(self.runs, np.int64).reshape(-1, 2)
        within = runs[(runs[:, 1] >= first) & (runs[:, 0] <= last)].tolist()
        ranges = [np.arange(max(start, first), min(end, last) + 1) for start, end in within]
        return np.concatenate([*ranges, np.empty(0, np.int64)])


# Segments


def segments(connection: apsw.Connection, *, after: int = -1) -> list[SegmentRow]:
    """The segments after one, ascending; all of them by default."""
    statement = "SELECT * FROM timeline_segment WHERE segment_id > ? ORDER BY segment_id"
    return [
        SegmentRow(row[0], row[1], SegmentState(row[2]), *row[3:]) for row in fetch(connection, statement, (after,))
    ]


def sealed_names(connection: apsw.Connection) -> set[str]:
    """The names of the files of sealed segments."""
    return {row.file_name for row in segments(connection) if row.is_sealed}


def put_segment(connection: apsw.Connection, row: SegmentRow) -> None:
    """Stores a segment."""
    connection.execute("INSERT OR REPLACE INTO timeline_segment VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)


def roll_open(connection: apsw.Connection) -> None:
    """Closes the open segment, so that the next event starts a new one."""
    connection.execute(
        "UPDATE timeline_segment SET state = ? WHERE state = ?", (SegmentState.ROLLED.value, SegmentState.OPEN.value)
    )


def version(connection: apsw.Connection) -> int:
    """A number that stands for the sealed segments and their removed events. Another state has another number, also
    one that was rolled back.
    """
    return int(stored_meta(connection, _VERSION_KEY) or 0)


def change_version(connection: apsw.Connection) -> None:
    """Must be called within each transaction that changes sealed segments or their removed events."""
    set_meta(connection, _VERSION_KEY, secrets.randbits(62))


def replace_segments(
    connection: apsw.Connection, replaced: Sequence[SegmentRow], added: SegmentRow | None, erased: Sequences
) -> None:
    """Replaces segments by a sealed one. `erased` are removed events that it no longer contains."""
    ids = [(row.segment_id,) for row in replaced]
    connection.executemany("DELETE FROM timeline_segment WHERE segment_id = ?", ids)
    if added is not None:
        put_segment(connection, added)
    connection.execute("DELETE FROM timeline_dead WHERE sequence IN (SELECT value FROM carray(?))", (id_array(erased),))
    change_version(connection)


def discarded_files(connection: apsw.Connection) -> list[str]:
    """The names of the files that were replaced last, and may still exist."""
    return list(json.loads(stored_meta(connection, _DISCARDED_KEY) or "[]"))


def set_discarded_files(connection: apsw.Connection, names: Sequence[str]) -> None:
    """Stores which files are to be deleted, because a segment without events leaves no row that says so."""
    set_meta(connection, _DISCARDED_KEY, json.dumps(names))


# Events


def first_unsealed(rows: Iterable[SegmentRow]) -> int:
    """The first sequence whose event is in records.db, given the segments that are not sealed. Older events may still
    be there for a while after they were sealed.
    """
    return min((row.segment_id for row in rows), default=INT64_MAX)


def existing_events(connection: apsw.Connection, sequences: Sequence[int] | Sequences) -> list[int]:
    """The events among these that have a row."""
    statement = "SELECT sequence FROM timeline_event WHERE sequence IN (SELECT value FROM carray(?))"
    return [one for (one,) in fetch(connection, statement, (id_array(sequences),))]


def delete_events(connection: apsw.Connection, sequences: Sequence[int] | Sequences) -> None:
    """Deletes the rows of these events, as far as they exist."""
    statement = "DELETE FROM timeline_event WHERE sequence IN (SELECT value FROM carray(?))"
    connection.execute(statement, (id_array(sequences),))


def sealed_events(connection: apsw.Connection) -> list[int]:
    """Some events that still have a row although their segment is sealed, the oldest first."""
    unsealed = connection.execute("SELECT min(segment_id) FROM timeline_segment WHERE state <> 'sealed'").get
    oldest = fetch(
        connection,
        "SELECT sequence, length(body) FROM timeline_event WHERE sequence < ? ORDER BY sequence LIMIT ?",
        (INT64_MAX if unsealed is None else unsealed, REMOVED_AT_ONCE_MAX),
    )
    sizes = accumulate(size for _, size in oldest)
    count = 1 + sum(1 for _ in takewhile(lambda size: size < REMOVED_BYTES_MAX, sizes))
    return [sequence for sequence, _ in oldest[:count]]


def last_sequence(connection: apsw.Connection) -> int:
    """The last assigned sequence; 0 if none was."""
    return int(stored_meta(connection, _SEQUENCE_KEY) or 0)


def set_last_sequence(connection: apsw.Connection, sequence: int) -> None:
    """Stores the last assigned sequence, so that none is assigned twice, whatever is removed."""
    set_meta(connection, _SEQUENCE_KEY, sequence)


def dead_sequences(connection: apsw.Connection) -> Sequences:
    """The removed events that are still in files, ascending."""
    return np.array(
        [one for (one,) in fetch(connection, "SELECT sequence FROM timeline_dead ORDER BY sequence")], np.int64
    )


def mark_dead(connection: apsw.Connection, sequences: Iterable[int]) -> None:
    """Marks events of sealed segments as removed."""
    connection.executemany("INSERT OR IGNORE INTO timeline_dead VALUES (?)", [(one,) for one in sequences])
    change_version(connection)


# Losses and health


def note_lost(connection: apsw.Connection, ranges: Iterable[LostRange]) -> None:
    """Records lost events."""
    connection.executemany(
        "INSERT OR REPLACE INTO timeline_lost VALUES (?, ?, ?, ?, ?)",
        [
            (one.segment_id, one.first_sequence, one.last_sequence, one.event_count, to_microseconds(one.notice_time))
            for one in ranges
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
    time: Any = stored_meta(connection, _SCRUB_KEY)
    return None if time is None else int(time)


def set_scrub_time(connection: apsw.Connection, time_us: int) -> None:
    """Records when all segments were read and found intact."""
    set_meta(connection, _SCRUB_KEY, time_us)


def is_warned(connection: apsw.Connection) -> bool:
    """Whether the feed's last entry about the timeline's health was a warning."""
    return bool(stored_meta(connection, _WARNED_KEY))


def note_health(connection: apsw.Connection, journal: Journal, warning: EventsWarning | None) -> None:
    """Adds a warning to the feed; None means that the timeline has recovered."""
    set_meta(connection, _WARNED_KEY, int(warning is not None))
    operation = journal.begin(None)
    event, said = (ChangeType.EPISODIC_WARNING, warning) if warning else (ChangeType.EPISODIC_HEALTHY, HEALTHY)
    details = json.dumps({"severity": said.severity, "message": said.message, "remediation": said.remediation})
    operation.add(journal.next_sequence(), event, RECORD_ID, 0, scope_values(Scope()), details=details)
    journal.stage(operation)
