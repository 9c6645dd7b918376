"""The keyword index of one collection's passages: packed blocks, and two FTS5 tables for passages not packed yet.

New passages go to one of the tables. Once it holds `PACKED_MIN` passages, the other one takes over, and `packing` packs
the first into blocks, and empties it. So a search reads few rows of FTS5, which cost a hundred times as much as packed
ones, and no table is emptied row by row. Ids of passages only grow, so each table and each block covers its own range.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

import apsw

from mnemon_server.engines.promises.values import KeywordScores
from mnemon_server.engines.sqlite.keywords import blocks, fts
from mnemon_server.engines.sqlite.keywords.blocks import BlockTables
from mnemon_server.engines.sqlite.keywords.fts import KeywordTables
from mnemon_server.engines.sqlite.keywords.scoring import PassageIds, score
from mnemon_server.engines.sqlite.query import fetch
from mnemon_server.ranking.analysis import STEMMED_WORDS
from mnemon_server.ranking.keyword_context import CONTEXT_WEIGHT

# ruff: noqa: S608 - table and column names are constants; all input is bound

PACKED_MIN = 16_000
"""Number of passages from which on a table is packed. Four such tables, and what came with the last ones, fill a block.
"""


class _Level(NamedTuple):
    tables: KeywordTables
    newest: int
    """The newest row; -1 if the table is empty."""
    passage_count: int


class KeywordIndex:
    """The names of the tables, and what is done with them. Every method works within the caller's transaction."""

    def __init__(self, name: str) -> None:
        """`name` begins the names of the tables, a constant of the program."""
        self.first = KeywordTables(name)
        self.second = KeywordTables(f"{name}_next")
        self.blocks = BlockTables(name)
        self._levels = "SELECT " + ", ".join(
            f"(SELECT coalesce(max(id), -1) FROM {tables.index}_docsize),"
            f" (SELECT block FROM {tables.index}_data WHERE id = 1)"
            for tables in (self.first, self.second)
        )

    def create_statements(self) -> list[str]:
        """The statements that create all tables."""
        return [
            *fts.create_statements(self.first),
            *fts.create_statements(self.second),
            *blocks.create_statements(self.blocks),
        ]

    def terms(self, text: str) -> list[str]:
        """All terms of a passage, in order."""
        return STEMMED_WORDS.terms(text)

    def insert(self, connection: apsw.Connection, texts: Mapping[int, str]) -> None:
        """Adds passages, whose ids are greater than all before."""
        _, current = self._closed_and_open(connection)
        fts.insert(connection, current, texts)

    def delete(self, connection: apsw.Connection, passage_id: int, text: str) -> None:
        """Removes a passage. The text must be the one that was inserted; otherwise the index is damaged."""
        for tables in (self.first, self.second):
            if len(fts.stored_ids(connection, tables, passage_id, passage_id)):
                fts.delete(connection, tables, passage_id, text)
        # Also while its block is being filled from one of the tables.
        blocks.remove(connection, self.blocks, passage_id, self.terms(text))

    def search(
        self,
        connection: apsw.Connection,
        query: str,
        among: PassageIds | None = None,
        *,
        context_weight: float = CONTEXT_WEIGHT,
    ) -> KeywordScores:
        """The passages that share a word with the query, and their scores; see `scoring.score`."""
        words = STEMMED_WORDS.query(query)
        parts = [
            blocks.read(connection, self.blocks, words.terms, json.dumps(words.terms, ensure_ascii=False), among),
            *(fts.read(connection, tables, words.terms) for tables in self._unpacked(connection)),
        ]
        return score(words, parts, among, context_weight=context_weight)

    def closed(self, connection: apsw.Connection) -> KeywordTables | None:
        """The full table, which takes no passages until it is packed and emptied; None if neither is full."""
        return self._closed_and_open(connection)[0]

    def is_packed(self, connection: apsw.Connection, passage_id: int) -> bool:
        """Whether a block that is served covers this id."""
        statement = f"SELECT count(*) FROM {self.blocks.blocks} WHERE first <= ?1 AND stop > ?1 AND served = 1"
        return bool(fetch(connection, statement, (passage_id,))[0][0])

    def unpacked_count(self, connection: apsw.Connection, passage_id: int) -> int:
        """How often a passage is in the FTS5 tables."""
        parts = (fts.stored_ids(connection, tables, passage_id, passage_id) for tables in (self.first, self.second))
        return sum(map(len, parts))

    def _unpacked(self, connection: apsw.Connection) -> list[KeywordTables]:
        """The tables that have passages. To look for words in an empty one takes 0.2 ms."""
        [(newest, _, other_newest, _)] = fetch(connection, self._levels)
        return [tables for tables, row in ((self.first, newest), (self.second, other_newest)) if row >= 0]

    def _closed_and_open(self, connection: apsw.Connection) -> tuple[KeywordTables | None, KeywordTables]:
        """The table to pack, and the one to which passages are added."""
        [(newest, averages, other_newest, other_averages)] = fetch(connection, self._levels)
        older = _Level(self.first, newest, fts.passage_count(averages))
        younger = _Level(self.second, other_newest, fts.passage_count(other_averages))
        if older.newest >= younger.newest:
            older, younger = younger, older
        if older.newest >= 0:
            return older.tables, younger.tables
        if younger.passage_count >= PACKED_MIN:
            return younger.tables, older.tables
        return None, younger.tables
