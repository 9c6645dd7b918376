"""The keyword index of one collection and, until all passages are re-indexed, the one that an older program filled.

Older programs did not know the parts of compounds. Their index goes on to answer and to take new passages, while a
thread adds the passages to the current index, in the order of their ids. Once none is left, the current index answers,
in the same transaction, and the former one is dropped in steps. After a kill, the next start goes on where the last one
stopped.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, groupby
from operator import itemgetter
from typing import cast

import apsw

from mnemon_server.engines.promises.values import KeywordScores
from mnemon_server.engines.sqlite.heads import passage_text, stored_heads
from mnemon_server.engines.sqlite.keywords import blocks, fts
from mnemon_server.engines.sqlite.keywords.index import KeywordIndex
from mnemon_server.engines.sqlite.keywords.scoring import PassageIds
from mnemon_server.engines.sqlite.query import fetch
from mnemon_server.ranking.analysis import FORMER_WORDS, STEMMED_WORDS
from mnemon_server.ranking.keyword_context import CONTEXT_WEIGHT

# ruff: noqa: S608 - table and column names are constants; all input is bound

STEP_PASSAGES = 256
STEP_CHARACTERS = 1 << 16
"""How much is re-indexed in one transaction, so that other writes do not wait for long."""

CREATE_STATEMENT = """
CREATE TABLE keyword_reindexing (
  collection TEXT PRIMARY KEY,
  next INTEGER
) STRICT, WITHOUT ROWID"""
"""The collections that have a former index. next: the first passage that the current index lacks; NULL once that one
answers.
"""


class CollectionKeywords:
    """The names of the tables, and what is done with them. Every method works within the caller's transaction."""

    def __init__(self, collection: str, *, passages: str) -> None:
        """The arguments are constants of the program.

        Args:
            collection: the name of the collection, and of the table of its documents.
            passages: the table of its passages.
        """
        self.former = KeywordIndex(f"{collection}_stemmed", FORMER_WORDS)
        self.current = KeywordIndex(f"{collection}_compound", STEMMED_WORDS)
        self._collection = collection
        self._next_passages = f"SELECT id, position, start, stop FROM {passages} WHERE id >= ? ORDER BY id LIMIT ?"
        self._content = f"SELECT content, hidden, metadata FROM {collection} WHERE position = ?"

    def answering(self, connection: apsw.Connection) -> KeywordIndex:
        """The index that searches use, and that has all passages."""
        return self.current if self._state(connection) in ([], [(None,)]) else self.former

    def insert(self, connection: apsw.Connection, texts: Mapping[int, str]) -> None:
        """Adds passages, whose ids are greater than all before."""
        self.answering(connection).insert(connection, texts)

    def delete(self, connection: apsw.Connection, passage_id: int, text: str) -> None:
        """Removes a passage. The text must be the one that was inserted; otherwise the index is damaged."""
        self.current.delete(connection, passage_id, text)
        if self.has_former(connection):
            self.former.delete(connection, passage_id, text)

    def search(
        self,
        connection: apsw.Connection,
        query: str,
        among: PassageIds | None = None,
        *,
        context_weight: float = CONTEXT_WEIGHT,
    ) -> KeywordScores:
        """The passages that share a word with the query, and their scores; see `scoring.score`."""
        return self.answering(connection).search(connection, query, among, context_weight=context_weight)

    # Re-indexing

    def has_former(self, connection: apsw.Connection) -> bool:
        """Whether there is a former index, so that there is something left to do."""
        return bool(self._state(connection))

    def replace(self, connection: apsw.Connection) -> None:
        """Creates the current index. The one that an older program filled becomes the former one, if it is complete."""
        oldest = KeywordIndex(self._collection, FORMER_WORDS)
        is_complete = _exists(connection, self.former) and self._state(connection) in ([], [(None,)])
        connection.execute("DELETE FROM keyword_reindexing WHERE collection = ?", (self._collection,))
        for index in (oldest,) if is_complete else (oldest, self.former):
            for statement in index.drop_statements():
                connection.execute(statement)
        if not is_complete:
            self.fill(connection)
            return
        for statement in self.current.create_statements():
            connection.execute(statement)
        if fetch(connection, self._next_passages, (0, 1)):
            connection.execute("INSERT INTO keyword_reindexing VALUES (?, 0)", (self._collection,))
        else:
            self._drop(connection)

    def fill(self, connection: apsw.Connection) -> None:
        """Creates the tables of the current index, and adds all passages. There is no former index."""
        for statement in self.current.create_statements():
            connection.execute(statement)
        connection.execute("INSERT INTO keyword_reindexing VALUES (?, 0)", (self._collection,))
        while self._state(connection) != [(None,)]:
            self._add_some(connection, cast("int", self._state(connection)[0][0]))
        connection.execute("DELETE FROM keyword_reindexing WHERE collection = ?", (self._collection,))

    def step(self, connection: apsw.Connection) -> bool:
        """Does a part of what is left; returns whether more is."""
        match self._state(connection):
            case []:
                return False
            case [(None,)]:
                return self._drop_some(connection)
            case [(first,)]:
                self._add_some(connection, cast("int", first))
        return True

    def _state(self, connection: apsw.Connection) -> Sequence[tuple[int | None]]:
        return fetch(connection, "SELECT next FROM keyword_reindexing WHERE collection = ?", (self._collection,))

    def _add_some(self, connection: apsw.Connection, first: int) -> None:
        passages = fetch(connection, self._next_passages, (first, STEP_PASSAGES))
        lengths = accumulate(stop - start for *_, start, stop in passages)
        # At least one, whatever its length.
        count = 1 + sum(length < STEP_CHARACTERS for length in lengths)
        texts, heads = dict[int, str](), stored_heads(connection)
        for position, group in groupby(passages[:count], itemgetter(1)):
            [(content, hidden, metadata)] = fetch(connection, self._content, (position,))
            if not hidden:
                for passage_id, _, start, stop in group:
                    texts[passage_id] = passage_text(heads, content, metadata, start, stop)
        following = passages[:count][-1][0] + 1 if passages else None
        if texts:
            self.current.insert(connection, texts)
        connection.execute("UPDATE keyword_reindexing SET next = ? WHERE collection = ?", (following, self._collection))

    def _drop_some(self, connection: apsw.Connection) -> bool:
        for block in blocks.some(connection, self.former.blocks):
            blocks.drop_block(connection, self.former.blocks, block)
            return True
        for tables in (self.former.first, self.former.second):
            if fts.extent(connection, tables)[0]:
                fts.empty(connection, tables)
                return True
        self._drop(connection)
        connection.execute("DELETE FROM keyword_reindexing WHERE collection = ?", (self._collection,))
        return False

    def _drop(self, connection: apsw.Connection) -> None:
        for statement in self.former.drop_statements():
            connection.execute(statement)


def _exists(connection: apsw.Connection, index: KeywordIndex) -> bool:
    return bool(fetch(connection, "SELECT count(*) FROM sqlite_schema WHERE name = ?", (index.first.index,))[0][0])
