"""Reads and inserts rows. apsw types a row as a union of all SQLite types; callers know the types of their columns."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import Any

import apsw
import numpy as np
from numpy.typing import NDArray

_ROWS_AT_ONCE = (64, 8, 1)
"""How many rows a statement inserts: as many as there are, so that few statements remain."""


def insert_rows(connection: apsw.Connection, statement: str, rows: Sequence[Sequence[Any]], *, then: str = "") -> None:
    """Inserts rows of equal length. `statement` ends with VALUES; `then` follows the rows.

    Many rows in one statement, because each statement releases the interpreter lock: a thread that waits for it wakes
    up for nothing, which takes longer than inserting a row.
    """
    if not rows:
        return
    done = 0
    for count in _ROWS_AT_ONCE:
        until = len(rows) - (len(rows) - done) % count
        if done < until:
            groups = (tuple(chain.from_iterable(rows[i : i + count])) for i in range(done, until, count))
            connection.executemany(f"{_with_marks(statement, len(rows[0]), count)} {then}", groups)
        done = until


@lru_cache(maxsize=256)
def _with_marks(statement: str, width: int, count: int) -> str:
    marks = f"({', '.join('?' * width)})"
    return f"{statement} {', '.join([marks] * count)}"


def fetch(connection: apsw.Connection, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
    """All rows of a statement, as tuples."""
    return connection.execute(statement, parameters).fetchall()


def fetch_chunks(
    connection: apsw.Connection, statement: str, parameters: Sequence[Any] = (), *, rows_max: int
) -> Iterator[list[Any]]:
    """The rows of a statement, in lists of up to `rows_max`."""
    cursor = connection.execute(statement, parameters)
    while rows := list(islice(cursor, rows_max)):
        yield rows


def stored_meta(connection: apsw.Connection, key: str) -> Any:
    """The value in `meta` under a key; None without one."""
    return connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).get


def set_meta(connection: apsw.Connection, key: str, value: str | int | bytes) -> None:
    """Stores a value in `meta`. Replaces the previous one."""
    connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))


def ids_from_text(text: str | None) -> NDArray[np.int64]:
    """The integers of a `group_concat`. Fetching many as one text takes a third of the time of fetching rows."""
    return np.fromstring(text or "", np.int64, sep=",")


def id_array(ids: "Sequence[int] | NDArray[np.int64]") -> Any:
    """Ids as the parameter of `carray(?)`. It cannot be empty, so -1, which is no row's id, stands in."""
    array = np.ascontiguousarray(ids, np.int64)
    return apsw.carray(array if array.size else np.array([-1], np.int64))


def runs_of(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first and the last of each run without a gap, of shape (runs, 2). The ids ascend, and are not negative."""
    starts, ends = np.diff(ids, prepend=-2) != 1, np.diff(ids, append=-2) != 1
    return np.column_stack((ids[starts], ids[ends]))
