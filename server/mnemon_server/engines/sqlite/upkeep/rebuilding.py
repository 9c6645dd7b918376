"""Writes records.db anew: what clients have stored is copied, and what is derived from it is derived again.

A damaged page cannot be removed from the tree that it belongs to. But a file in which only indexes are damaged has
everything that a new file needs.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

from mnemon_server.domain.collections import COLLECTIONS
from mnemon_server.domain.errors import RecordDamagedError, StorageFullError
from mnemon_server.engines.file_errors import translated
from mnemon_server.engines.private import create_file
from mnemon_server.engines.sqlite.documents import DocumentTable
from mnemon_server.engines.sqlite.pages.conversion import discard_draft, draft_of, put_draft_in_place
from mnemon_server.engines.sqlite.pages.database import MODE_NEW, MODE_READ, attach, connect, has_log
from mnemon_server.engines.sqlite.pages.mark import check_mark
from mnemon_server.engines.sqlite.query import fetch
from mnemon_server.engines.sqlite.tables import Tables, passage_text, stored_heads
from mnemon_server.engines.vault_key import VaultKeyFile

# ruff: noqa: S608 - names of tables come from the file and are quoted, or are constants

DOCUMENTS_AT_ONCE = 250
PASSAGES_AT_ONCE = 256


class NotDerivableError(RecordDamagedError):
    """A table with what clients have stored cannot be read."""


def rebuild(
    path: Path,
    keys: VaultKeyFile,
    advance: Callable[[int], object],
    *,
    check: Callable[[Path], None],
    dry_run: bool = False,
) -> None:
    """Replaces records.db in one step, unless that would lose something. The caller has locked the folder.

    No connection may be open. `advance` gets the number of documents whose indexes are made. `check` reads the new file
    before it replaces the old one; what it raises is raised here. A dry run removes the new file instead.

    Raises:
        NotDerivableError, CommitsLostError: more than indexes is damaged. The file is as it was.
        StorageFullError, StorageFailedError: the disk is full, or failed, and the file is as it was.
        apsw.Error: the file cannot be read or written, and is as it was.
    """
    with translated("rebuild", path.name):
        if has_log(path):
            _check_log(path, keys, empty=not dry_run)
        discard_draft(path)
        try:
            # Created first, because SQLite would make it readable by other users.
            create_file(draft_of(path))
            with closing(connect(draft_of(path), keys, flags=MODE_NEW | apsw.SQLITE_OPEN_URI)) as connection:
                attach(connection, path, keys, is_at_rest=not has_log(path))
                with connection:
                    _Copy(connection).run(advance)
            check(draft_of(path))
            if not dry_run:
                put_draft_in_place(path)
        except apsw.FullError as error:
            raise StorageFullError(
                f"{path.name} is being rebuilt, which needs as much free space as its size; free some space"
            ) from error
        finally:
            discard_draft(path)


def _check_log(path: Path, keys: VaultKeyFile, *, empty: bool) -> None:
    with closing(connect(path, keys, flags=MODE_NEW if empty else MODE_READ)) as connection:
        check_mark(connection, keys)
        if empty:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


class _Copy:
    """Copies the attached database `source` to the empty one of a connection, within a transaction."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._tables = [DocumentTable(collection) for collection in COLLECTIONS]

    def run(self, advance: Callable[[int], object]) -> None:
        connection = self._connection
        schema = fetch(connection, "SELECT type, name, sql FROM source.sqlite_schema WHERE sql IS NOT NULL")
        keywords = self._keyword_tables(schema)
        derived = keywords | self._derived()
        stored = [(name, sql) for kind, name, sql in schema if kind == "table" and name not in keywords]
        for name, sql in stored:
            if not name.startswith("sqlite_"):
                connection.execute(sql)
        copied = [name for name, _ in stored if name not in derived]
        for name in copied:
            self._copy(name)
        for kind, _, sql in schema:
            if kind in {"index", "trigger"}:
                connection.execute(sql)
        for table in self._tables:
            self._derive(table, advance)
        for pragma in ("application_id", "user_version"):
            connection.pragma(pragma, connection.execute(f"PRAGMA source.{pragma}").get)

    def _copy(self, name: str) -> None:
        """Copies the rows of a table."""
        # Rows of sqlite_sequence come into being with those of other tables.
        self._connection.execute(f'DELETE FROM main."{name}"')
        try:
            # With a condition, because SQLite would otherwise copy pages, also those of indexes.
            self._connection.execute(f'INSERT INTO main."{name}" SELECT * FROM source."{name}" NOT INDEXED WHERE true')
        except apsw.CorruptError as error:
            raise NotDerivableError(name) from error

    def _derived(self) -> set[str]:
        """The tables that are derived from others, without those of words."""
        tables = [table.tables for table in self._tables]
        return {
            *(each.metadata for each in tables),
            *(each.vector_blocks for each in tables),
            *(each.related for each in tables),
        }

    def _keyword_tables(self, schema: list[Any]) -> set[str]:
        """The tables of keyword indexes, and those that SQLite keeps for them."""
        virtual = [name for _, name, sql in schema if sql.upper().startswith("CREATE VIRTUAL")]
        parts = {f"{name}_{part}" for name in virtual for part in ("data", "idx", "content", "docsize", "config")}
        packed = [table.tables.keywords.blocks for table in self._tables]
        return {*virtual, *parts, *(each.blocks for each in packed), *(each.words for each in packed)}

    def _derive(self, table: DocumentTable, advance: Callable[[int], object]) -> None:
        """Makes the indexes of a collection. Blocks of vectors are written when a server has opened the vault."""
        for placed in self._documents(table):
            table.add_metadata(self._connection, placed)
            if table.related is not None:
                table.related.insert(self._connection, placed)
            advance(len(placed))
        if table.tables.collection.words:
            self._add_words(table.tables)

    def _add_words(self, tables: Tables) -> None:
        """Makes the keyword index, which takes passages in the order of their ids."""
        for statement in tables.keywords.create_statements():
            self._connection.execute(statement)
        statement = (
            f"SELECT p.id, d.content, d.metadata, p.start, p.stop FROM {tables.passages} AS p"
            f" JOIN {tables.documents} AS d USING (position)"
            " WHERE p.id > ? AND d.hidden = 0 ORDER BY p.id LIMIT ?"
        )
        heads, last = stored_heads(self._connection), 0
        while rows := fetch(self._connection, statement, (last, PASSAGES_AT_ONCE)):
            texts = {passage: passage_text(heads, *rest) for passage, *rest in rows}
            tables.keywords.insert(self._connection, texts)
            last = rows[-1][0]

    def _documents(self, table: DocumentTable) -> Iterator[list[tuple[int, Any]]]:
        after = 0
        condition = "d.position > ? ORDER BY d.position LIMIT ?"
        while rows := table.select(self._connection, condition, (after, DOCUMENTS_AT_ONCE), vectors=False):
            yield [(position, document) for position, _, document in rows]
            after = rows[-1][0]
