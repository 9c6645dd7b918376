"""The change log of a vault: its order, its entries, and the positions of indexes that follow it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import apsw
import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.clock import Clock, to_microseconds
from mnemon_server.domain.collections import COLLECTIONS
from mnemon_server.domain.history import Author
from mnemon_server.domain.records import RequestKey
from mnemon_server.engines.promises.change_log import TRIM_MAX
from mnemon_server.engines.promises.values import DocumentChange, IndexPosition, RecordStats
from mnemon_server.engines.sqlite.documents import VECTOR_TYPE, DocumentTable
from mnemon_server.engines.sqlite.follower import Follower
from mnemon_server.engines.sqlite.query import fetch, id_array, insert_rows, set_meta
from mnemon_server.engines.sqlite.tables import Tables

COUNTED_EVERY = 10_000
"""Number of changes after which the total is stored in the file. Counting a million at start takes a third of a
second.
"""

RESTORED_EPOCH = "restored_epoch"
"""The key of the epoch that a restored backup gets. The vault keeps its first one, which its segments name."""

CREATE_STATEMENTS = (
    # commit_sequence: the sequence of the first change of the same call. changed: a JSON list, or empty for none.
    # details: JSON, or empty.
    """
CREATE TABLE event (
  sequence INTEGER PRIMARY KEY,
  commit_sequence INTEGER NOT NULL,
  time INTEGER NOT NULL,
  type TEXT NOT NULL,
  record_id TEXT NOT NULL,
  revision INTEGER NOT NULL,
  user TEXT NOT NULL,
  household TEXT NOT NULL,
  persona TEXT NOT NULL,
  agent TEXT NOT NULL,
  project TEXT NOT NULL,
  origin TEXT NOT NULL,
  origin_name TEXT NOT NULL,
  request_id TEXT NOT NULL,
  changed TEXT NOT NULL,
  details TEXT NOT NULL DEFAULT ''
) STRICT""",
)

_INSERT = "INSERT INTO event VALUES"
_COUNT = """
SELECT counted + (SELECT count(*) FROM event WHERE sequence > upto), (SELECT min(sequence) FROM event),
       (SELECT max(sequence) FROM event)
