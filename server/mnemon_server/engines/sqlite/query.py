"""Reading rows: apsw types a row as a union of all that SQLite can hold; what a column holds is known here."""

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
    """The rows of a statement, up to `rows_max` at a time."""
    cursor = connection.execute(statement, parameters)
    while rows := list(islice(cursor, rows_max)):
        yield rows


def id_array(ids: "Sequence[int] | NDArray[np.int64]") -> Any:
    """Ids as the parameter of `carray(?)`, which cannot be empty: no row has the id -1."""
    array = np.ascontiguousarray(ids, np.int64)
    return apsw.carray(array if array.size else np.array([-1], np.int64))
