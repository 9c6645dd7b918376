"""Rounded vectors in the database, so that a start reads a fifth of the bytes, and computes nothing from them.

A block has the rounded vectors of all visible passages whose ids differ only in the last seven bits. It is written once
these ids have been assigned. Ids are never reused, so a block could only lose passages later, and a removal deletes the
block in its own transaction. So a block is complete, or it does not exist: then the vectors themselves are read.

A block consists of the SHA-256 of where it belongs and of what follows; the origin of the signs; then for all passages
the last bits of the id (1 byte each), the scales (4 bytes each), the signs and the codes. Numbers are little-endian.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import apsw
import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.records import INT64_MAX
from mnemon_server.engines.promises.values import PassageIds, Vector
from mnemon_server.engines.quantized import RoundedVectors, round_vectors, words_per_vector
from mnemon_server.engines.sqlite.connections import Connections
from mnemon_server.engines.sqlite.documents import NORM_MAX, VECTOR_TYPE
from mnemon_server.engines.sqlite.query import fetch, fetch_chunks, id_array
from mnemon_server.engines.sqlite.tables import BLOCK_ID_BITS, Tables

# ruff: noqa: S608 - table and column names are constants; all input is bound

BLOCK_IDS = 1 << BLOCK_ID_BITS

PACKED_MIN = 128
"""The number of missing blocks from which on they are written: reading their vectors takes 0.1 s."""

BLOCKS_AT_ONCE = 4
"""The number of blocks that one transaction writes, so that other writes do not wait for long."""

ROWS_AT_ONCE = 512
"""The number of vectors read at a time. What is computed from them then stays in a core's cache."""

Rows = Sequence[tuple[int, bytes]]

_DIGEST_BYTES = hashlib.sha256().digest_size
_SCALE_TYPE, _SIGNS_TYPE = np.dtype("<f4"), np.dtype("<u8")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VectorBlock:
    """An intact block."""

    first: int
    """The smallest id that it can have."""
    origin: Vector
    passage_ids: PassageIds
    vectors: RoundedVectors


def read_origin(connection: apsw.Connection, tables: Tables, dimension: int) -> Vector | None:
    """The origin of the first intact block; None if there is no block."""
    return next((block.origin for _, block in _blocks(connection, tables, dimension) if block is not None), None)


def read_parts(
    connection: apsw.Connection, tables: Tables, dimension: int, origin: Vector
) -> Iterator[VectorBlock | Rows]:
    """All visible passages by ascending id: blocks with this origin, and ids with vectors where there is no block.

    Blocks that are damaged or have another origin are deleted at the end, so that they are written again.
    """
    after, unused = 0, list[int]()
    for number, block in _blocks(connection, tables, dimension):
        if block is None or not np.array_equal(block.origin, origin):
            unused.append(number)
            continue
        yield from _rows(connection, tables, after, block.first)
        yield block
        after = block.first + BLOCK_IDS
    yield from _rows(connection, tables, after, INT64_MAX)
    if unused:
        log.warning("%d blocks of %s are damaged; they are written again", len(unused), tables.vector_blocks)
        connection.execute(tables.delete_vector_blocks, (id_array(unused),))


def _rows(connection: apsw.Connection, tables: Tables, first: int, stop: int) -> Iterator[Rows]:
    if first < stop:
        yield from fetch_chunks(connection, range_statement(tables), (first, stop), rows_max=ROWS_AT_ONCE)


def _blocks(connection: apsw.Connection, tables: Tables, dimension: int) -> Iterator[tuple[int, VectorBlock | None]]:
    """The blocks by ascending number, which comes with each; None for a damaged one."""
    statement = f"SELECT number, content FROM {tables.vector_blocks} ORDER BY number"
    try:
        for number, content in connection.execute(statement):
            yield number, read_block(tables, dimension, number, content)
    except apsw.CorruptError:
        log.warning("%s cannot be read to its end; vectors are read instead", tables.vector_blocks, exc_info=True)


def block_content(connection: apsw.Connection, tables: Tables, dimension: int, number: int, origin: Vector) -> bytes:
    """The content of a block, from the vectors that the connection sees."""
    first = number * BLOCK_IDS
    rows = fetch(connection, range_statement(tables), (first, first + BLOCK_IDS))
    ids, vectors = read_vectors(rows, dimension)
    rounded = round_vectors(vectors, origin)
    body = b"".join(
        [
            origin.astype(VECTOR_TYPE).tobytes(),
            (ids - first).astype(np.uint8).tobytes(),
            rounded.scales.astype(_SCALE_TYPE).tobytes(),
            rounded.signs.astype(_SIGNS_TYPE).tobytes(),
            rounded.codes.tobytes(),
        ]
    )
    return _digest(tables, dimension, number, body) + body


