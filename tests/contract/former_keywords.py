"""Keyword indexes as older programs filled them."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import apsw
from mnemon_server.domain.collections import DOCUMENTS, FACTS, MEMORIES, SEMANTIC
from mnemon_server.engines.sqlite.keywords.collection import CollectionKeywords
from mnemon_server.engines.sqlite.keywords.index import KeywordIndex
from mnemon_server.engines.sqlite.keywords.packing import PackingRound
from mnemon_server.engines.sqlite.tables import Tables
from mnemon_server.ranking.analysis import FORMER_WORDS

from tests.support.databases import open_database
from tests.support.server import wait_until

T = TypeVar("T")


def write_format_15(folder: Path) -> None:
    """Gives the closed vault of this program the tables of that format: statements had no keyword index."""
    connection = open_database(folder / "records.db")
    with connection:
        for statement in Tables(SEMANTIC).keywords.current.drop_statements():
            connection.execute(statement)
        connection.pragma("user_version", 15)
    connection.close()


def write_format_14(folder: Path) -> None:
    """Gives the closed vault of this program the tables of that format, with the same passages, packed if they are many
    enough.
    """
    write_format_15(folder)
    connection = open_database(folder / "records.db")
    for each in _indexed_then():
        _replace_current(connection, each, each.former)
    with connection:
        connection.pragma("user_version", 14)
    connection.close()


def write_format_11(folder: Path) -> None:
    """The same for that format. What the words are does not matter: they are not read any more."""
    write_format_15(folder)
    connection = open_database(folder / "records.db")
    for each in _indexed_then():
        _replace_current(connection, each, oldest(each))
    with connection:
        connection.execute("DROP TABLE keyword_reindexing")
        connection.execute("DROP TABLE tombstone")
        connection.pragma("user_version", 11)
    connection.close()


def _indexed_then() -> list[CollectionKeywords]:
    return [Tables(each).keywords for each in (DOCUMENTS, MEMORIES, FACTS)]


def oldest(keywords: CollectionKeywords) -> KeywordIndex:
    """The index that formats up to 11 had."""
    return KeywordIndex(_name(keywords), FORMER_WORDS)


def _name(keywords: CollectionKeywords) -> str:
    return keywords.former.first.index.removesuffix("_stemmed_fts")


def _replace_current(connection: apsw.Connection, keywords: CollectionKeywords, index: KeywordIndex) -> None:
    with connection:
        for statement in (*keywords.current.drop_statements(), *index.create_statements()):
            connection.execute(statement)
    name = _name(keywords)
    stored = connection.execute(
        f"SELECT p.id, substr(d.content, p.start + 1, p.stop - p.start) FROM {name}_passage AS p"
        f" JOIN {name} AS d USING (position) WHERE d.hidden = 0 ORDER BY p.id"
    ).fetchall()
    for passage_id, text in stored:
        with connection:
            index.insert(connection, {int(str(passage_id)): str(text)})
        while PackingRound(_Transactions(connection), index, lambda: False).run():
            pass


def is_reindexed(folder: Path) -> bool:
    """Whether no collection has a former index any more."""
    connection = open_database(folder / "records.db", flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(5_000)
    [(count,)] = connection.execute("SELECT count(*) FROM keyword_reindexing").fetchall()
    connection.close()
    return count == 0


def wait_until_reindexed(folder: Path) -> None:
    """Waits until an open vault has only current indexes."""
    wait_until(lambda: is_reindexed(folder))


class _Transactions:
    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    @contextmanager
    def lend(self) -> Iterator[apsw.Connection]:
        yield self._connection

    def submit(self, operation: Callable[[apsw.Connection], T]) -> Future[T]:
        done: Future[T] = Future()
        with self._connection:
            done.set_result(operation(self._connection))
        return done
