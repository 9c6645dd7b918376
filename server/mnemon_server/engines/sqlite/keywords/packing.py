"""Packs a keyword index: copies a full FTS5 table to blocks in steps, and then empties the table.

Searches use the table until the last step, a short transaction that serves the blocks and empties the table. A kill in
between leaves blocks that are not served. The next round drops them.

Passages may be deleted meanwhile. A deletion removes the passage from the table and from its block. Words that were
read from the table before it, and are written after it, are compared with the passages that the block still has.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TypeVar

import apsw
import numpy as np

from mnemon_server.engines.sqlite.connections import Connections
from mnemon_server.engines.sqlite.keywords import blocks, fts, merging
from mnemon_server.engines.sqlite.keywords.blocks import Block
from mnemon_server.engines.sqlite.keywords.fts import KeywordTables
from mnemon_server.engines.sqlite.keywords.index import KeywordIndex
from mnemon_server.engines.sqlite.keywords.scoring import ID_SHIFT, LENGTH_BITS, PassageIds

READ_BYTES = 1 << 20
READ_WORDS = 4_096
"""How much of the table one step reads at most: about 100,000 occurrences, or this many words."""
WRITTEN_ROWS = 2_048
"""The number of rows that one transaction writes, so that other writes do not wait for long."""
T = TypeVar("T")
Rows = Sequence[tuple[int, str, bytes]]


class KeywordPacking:
    """The packing of the keyword index of one collection; see upkeep.packing.Packing."""

    def __init__(self, index: KeywordIndex) -> None:
        self._index = index

    def is_due(self, connection: apsw.Connection) -> bool:
        """Whether a table is full, or blocks are to be merged."""
        return self._index.closed(connection) is not None or merging.is_due(connection, self._index.blocks)

    def pack(self, connections: Connections, is_stopped: Callable[[], bool]) -> None:
        """Packs the full table, and merges blocks."""
        while PackingRound(connections, self._index, is_stopped).run():
            pass
        merge = partial(merging.merge_some, tables=self._index.blocks)
        while not is_stopped() and connections.submit(merge).result():
            pass


class PackingRound:
    """Packs one table."""

    def __init__(self, connections: Connections, index: KeywordIndex, is_stopped: Callable[[], bool]) -> None:
        """`is_stopped` is asked before each write; if it is true, the round ends and leaves what it has written."""
        self._connections = connections
        self._index = index
        self._tables = index.blocks
        self._is_stopped = is_stopped
        self._blocks: list[Block] = []

    def run(self) -> bool:
        """Packs it; returns whether another round makes sense."""
        self._drop_unfinished()
        with self._connections.lend() as connection:
            table = self._index.closed(connection)
            passages = fts.passages(connection, table) if table is not None else None
        if table is None or passages is None:
            return False
        begun = self._do(lambda connection: self._begin(connection, table, passages))
        if begun is None:
            return not self._is_stopped()
        self._blocks = begun
        for rows in self._words(table):
            for i in range(0, len(rows), WRITTEN_ROWS):
                if self._is_stopped():
                    return False
                part = rows[i : i + WRITTEN_ROWS]
                self._do(partial(self._add, table=table, rows=part))
        return self._do(lambda connection: self._finish(connection, table))

    def _do(self, operation: Callable[[apsw.Connection], T]) -> T:
        return self._connections.submit(operation).result()

    def _drop_unfinished(self) -> None:
        with self._connections.lend() as connection:
            left = blocks.unfinished(connection, self._tables)
        for block in left:
            self._do(partial(blocks.drop_block, tables=self._tables, first=block.first))

    def _begin(self, connection: apsw.Connection, table: KeywordTables, passages: fts.Passages) -> list[Block] | None:
        """Adds the blocks, with the ids of all passages; None if the table has changed since `passages` was read."""
        if fts.extent(connection, table) != passages.extent():
            return None
        ids = passages.rows >> LENGTH_BITS
        begun, start = [], 0
        while start < len(ids):
            end = int(np.searchsorted(ids, ids[start] + blocks.BLOCK_IDS))
            word_count = int(passages.lengths[start:end].sum())
            begun.append(Block(int(ids[start]), int(ids[end - 1]) + 1, end - start, word_count))
            start = end
        blocks.add_blocks(connection, self._tables, begun)
        return begun

    def _words(self, table: KeywordTables) -> Iterator[Rows]:
        """The rows of the blocks, word by word, in lists for which one read transaction each is used."""
        after = ""
        while True:
            with self._connections.lend() as connection:
                words = fts.next_words(connection, table, after, bytes_max=READ_BYTES, words_max=READ_WORDS)
            if not words:
                return
            yield self._packed(words)
            after = words[-1][0]

    def _packed(self, words: Sequence[tuple[str, str]]) -> Rows:
        firsts = np.array([block.first for block in self._blocks], np.int64)
        stops = np.array([block.stop for block in self._blocks], np.int64)
        joined, numbers = fts.occurrences([rows for _, rows in words])
        ids = joined >> ID_SHIFT
        places = np.maximum(np.searchsorted(firsts, ids, side="right") - 1, 0)
        kept = (firsts[places] <= ids) & (ids < stops[places])
        joined, places, numbers = joined[kept], places[kept], numbers[kept]
        packed = blocks.pack(joined, firsts[places]).tobytes()
        starts = np.flatnonzero((np.diff(numbers, prepend=-1) != 0) | (np.diff(places, prepend=-1) != 0))
        bounds = (blocks.PACKED_BYTES * np.append(starts, len(joined))).tolist()
        named = zip(firsts[places[starts]].tolist(), numbers[starts].tolist(), pairwise(bounds), strict=True)
        return [(first, words[number][0], packed[start:end]) for first, number, (start, end) in named]

    def _add(self, connection: apsw.Connection, table: KeywordTables, rows: Rows) -> None:
        counts = {block.first: block.passage_count for block in blocks.unfinished(connection, self._tables)}
        changed = any(counts.get(block.first) != block.passage_count for block in self._blocks)
        if changed:
            # Passages were deleted, perhaps after the rows were read.
            present = {block.first: self._present(connection, table, block) for block in self._blocks}
            rows = [(first, word, blocks.present(first, passages, present[first])) for first, word, passages in rows]
            rows = [row for row in rows if row[2]]
        blocks.add_words(connection, self._tables, rows)

    def _present(self, connection: apsw.Connection, table: KeywordTables, block: Block) -> PassageIds:
        return fts.stored_ids(connection, table, block.first, block.stop - 1)

    def _finish(self, connection: apsw.Connection, table: KeywordTables) -> bool:
        """Serves the blocks instead of the table, unless the table has other passages; returns whether it does."""
        count = sum(block.passage_count for block in blocks.unfinished(connection, self._tables))
        stop = self._blocks[-1].stop if self._blocks else 0
        stored, newest = fts.extent(connection, table)
        is_same = stored == count and newest >> LENGTH_BITS < stop
        if is_same:
            blocks.serve(connection, self._tables)
            fts.empty(connection, table)
        return is_same