def read_vectors(rows: Sequence[tuple[int, bytes]], dimension: int) -> tuple[PassageIds, NDArray[np.float32]]:
    """Ids, and vectors of shape (n, dimension), of passages, without damaged vectors, which would distort the scores of
    others.
    """
    sized = [row for row in rows if len(row[1]) == dimension * VECTOR_TYPE.itemsize]
    ids = np.fromiter((row[0] for row in sized), np.int64, len(sized))
    matrix = np.frombuffer(b"".join(row[1] for row in sized), VECTOR_TYPE).reshape(len(sized), dimension)
    # Also false for NaN.
    sound = np.einsum("ij,ij->i", matrix, matrix) <= NORM_MAX**2
    if not sound.all():
        ids, matrix = ids[sound], matrix[sound]
    return ids, matrix.astype(np.float32, copy=False)


def range_statement(tables: Tables) -> str:
    """The statement for the ids and vectors of visible passages whose ids are at least one number, and less than
    another.
    """
    hidden = (
        f"SELECT 1 FROM {tables.documents} AS d INDEXED BY {tables.hidden_index}"
        " WHERE d.hidden = 1 AND d.position = p.position"
    )
    return (
        f"SELECT p.id, p.vector FROM {tables.passages} AS p WHERE p.id >= ? AND p.id < ? AND NOT EXISTS ({hidden})"
        " ORDER BY p.id"
    )


class VectorPacking:
    """Writes the blocks of one collection; see upkeep.packing.Packing."""

    def __init__(self, tables: Tables, dimension: int, origin: Callable[[], Vector | None]) -> None:
        """`origin` returns None while the collection's vectors are not held rounded; then no blocks are needed."""
        self._tables = tables
        self._dimension = dimension
        self._origin = origin

    def is_due(self, connection: apsw.Connection) -> bool:
        """Whether many blocks are missing."""
        if self._origin() is None:
            return False
        count = int(connection.execute(f"SELECT count(*) FROM {self._tables.vector_blocks}").get)
        return self._complete(connection) - count >= PACKED_MIN

    def pack(self, connections: Connections, is_stopped: Callable[[], bool]) -> None:
        """Writes the missing blocks, if there are many."""
        with connections.lend() as connection:
            if not self.is_due(connection):
                return
            stored = {row[0] for row in fetch(connection, f"SELECT number FROM {self._tables.vector_blocks}")}
            missing = [number for number in range(self._complete(connection)) if number not in stored]
        for start in range(0, len(missing), BLOCKS_AT_ONCE):
            origin = self._origin()
            if is_stopped() or origin is None:
                return
            part = missing[start : start + BLOCKS_AT_ONCE]
            connections.submit(partial(self._write, numbers=part, origin=origin)).result()

    def _write(self, connection: apsw.Connection, numbers: Sequence[int], origin: Vector) -> None:
        statement = f"INSERT OR REPLACE INTO {self._tables.vector_blocks} (number, content) VALUES (?, ?)"
        for number in numbers:
            content = block_content(connection, self._tables, self._dimension, number, origin)
            connection.execute(statement, (number, content))

    def _complete(self, connection: apsw.Connection) -> int:
        """The number of blocks whose ids have all been assigned."""
        statement = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = ?"
        return (int(connection.execute(statement, (self._tables.passages,)).get) + 1) >> BLOCK_ID_BITS


def read_block(tables: Tables, dimension: int, number: int, content: bytes) -> VectorBlock | None:
    """Decodes a block; None if it is damaged."""
    body = memoryview(content)[_DIGEST_BYTES:]
    if content[:_DIGEST_BYTES] != _digest(tables, dimension, number, body):
        return None
    words = words_per_vector(dimension)
    of_origin = dimension * VECTOR_TYPE.itemsize
    count = (len(body) - of_origin) // (1 + _SCALE_TYPE.itemsize + words * _SIGNS_TYPE.itemsize + dimension)
    layout = np.dtype(
        [
            ("origin", VECTOR_TYPE, (dimension,)),
            ("ids", np.uint8, (count,)),
            ("scales", _SCALE_TYPE, (count,)),
            ("signs", _SIGNS_TYPE, (words, count)),
            ("codes", np.int8, (count, dimension)),
        ]
    )
    held, first = np.frombuffer(body, layout)[0], number * BLOCK_IDS
    vectors = RoundedVectors(held["signs"], held["codes"], held["scales"])
    return VectorBlock(first, held["origin"].astype(np.float32), first + held["ids"].astype(np.int64), vectors)


def _digest(tables: Tables, dimension: int, number: int, body: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(f"{tables.vector_blocks} {dimension} {number}\n".encode())
    digest.update(body)
    return digest.digest()
