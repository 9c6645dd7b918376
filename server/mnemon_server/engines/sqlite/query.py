"""Reads rows. apsw types a row as a union of all SQLite types; the callers know the types of their columns."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import apsw
import numpy as np
from numpy.typing import NDArray


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


def id_array(ids: "Sequence[int] | NDArray[np.int64]") -> Any:
    """Ids as the parameter of `carray(?)`. It cannot be empty, so -1, which is no row's id, stands in."""
    array = np.ascontiguousarray(ids, np.int64)
    return apsw.carray(array if array.size else np.array([-1], np.int64))
