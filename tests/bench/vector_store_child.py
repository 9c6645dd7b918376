"""LanceDB and sqlite-vec in a process of their own, which `vector_stores.py` starts in their environment.

Its arguments are a file of vectors and an empty folder. Once everything is stored, it writes the names of its searches
as a line of JSON. For each line with a name and a vector, it then writes the seconds that the search took, and the
numbers of the vectors that it found. Searches return texts, as a store of memories does.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import apsw
import lancedb  # in an environment of their own, with nothing of Mnemon
import numpy as np
import pyarrow
import sqlite_vec
from lancedb.index import HnswSq

LIMIT = 10
ROWS_AT_ONCE = 10_000
CANDIDATES = 128
"""How many vectors an HNSW index looks at; hnswlib gets the same number."""

Search = Callable[[Any], list[int]]


def main() -> None:
    """Stores the vectors, and answers searches until its input ends."""
    vectors, folder = np.load(sys.argv[1], mmap_mode="r"), Path(sys.argv[2])
    searches = {
        "LanceDB, exact": _lancedb(folder / "exact.lance", vectors, indexed=False),
        "LanceDB, its HNSW index with int8": _lancedb(folder / "indexed.lance", vectors, indexed=True),
        "sqlite-vec, exact": _sqlite_vec(folder / "vectors.db", vectors),
    }
    print(json.dumps(list(searches)), flush=True)
    for line in sys.stdin:
        name, numbers = json.loads(line)
        query = np.array(numbers, np.float32)
        began = perf_counter()
        found = searches[name](query)
        print(json.dumps([perf_counter() - began, found]), flush=True)


def _lancedb(path: Path, vectors: Any, *, indexed: bool) -> Search:
    table = lancedb.connect(path).create_table("memories", _batches(vectors), schema=_schema(vectors.shape[1]))
    if indexed:
        table.create_index("vector", config=HnswSq(distance_type="cosine", num_partitions=1))

    def search(query: Any) -> list[int]:
        question = table.search(query, vector_column_name="vector").metric("cosine").limit(LIMIT)
        rows = (question.ef(CANDIDATES) if indexed else question).select(["id", "text", "_distance"]).to_list()
        return [row["id"] for row in rows]

    return search


def _schema(dimension: int) -> Any:
    vector = pyarrow.list_(pyarrow.float32(), dimension)
    return pyarrow.schema([("id", pyarrow.int64()), ("text", pyarrow.string()), ("vector", vector)])


def _batches(vectors: Any) -> Any:
    for start in range(0, len(vectors), ROWS_AT_ONCE):
        part = np.asarray(vectors[start : start + ROWS_AT_ONCE], np.float32)
        ids = range(start, start + len(part))
        column = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(part.ravel()), part.shape[1])
        yield pyarrow.RecordBatch.from_arrays(
            [pyarrow.array(ids), pyarrow.array(map(_text, ids)), column], schema=_schema(part.shape[1])
        )


def _sqlite_vec(path: Path, vectors: Any) -> Search:
    connection = apsw.Connection(str(path))
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())
    dimension = vectors.shape[1]
    connection.execute(f"CREATE VIRTUAL TABLE near USING vec0(vector float[{dimension}] distance_metric=cosine)")
    connection.execute("CREATE TABLE memories (id INTEGER PRIMARY KEY, text TEXT)")
    with connection:
        connection.executemany(
            "INSERT INTO near (rowid, vector) VALUES (?, ?)",
            ((row, vectors[row].tobytes()) for row in range(len(vectors))),
        )
        connection.executemany("INSERT INTO memories VALUES (?, ?)", ((row, _text(row)) for row in range(len(vectors))))

    def search(query: Any) -> list[int]:
        rows = connection.execute(
            "SELECT m.id, m.text, n.distance FROM (SELECT rowid, distance FROM near WHERE vector MATCH ? AND k = ?)"
            " AS n JOIN memories AS m ON m.id = n.rowid ORDER BY n.distance",
            (query.tobytes(), LIMIT),
        )
        return [row[0] for row in rows]

    return search


def _text(number: int) -> str:
    return f"Memory number {number} is about subject {number % 1000}."


if __name__ == "__main__":
    main()
