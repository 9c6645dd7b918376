"""The change log on SQLite: the read side."""

import json
from bisect import bisect_left
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import datetime
from functools import lru_cache
from typing import Any

import apsw

from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.domain.access.shares import is_whole_user
from mnemon_server.domain.changes import (
    CHANGES_BY_DECISIONS,
    CHANGES_OF_FACTS,
    CHANGES_OF_USERS,
    LOG_TABLE,
    Change,
    ChangeFilter,
    ChangeLogState,
    ChangeSlice,
    ChangeType,
)
from mnemon_server.domain.clock import from_microseconds, to_microseconds
from mnemon_server.domain.damage import UNREADABLE
from mnemon_server.domain.encoding import SCOPE_FIELDS, scope_values
from mnemon_server.domain.errors import RecordDamagedError
from mnemon_server.domain.records import Scope
from mnemon_server.engines.sqlite.connections import Connections
from mnemon_server.engines.sqlite.journal import Journal
from mnemon_server.engines.sqlite.query import fetch, stored_meta

SCAN_MAX = 100_000
"""Maximum number of entries that one read scans, so that a filter with few matches does not occupy a reader for
long.
"""

_SCOPE = ", ".join(SCOPE_FIELDS)
_COLUMNS = f"sequence, commit_sequence, time, type, record_id, revision, {_SCOPE}, request_id, changed, details"

# ruff: noqa: S608 - table and column names are constants; all input is bound
_TYPES = {kind.value: kind for kind in ChangeType}


class SQLiteChangeLog:
    """See ChangeLog."""

    def __init__(self, journal: Journal, connections: Connections) -> None:
        self._journal = journal
        self._connections = connections

    @property
    def epoch(self) -> bytes:
        """See ChangeLog."""
        return self._journal.epoch

    @property
    def origin(self) -> bytes:
        """See ChangeLog."""
        return self._journal.origin

    def read(self, after: int, *, limit: int, where: ChangeFilter) -> ChangeSlice:
        """See ChangeLog."""
        conditions, parameters = _conditions(where)
        statement = (
            f"SELECT {_COLUMNS} FROM event WHERE sequence > ? AND sequence <= ?{conditions} ORDER BY sequence LIMIT ?"
        )
        # Later rows in the file were just committed, and are not yet in every index.
        head = self._journal.state.head
        with self._connections.lend() as connection:
            start = max(after, self._journal.state.floor)
            end = min(head, start + SCAN_MAX)
            changes = _read_changes(connection, statement, (start, end, *parameters, limit))
            # Read the floor last, so that it includes what a trim dropped before the rows were read.
            floor = int(stored_meta(connection, "event.floor") or 0)
        position = changes[-1].sequence if len(changes) == limit else max(start, end)
        return ChangeSlice(tuple(changes), position, caught_up=position >= head, floor=floor)

    def position_before(self, time: datetime) -> int:
        """See ChangeLog."""
        wanted = to_microseconds(time)
        with self._connections.lend() as connection:
            [(first, head)] = fetch(connection, "SELECT min(sequence), max(sequence) FROM event")
            if head is None:
                return self._journal.state.head
            # Commit times never decrease in the log, so sequence order is time order.
            sequences = range(first, head + 1)
            older = bisect_left(sequences, wanted, key=lambda sequence: _time_from(connection, sequence))
            return int(first) - 1 + older

    def state(self) -> ChangeLogState:
        """See ChangeLog."""
        state = self._journal.state
        return ChangeLogState(
            floor=state.floor,
            head=state.head,
            count=state.count,
            first_time=None if state.first_time is None else from_microseconds(state.first_time),
            head_time=from_microseconds(state.head_time) if state.head else None,
        )

    def trim(self, *, before: datetime, keep_max: int, keep_after: int | None = None) -> Future[int]:
        """See ChangeLog."""
        limit = to_microseconds(before)
        return self._connections.submit(lambda connection: self._journal.trim(connection, limit, keep_max, keep_after))


def read_change(connection: apsw.Connection, sequence: int) -> Change | None:
    """The change at a position. Raises RecordDamagedError if it cannot be read."""
    statement = f"SELECT {_COLUMNS} FROM event WHERE sequence > ? AND sequence <= ? ORDER BY sequence LIMIT ?"
    return next(iter(_read_changes(connection, statement, (sequence - 1, sequence, 1))), None)