FROM (SELECT coalesce((SELECT value FROM meta WHERE key = 'event.counted'), 0) AS counted,
             coalesce((SELECT value FROM meta WHERE key = 'event.counted_to'), 0) AS upto)"""
_OLDEST = "SELECT sequence, time FROM event WHERE sequence <= ? ORDER BY sequence LIMIT ?"
_FIRST_TIME = "SELECT time FROM event ORDER BY sequence LIMIT 1"
_SET_META = "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)"

ChangeRow: TypeAlias = tuple[Any, ...]
"""The columns of the table `event`, in order."""


@dataclass(frozen=True, slots=True)
class LogState:
    """Which part of the log is kept. Times are in microseconds; `head_time` is 0 if there never was a change."""

    floor: int = 0
    head: int = 0
    count: int = 0
    first_time: int | None = None
    head_time: int = 0
    counted_to: int = 0
    """The file has the number of changes up to this position."""


@dataclass(slots=True)
class Operation:
    """One call, and the changes that it makes, which share one commit time. Times are in microseconds."""

    now: int
    """The time by the clock."""
    time: int
    """The commit time, which never decreases."""
    request: RequestKey | None
    apart: bool = False
    """Whether each change is a commit of its own, because the writes come from many calls."""
    rows: list[ChangeRow] = field(default_factory=list)
    sequence: int = 0
    """Position of the newest change of the call; 0 if it changed nothing."""
    author: Author | None = None
    """Who makes the call; None if its writes say that."""

    def add(
        self,
        sequence: int,
        change: ChangeType,
        record_id: str,
        revision: int,
        scope: tuple[str, ...],
        changed: tuple[str, ...] = (),
        details: str = "",
        request: RequestKey | None = None,
    ) -> None:
        """Adds one change. `request` is that of the write, unless the call itself has one."""
        self.sequence = sequence
        first = self.rows[0][0] if self.rows and not self.apart else sequence
        asked = self.request or request
        request_id = asked.request_id if asked else ""
        names = json.dumps(changed, ensure_ascii=False) if changed else ""
        self.rows.append(
            (sequence, first, self.time, change.value, record_id, revision, *scope, request_id, names, details)
        )


class Journal(Follower):
    """Numbers changes and collects their log entries, which are written in the transaction that makes the changes.

    It is the last follower of a transaction: once `state` includes a change, all other followers have applied it.

    Any thread may read `state`, which shows committed changes. Everything else belongs to the writer's thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.epoch = self.origin = b""
        self.state = self._running = LogState()
        self._rows: list[ChangeRow] = []
        self._sequence = self._committed_sequence = 0
        self._must_count = False

    def now(self) -> int:
        """The time of the clock, in microseconds."""
        return to_microseconds(self._clock())

    def begin(self, request: RequestKey | None, *, apart: bool = False, author: Author | None = None) -> Operation:
        """Starts a call that may make changes. Its commit time is never before the previous one, whatever the clock
        does.
        """
        now = self.now()
        return Operation(now, max(now, self._running.head_time), request, apart, author=author)

    @property
    def head(self) -> int:
        """The position of the newest change, including staged ones; 0 if there never was one."""
        return self._running.head

    def next_sequence(self) -> int:
        """The position of a new change."""
        self._sequence += 1
        return self._sequence

    def stage(self, operation: Operation) -> None:
        """Stages the changes of a call that has succeeded."""
        if rows := operation.rows:
            running = self._running
            self._rows += rows
            self._running = LogState(
                floor=running.floor,
                head=rows[-1][0],
                count=running.count + len(rows),
                first_time=running.first_time if running.count else operation.time,
                head_time=operation.time,
                counted_to=running.counted_to,
            )

    def trim(self, connection: apsw.Connection, before: int, keep_max: int, keep_after: int | None = None) -> int:
        """Drops the oldest changes, see ChangeLog.trim; returns how many."""
        surplus = self._running.count - keep_max
        last = self._running.head if keep_after is None else keep_after
        oldest = fetch(connection, _OLDEST, (last, TRIM_MAX))
        dropped = next((i for i, (_, time) in enumerate(oldest) if time >= before and i >= surplus), len(oldest))
        if not dropped:
            return 0
        floor, time = oldest[dropped - 1]
        connection.execute("DELETE FROM event WHERE sequence <= ?", (floor,))
        connection.executemany(_SET_META, [("event.floor", floor), ("event.floor_time", time)])
        kept = [*fetch(connection, _FIRST_TIME), *((row[2],) for row in self._rows[:1])]
        self._running = replace(
            self._running,
            floor=floor,
            count=self._running.count - dropped,
            first_time=kept[0][0] if kept else None,
        )
        return dropped

    def forget(self, connection: apsw.Connection, sequences: Sequence[int]) -> int:
        """Drops committed changes wherever they are in the log, except the newest one; returns how many there were.

        The newest one must stay, because the position of the next change follows from it after a start.
        """
        newest = self.state.head
        kept = id_array([sequence for sequence in sequences if sequence != newest])
        connection.execute("DELETE FROM event WHERE sequence IN (SELECT value FROM carray(?))", (kept,))
        return connection.changes()

    def stage_forgotten(self, connection: apsw.Connection, count: int) -> None:
        """Counts what a call that has succeeded made `forget` drop."""
        if count:
            first = [*fetch(connection, _FIRST_TIME), *((row[2],) for row in self._rows[:1])]
            running = self._running
            self._running = replace(running, count=running.count - count, first_time=first[0][0] if first else None)
            self._must_count = True

    # With the transactions; see Follower

    def load(self, connection: apsw.Connection) -> None:
        """Loads the stored state."""
        self._must_count = False
        meta: dict[str, Any] = dict(fetch(connection, "SELECT key, value FROM meta"))
        self.origin = meta["epoch"]
        self.epoch = meta.get(RESTORED_EPOCH, self.origin)
        [(count, first, head)] = fetch(connection, _COUNT)
        floor, floor_time = int(meta.get("event.floor", 0)), int(meta.get("event.floor_time", 0))
        # A change without a document is not the newest change of any collection.
        newest = (int(meta.get(Tables(collection).sequence_key, 0)) for collection in COLLECTIONS)
        self._sequence = self._committed_sequence = max(head or floor, *newest)
        times = dict(fetch(connection, "SELECT sequence, time FROM event WHERE sequence IN (?, ?)", (first, head)))
        self.state = self._running = LogState(
            floor=floor,
            head=head or floor,
            count=count,
            first_time=times.get(first),
            head_time=times.get(head, floor_time),
            counted_to=int(meta.get("event.counted_to", 0)),
        )
        self._rows = []

    def before_commit(self, connection: apsw.Connection) -> None:
        """Writes the staged changes."""
        insert_rows(connection, _INSERT, self._rows)
        running = self._running
        has_trimmed = (running.floor != self.state.floor or self._must_count) and running.counted_to
        if has_trimmed or running.head - running.counted_to >= COUNTED_EVERY:
            counted = [("event.counted", running.count), ("event.counted_to", running.head)]
            connection.executemany(_SET_META, counted)
            self._running = replace(running, counted_to=running.head)

    def after_commit(self) -> None:
        """Makes the staged changes visible."""
        self._rows, self._must_count = [], False
        self.state, self._committed_sequence = self._running, self._sequence

    def after_rollback(self) -> None:
        """Discards the staged changes."""
        self._rows, self._must_count = [], False
        self._running, self._sequence = self.state, self._committed_sequence


# ruff: noqa: S608 - table and column names are constants; all input is bound


def stats(connection: apsw.Connection, tables: Tables) -> RecordStats:
    """The counts, and the position of the newest change. Counting reads every row of an index."""
    statement = (
        f"SELECT (SELECT count(*) FROM {tables.documents}), (SELECT count(*) FROM {tables.passages}"
        f" WHERE position NOT IN (SELECT position FROM {tables.documents} WHERE hidden = 1)),"
        " (SELECT coalesce(max(value), 0) FROM meta WHERE key = ?)"
    )
    return RecordStats(*fetch(connection, statement, (tables.sequence_key,))[0])


