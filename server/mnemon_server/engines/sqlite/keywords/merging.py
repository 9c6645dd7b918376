"""Merges adjacent blocks of packed words, because a search reads a row for each of its words in each block.

The words of the later blocks are moved into the rows of the first one, some in each transaction. Searches and deletions
find them in either place, so nothing is lost or found twice after a kill in between; the next round goes on.
"""

from collections.abc import Sequence
from itertools import pairwise

import apsw

from mnemon_server.engines.sqlite.keywords import blocks
from mnemon_server.engines.sqlite.keywords.blocks import BlockTables
from mnemon_server.engines.sqlite.query import fetch, insert_rows

# ruff: noqa: S608 - table and column names are constants; all input is bound

MOVED_ROWS = 512
"""The number of rows that one transaction moves, so that other writes do not wait for long."""

_APPENDED = "ON CONFLICT (block, word) DO UPDATE SET passages = CAST(passages || excluded.passages AS BLOB)"


def is_due(connection: apsw.Connection, tables: BlockTables) -> bool:
    """Whether blocks are to be merged, or words are still to be moved."""
    return _to_move(connection, tables) is not None or bool(_group(connection, tables))


def merge_some(connection: apsw.Connection, tables: BlockTables) -> bool:
    """Does a part of what is due; returns whether anything was."""
    moving = _to_move(connection, tables)
    if moving is not None:
        _move_some(connection, tables, *moving)
        return True
    group = _group(connection, tables)
    if group:
        _begin(connection, tables, group)
    return bool(group)


def _to_move(connection: apsw.Connection, tables: BlockTables) -> tuple[int, int] | None:
    """The first block with words to move, and the block that gets them; or None."""
    statement = (
        "SELECT moving.first,"
        f" (SELECT max(first) FROM {tables.blocks} WHERE first < moving.first AND passage_count > 0)"
        f" FROM {tables.blocks} AS moving WHERE served = 1 AND passage_count = 0 ORDER BY moving.first LIMIT 1"
    )
    return next(iter(fetch(connection, statement)), None)


def _group(connection: apsw.Connection, tables: BlockTables) -> Sequence[int]:
    """The first ids of adjacent blocks that fit into one, if the next one does not; so each is merged about once."""
    group: list[int] = []
    for first, stop in fetch(connection, f"SELECT first, stop FROM {tables.blocks} WHERE served = 1 ORDER BY first"):
        if group and stop - group[0] > blocks.BLOCK_IDS:
            if len(group) > 1:
                return group
            group = []
        group.append(first)
    return ()


def _begin(connection: apsw.Connection, tables: BlockTables, group: Sequence[int]) -> None:
    """Widens the first block over the others, and counts their passages there."""
    within = f"FROM {tables.blocks} WHERE first BETWEEN ?1 AND ?2 AND served = 1"
    connection.execute(
        f"UPDATE {tables.blocks} SET (stop, passage_count, word_count) ="
        f" (SELECT max(stop), sum(passage_count), sum(word_count) {within}) WHERE first = ?1",
        (group[0], group[-1]),
    )
    connection.execute(
        f"UPDATE {tables.blocks} SET passage_count = 0, word_count = 0 WHERE first > ? AND first <= ?",
        (group[0], group[-1]),
    )


def _move_some(connection: apsw.Connection, tables: BlockTables, first: int, target: int) -> None:
    """Moves the next words, in the order of the block's index; drops the block once it has none."""
    rows = fetch(
        connection,
        f"SELECT word, passages FROM {tables.words} WHERE block = ? ORDER BY word LIMIT {MOVED_ROWS}",
        (first,),
    )
    if not rows:
        blocks.drop_block(connection, tables, first)
        return
    joined = blocks.moved(b"".join(passages for _, passages in rows), first - target)
    ends = [0]
    for _, passages in rows:
        ends.append(ends[-1] + len(passages))
    words = ((target, word, joined[start:end]) for (word, _), (start, end) in zip(rows, pairwise(ends), strict=True))
    insert_rows(connection, tables.insert_words, [*words], then=_APPENDED)
    connection.execute(f"DELETE FROM {tables.words} WHERE block = ? AND word <= ?", (first, rows[-1][0]))