def _conditions(where: ChangeFilter) -> tuple[str, list[Any]]:
    conditions = ""
    parameters: list[Any] = []
    for column, values in (
        ("type", sorted(kind.value for kind in where.types)),
        ("record_id", sorted(where.record_ids)),
    ):
        if values:
            conditions += f" AND {column} IN (SELECT value FROM carray(?))"
            parameters.append(apsw.carray(tuple(values)))
    for name, value in zip(SCOPE_FIELDS, scope_values(where.scope), strict=True):
        if value:
            conditions += f" AND {name} = ?"
            parameters.append(value)
    if where.conversation:
        # A CASE does not evaluate the branch that does not apply, which would be an error.
        said = "CASE WHEN json_valid(details) THEN json_extract(details, '$.conversation') = ? ELSE 0 END"
        conditions += f" AND type = ? AND {said}"
        parameters += [ChangeType.EPISODIC_SAVED.value, where.conversation]
    if where.bounds.is_bound:
        condition, values = _within(where.bounds)
        conditions += f" AND {condition}"
        parameters += values
    for origin, name in where.bounds.hidden:
        conditions += " AND NOT (origin = ? AND origin_name = ?)" if name else " AND origin <> ?"
        parameters += [origin, name] if name else [origin]
    return conditions, parameters


_IS_OF_TYPES = "type IN (SELECT value FROM carray(?))"


def _within(bounds: Bounds) -> tuple[str, list[Any]]:
    """Selects what `ChangeFilter.matches` does. Users come first: they leave out most changes for the least work."""
    users, named = _of_users(bounds.scopes())
    namespaces, spaces = "1", bounds.spaces()
    if spaces is not None:
        each = (
            " AND ".join(f"json_extract(details, '$.namespace[{i}]') = ?" for i in range(len(one))) for one in spaces
        )
        # A CASE does not evaluate the branch that does not apply, which would be an error.
        namespaces = f"CASE WHEN json_valid(details) THEN {' OR '.join(each) or '0'} ELSE 0 END"
    owned = _IS_OF_TYPES
    labels = [label for one in spaces or () for label in one]
    parameters = [*named, _carray(CHANGES_OF_USERS), _carray(CHANGES_OF_FACTS), *labels]
    return f"({users} AND {owned} OR {owned} AND {namespaces})", parameters


def _of_users(scopes: Sequence[Scope] | None) -> tuple[str, list[Any]]:
    if scopes is None:
        return "1", []
    conditions: list[str] = []
    parameters: list[Any] = []
    if users := tuple(each.user for each in scopes if is_whole_user(each)):
        conditions.append("user IN (SELECT value FROM carray(?))")
        parameters.append(apsw.carray(users))
    for each in scopes:
        if not is_whole_user(each):
            given = [(name, value) for name, value in zip(SCOPE_FIELDS, scope_values(each), strict=True) if value]
            conditions.append(" AND ".join([*(f"{name} = ?" for name, _ in given), f"NOT {_IS_OF_TYPES}"]))
            parameters += [*(value for _, value in given), _carray(CHANGES_BY_DECISIONS)]
    return f"({' OR '.join(conditions) or '0'})", parameters


def _carray(types: frozenset[ChangeType]) -> Any:
    return apsw.carray(tuple(sorted(kind.value for kind in types)))


def _time_from(connection: apsw.Connection, sequence: int) -> int:
    """Commit time of the change at a position, or of the next one after it."""
    statement = "SELECT time FROM event WHERE sequence >= ? ORDER BY sequence LIMIT 1"
    return int(connection.execute(statement, (sequence,)).get)


def _read_changes(connection: apsw.Connection, statement: str, parameters: Sequence[Any]) -> list[Change]:
    changes: list[Change] = []
    try:
        for row in connection.execute(statement, parameters):
            changes.append(_change(row))  # noqa: PERF401 - the caller needs the changes read before a damaged one
    except (*UNREADABLE, apsw.CorruptError) as error:
        start = changes[-1].sequence if changes else parameters[0]
        next_one = connection.execute(statement.replace(_COLUMNS, "sequence"), (start, *parameters[1:-1], 1))
        raise RecordDamagedError(LOG_TABLE, str(next_one.get)) from error
    return changes


def _change(row: Sequence[Any]) -> Change:
    sequence, commit, time, kind, record_id, revision, *scope, request_id, changed, details = row
    return Change(
        sequence,
        commit,
        _time(time),
        _TYPES[kind],
        record_id,
        revision,
        _scope(*scope),
        request_id,
        _names(changed) if changed else (),
        details,
    )


_time = lru_cache(maxsize=1_024)(from_microseconds)
"""Changes that were committed together share their time."""


@lru_cache(maxsize=1_024)
def _names(changed: str) -> tuple[str, ...]:
    return tuple(json.loads(changed))


@lru_cache(maxsize=1_024)
def _scope(*names: str) -> Scope:
    return Scope(*names)