def set_last_sequence(connection: apsw.Connection, tables: Tables, sequence: int) -> None:
    """Stores the position of the newest change, so that it is not assigned again after a deletion record is dropped."""
    set_meta(connection, tables.sequence_key, sequence)


def remember_deletion(connection: apsw.Connection, tables: Tables, doc_id: str, sequence: int) -> None:
    """Stores a deletion for the indexes that have not applied it yet."""
    connection.execute(f"INSERT OR REPLACE INTO {tables.deletions} (sequence, id) VALUES (?, ?)", (sequence, doc_id))


def forget_deletions(connection: apsw.Connection, tables: Tables, doc_ids: Sequence[str]) -> None:
    """Drops the deletion records of documents that are created again."""
    statement = f"DELETE FROM {tables.deletions} WHERE id IN (SELECT value FROM carray(?))"
    connection.execute(statement, (apsw.carray(tuple(doc_ids)),))


def after(connection: apsw.Connection, table: DocumentTable, sequence: int, limit: int) -> list[DocumentChange]:
    """Up to `limit` documents whose newest change came later, oldest change first. Hidden documents count as
    deleted.
    """
    found = table.select(connection, "d.sequence > ? ORDER BY d.sequence LIMIT ?", (sequence, limit), vectors=False)
    deleted = fetch(
        connection,
        f"SELECT sequence, id FROM {table.tables.deletions} WHERE sequence > ? ORDER BY sequence LIMIT ?",
        (sequence, limit),
    )
    changes = [DocumentChange(position, doc_id, None) for position, doc_id in deleted]
    changes += [
        DocumentChange(changed, document.doc_id, None)
        if document.hidden
        else DocumentChange(changed, document.doc_id, document, *_passages(connection, table.tables, position))
        for position, changed, document in found
    ]
    return sorted(changes, key=lambda change: change.sequence)[:limit]


def count_after(connection: apsw.Connection, tables: Tables, sequence: int) -> int:
    """The number of documents that changed later."""
    statement = (
        f"SELECT (SELECT count(*) FROM {tables.documents} WHERE sequence > ?1)"
        f" + (SELECT count(*) FROM {tables.deletions} WHERE sequence > ?1)"
    )
    return int(connection.execute(statement, (sequence,)).get)


def is_followed(connection: apsw.Connection, tables: Tables) -> bool:
    """Whether any index is fed from the collection."""
    statement = "SELECT EXISTS (SELECT 1 FROM index_position WHERE collection = ?)"
    return bool(connection.execute(statement, (tables.collection.name,)).get)


def position(connection: apsw.Connection, tables: Tables, index: str) -> IndexPosition:
    """How far the index has been updated."""
    rows = fetch(
        connection,
        "SELECT sequence, generation FROM index_position WHERE collection = ? AND name = ?",
        (tables.collection.name, index),
    )
    return IndexPosition(*rows[0]) if rows else IndexPosition()


def count_removal(connection: apsw.Connection, tables: Tables) -> None:
    """Counts a document whose data must be removed from the indexes' files."""
    connection.execute(
        "UPDATE index_position SET removed = removed + 1 WHERE collection = ?",
        (tables.collection.name,),
    )


def removed(connection: apsw.Connection, tables: Tables, index: str) -> int:
    """The number of documents removed or replaced since the index was first filled; 0 if unknown."""
    statement = "SELECT coalesce(max(removed), 0) FROM index_position WHERE collection = ? AND name = ?"
    return int(connection.execute(statement, (tables.collection.name, index)).get)


def set_position(connection: apsw.Connection, tables: Tables, index: str, position: IndexPosition) -> None:
    """Stores how far the index has been updated, and drops the deletions that every index has applied."""
    collection = tables.collection.name
    connection.execute(
        "INSERT INTO index_position (collection, name, sequence, generation, removed) VALUES (?, ?, ?, ?, 0)"
        " ON CONFLICT DO UPDATE SET sequence = excluded.sequence, generation = excluded.generation",
        (collection, index, position.sequence, position.generation),
    )
    connection.execute(
        f"DELETE FROM {tables.deletions} WHERE sequence <="
        " (SELECT min(sequence) FROM index_position WHERE collection = ?)",
        (collection,),
    )


def _passages(
    connection: apsw.Connection, tables: Tables, document: int
) -> tuple[tuple[int, ...], NDArray[np.float32]]:
    statement = f"SELECT id, vector FROM {tables.passages} WHERE position = ? ORDER BY ordinal"
    rows = fetch(connection, statement, (document,))
    if not rows:
        return (), np.empty((0, 0), np.float32)
    vectors = np.frombuffer(b"".join(row[1] for row in rows), VECTOR_TYPE).reshape(len(rows), -1)
    return tuple(row[0] for row in rows), vectors.astype(np.float32, copy=False)
