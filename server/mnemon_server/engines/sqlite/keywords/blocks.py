"""Packed occurrences: one row for each block of passages and each of its words.

A block covers up to 65,536 passage ids. The row of a word lists the block's passages that contain it, ascending, in 4
bytes each: the id relative to the block, how often the passage contains the word, and the passage's length. That is
`scoring.Occurrences` with a shorter id, so reading a row takes no more than copying it.

Removing a passage rewrites the rows of its words. Nothing is added to a block that is served, except that `merging`
moves the words of the blocks after it into its rows, so that a search reads fewer rows. It begins by widening the block
over those others, which count no passages from then on. Any reader finds each word in one of the rows meanwhile.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import apsw
import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.sqlite.keywords.scoring import (
    COUNT_MAX,
    ID_SHIFT,
    LENGTH_BITS,
    Found,
    Occurrences,
    PassageIds,
    length_code,
)
from mnemon_server.engines.sqlite.query import fetch, id_array, insert_rows

# ruff: noqa: S608 - table and column names are constants; all input is bound

BLOCK_IDS = 1 << 16
"""The number of ids that fit into a row's entries. A deletion rewrites the rows of its words: 256 KiB for a word that
is in every passage.
"""

_PACKED = np.dtype("<u4")
PACKED_BYTES = _PACKED.itemsize


class BlockTables:
    """The tables of one collection's blocks, and their statements."""

    def __init__(self, collection: str) -> None:
        """`collection` is the name of a collection, a constant of the program."""
        self.blocks = f"{collection}_keyword_block"
        self.words = f"{collection}_keyword"
        self.insert_words = f"INSERT INTO {self.words} (block, word, passages) VALUES"
        self.served = f"SELECT first, stop, passage_count FROM {self.blocks} WHERE served = 1 ORDER BY first"
        self.read = (
            "SELECT word.key, block.value, w.passages FROM json_each(?) AS word CROSS JOIN carray(?) AS block"
            f" CROSS JOIN {self.words} AS w ON w.block = block.value AND w.word = word.value"
        )
        self.of_passage = f"SELECT first FROM {self.blocks} WHERE first <= ?1 AND stop > ?1 ORDER BY first"
        self.of_words = (
            f"SELECT word, passages FROM {self.words} WHERE block = ? AND word IN (SELECT value FROM carray(?))"
        )


@dataclass(frozen=True, slots=True)
class Block:
    """A block of passages: its first id, and the first id after it."""

    first: int
    stop: int
    passage_count: int
    word_count: int


def create_statements(tables: BlockTables) -> list[str]:
    """The statements that create the tables."""
    return [
        # first, stop: the ids of passages that a block covers, without `stop`. word_count: of all passages together.
        # served: 0 while the block is being filled. A served block counts no passages while its words are moved to the
        # one that covers it, too.
        f"""
CREATE TABLE {tables.blocks} (
  first INTEGER PRIMARY KEY,
  stop INTEGER NOT NULL,
  passage_count INTEGER NOT NULL,
  word_count INTEGER NOT NULL,
  served INTEGER NOT NULL
) STRICT""",
        create_words(tables),
    ]


def drop_statements(tables: BlockTables) -> list[str]:
    """The statements that drop the tables if they exist."""
    return [f"DROP TABLE IF EXISTS {tables.words}", f"DROP TABLE IF EXISTS {tables.blocks}"]


def create_words(tables: BlockTables) -> str:
    """The statement that creates the table of words. Rows and keys are in trees of their own: in a single one, SQLite
    reads each row to its end that it compares on its way to another one.
    """
    return f"""
CREATE TABLE {tables.words} (
  block INTEGER NOT NULL,
  word TEXT NOT NULL,
  passages BLOB NOT NULL,
  PRIMARY KEY (block, word)
) STRICT"""


def read(
    connection: apsw.Connection,
    tables: BlockTables,
    terms: Sequence[str],
    terms_json: str,
    among: PassageIds | None = None,
) -> Found:
    """The occurrences in the served blocks of these words, which `terms_json` lists, too. With `among`, which must
    ascend, the blocks without any of these passages are not read.
    """
    served = np.array(fetch(connection, tables.served), np.int64).reshape(-1, 3)
    read = served if among is None else served[_have_any(served, among)]
    rows = fetch(connection, tables.read, (terms_json, id_array(read[:, 0]))) if len(read) else []
    packed: list[list[bytes]] = [[] for _ in terms]
    starts: list[list[int]] = [[] for _ in terms]
    for number, first, passages in sorted(rows, key=itemgetter(1)):
        packed[number].append(passages)
        starts[number].append(first)
    occurrences = [_unpack(blobs, firsts) for blobs, firsts in zip(packed, starts, strict=True)]
    return Found(int(served[:, 2].sum()), occurrences)


def pack(occurrences: Occurrences, firsts: PassageIds) -> NDArray[np.uint32]:
    """Occurrences in the form in which rows contain them. `firsts` are the first ids of their blocks."""
    return (occurrences - (firsts << ID_SHIFT)).astype(_PACKED)


def remove(connection: apsw.Connection, tables: BlockTables, passage_id: int, words: Sequence[str]) -> None:
    """Removes a passage of the index, if a block covers it. `words` are all words of its text."""
    firsts = [first for (first,) in fetch(connection, tables.of_passage, (passage_id,))]
    for first in firsts:
        _remove_words(connection, tables, first, passage_id, words)
    for first in firsts[:1]:
        connection.execute(
            f"UPDATE {tables.blocks} SET passage_count = passage_count - 1, word_count = word_count - ?"
            " WHERE first = ?",
            (len(words), first),
        )
        connection.execute(
            f"DELETE FROM {tables.blocks} WHERE served = 1 AND passage_count = 0 AND first >= ?1"
            f" AND first < (SELECT stop FROM {tables.blocks} WHERE first = ?1 AND passage_count = 0)",
            (first,),
        )


def _remove_words(
    connection: apsw.Connection, tables: BlockTables, first: int, passage_id: int, words: Sequence[str]
) -> None:
    rows = fetch(connection, tables.of_words, (first, apsw.carray(tuple(set(words) or ("",)))))
    left = [(_without(passages, passage_id - first), first, word) for word, passages in rows]
    connection.executemany(
        f"UPDATE {tables.words} SET passages = ? WHERE block = ? AND word = ?", [row for row in left if row[0]]
    )
    connection.executemany(
        f"DELETE FROM {tables.words} WHERE block = ? AND word = ?", [row[1:] for row in left if not row[0]]
    )


def add_blocks(connection: apsw.Connection, tables: BlockTables, added: Sequence[Block]) -> None:
    """Adds blocks that are not served, so far without words."""
    rows = [(block.first, block.stop, block.passage_count, block.word_count) for block in added]
    connection.executemany(f"INSERT INTO {tables.blocks} VALUES (?, ?, ?, ?, 0)", rows)


def add_words(connection: apsw.Connection, tables: BlockTables, rows: Sequence[tuple[int, str, bytes]]) -> None:
    """Adds rows of words: the first id of the block, the word, and its packed occurrences."""
    insert_rows(connection, tables.insert_words, rows)


def unfinished(connection: apsw.Connection, tables: BlockTables) -> list[Block]:
    """The blocks that are not served."""
    statement = f"SELECT first, stop, passage_count, word_count FROM {tables.blocks} WHERE served = 0 ORDER BY first"
    return [Block(*row) for row in fetch(connection, statement)]


def next_served(connection: apsw.Connection, tables: BlockTables, after: int) -> Block | None:
    """The served block with the first passages after an id. Others whose words are moved to it are part of it."""
    statement = (
        f"SELECT first, stop, passage_count, word_count FROM {tables.blocks} WHERE served = 1 AND first > ?"
        " ORDER BY first LIMIT 1"
    )
    rows = fetch(connection, statement, (after,))
    return Block(*rows[0]) if rows else None


def serve(connection: apsw.Connection, tables: BlockTables) -> None:
    """Serves all blocks that have passages."""
    connection.execute(f"DELETE FROM {tables.blocks} WHERE served = 0 AND passage_count = 0")
    connection.execute(f"UPDATE {tables.blocks} SET served = 1 WHERE served = 0")


def some(connection: apsw.Connection, tables: BlockTables) -> list[int]:
    """The first id of one block, served or not, if there is any."""
    return [first for (first,) in fetch(connection, f"SELECT first FROM {tables.blocks} LIMIT 1")]


def drop_block(connection: apsw.Connection, tables: BlockTables, first: int) -> None:
    """Drops a block."""
    connection.execute(f"DELETE FROM {tables.words} WHERE block = ?", (first,))
    connection.execute(f"DELETE FROM {tables.blocks} WHERE first = ?", (first,))


def words_of_block(connection: apsw.Connection, tables: BlockTables, block: Block) -> dict[str, bytes]:
    """The packed occurrences of each word of a block, with those that are still to be moved to it."""
    statement = f"SELECT word, block, passages FROM {tables.words} WHERE block >= ? AND block < ? ORDER BY block"
    found: dict[str, list[bytes]] = {}
    for word, first, passages in fetch(connection, statement, (block.first, block.stop)):
        found.setdefault(word, []).append(moved(passages, first - block.first))
    return {word: b"".join(parts) for word, parts in found.items()}


def moved(passages: bytes, distance: int) -> bytes:
    """Packed occurrences for the rows of a block that begins so many ids earlier."""
    return (np.frombuffer(passages, _PACKED) + np.uint32(distance << ID_SHIFT)).tobytes()


def present(first: int, passages: bytes, passage_ids: PassageIds) -> bytes:
    """A word's packed occurrences in the given passages."""
    entries = np.frombuffer(passages, _PACKED)
    kept: NDArray[np.uint32] = entries[np.isin((entries >> ID_SHIFT) + first, passage_ids)]
    return kept.tobytes()


def pack_texts(first: int, words_of_passages: Mapping[int, Collection[str]]) -> dict[str, bytes]:
    """The rows that a block with these passages should have, given all words of each, by ascending id."""
    found: dict[str, list[int]] = {}
    for passage_id, words in words_of_passages.items():
        row, code = passage_id - first << ID_SHIFT, length_code(len(words))
        for word, count in Counter(words).items():
            found.setdefault(word, []).append(row | min(count, COUNT_MAX) << LENGTH_BITS | code)
    return {word: np.array(entries, _PACKED).tobytes() for word, entries in found.items()}


def _have_any(served: NDArray[np.int64], among: PassageIds) -> NDArray[np.bool_]:
    """Whether each block covers any of these passages."""
    has_any: NDArray[np.bool_] = np.searchsorted(among, served[:, 0]) < np.searchsorted(among, served[:, 1])
    return has_any


def _unpack(packed: Sequence[bytes], firsts: Sequence[int]) -> Occurrences:
    entries = np.frombuffer(b"".join(packed), _PACKED)
    starts = np.array(firsts, np.int64) << ID_SHIFT
    return entries.astype(np.int64) + np.repeat(starts, [len(passages) // PACKED_BYTES for passages in packed])


def _without(passages: bytes, offset: int) -> bytes:
    """The packed occurrences without those of one passage."""
    entries = np.frombuffer(passages, _PACKED)
    low, high = np.searchsorted(entries >> ID_SHIFT, (offset, offset + 1)).tolist()
    return passages[: low * PACKED_BYTES] + passages[high * PACKED_BYTES :]
