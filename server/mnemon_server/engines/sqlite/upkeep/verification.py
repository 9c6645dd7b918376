"""Reads all data in a records.db and reports damage, while a server may be running.

Nothing is changed. Every row is read and decoded. Records are compared with their digests, metadata, passages and index
rows, and SQLite's own checks run table by table. Rows are read in short transactions, so that a running server's writes
are delayed no more than by a search.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import numpy as np

from mnemon_server.domain.backup import RECORDS
from mnemon_server.domain.collections import COLLECTIONS
from mnemon_server.domain.damage import UNREADABLE
from mnemon_server.domain.documents import Document
from mnemon_server.domain.encoding import document_digest
from mnemon_server.domain.errors import MnemonError, StorageFailedError
from mnemon_server.engines.folder import find_files
from mnemon_server.engines.layout import is_new
from mnemon_server.engines.sqlite.change_log import read_change
from mnemon_server.engines.sqlite.documents import NORM_MAX, DocumentTable
from mnemon_server.engines.sqlite.filters.metadata_index import metadata_rows
from mnemon_server.engines.sqlite.keywords import blocks
from mnemon_server.engines.sqlite.keywords.blocks import Block
from mnemon_server.engines.sqlite.keywords.index import KeywordIndex
from mnemon_server.engines.sqlite.pages.database import connect_at_rest, has_fingerprint, has_log
from mnemon_server.engines.sqlite.pages.mark import MARK_FILE, read_mark, stored_commits
from mnemon_server.engines.sqlite.pages.page_file import PageFile
from mnemon_server.engines.sqlite.query import fetch, id_array, stored_meta
from mnemon_server.engines.sqlite.schema import APPLICATION_ID, open_reader
from mnemon_server.engines.sqlite.tables import Tables, passage_text, stored_heads
from mnemon_server.engines.sqlite.vector_blocks import block_content, read_block
from mnemon_server.engines.vault_key import KEY_FILE, VaultKey, VaultKeyFile
from mnemon_server.wire.events import decode, encode

# ruff: noqa: S608 - table and column names come from the file and are quoted

ROWS_MAX = 250
"""Number of rows read in one transaction."""
PASSAGE_IDS = 1 << 14
"""Range of the passages whose words are in memory at the same time."""
MARK_READS_MAX = 4
PROBLEMS_MAX = 1_000
"""Maximum number of problems reported by SQLite's own checks."""
NORM_MIN = 0.999

_UNREADABLE = (*UNREADABLE, apsw.Error, MnemonError)


@dataclass(frozen=True, slots=True)
class DamagedRow:
    """A problem in a row. `row` is the id of a record or the key of a row; empty if the whole table is affected."""

    table: str
    row: str
    problem: str

    def __str__(self) -> str:
        return f"{self.table}{f' {self.row}' if self.row else ''}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Step:
    """Progress since the previous step, and the damage found."""

    rows: int
    damages: tuple[DamagedRow, ...] = ()


class RecordsVerifier:
    """Reads one records.db. A context manager."""

    def __init__(self, file: Path, keys: VaultKeyFile) -> None:
        """Opens the file, whose key is in `keys`.

        Raises:
            ConfigurationError: it is not a Mnemon database, has another layout, or its key is not there.
            RecordDamagedError, StorageFailedError: it cannot be read at all.
        """
        self._file = file
        self._keys = keys
        self._lock = _lock_folder(file.parent)
        try:
            self._connection = self._connect(file)
            is_new(self._connection, file, APPLICATION_ID)
            self._tables = _tables(self._connection)
            self._dimension = _dimension(self._connection)
            self._total = sum(_count(self._connection, table) for table in self._tables)
        except apsw.Error as error:
            self.__exit__()
            raise StorageFailedError(f"{file} cannot be read: {error}") from error
        except BaseException:
            self.__exit__()
            raise

    def _connect(self, file: Path) -> apsw.Connection:
        return open_still(file, self._keys) if self._lock is not None else open_reader(file, self._keys)

    def __enter__(self) -> "RecordsVerifier":
        return self

    def __exit__(self, *_: object) -> None:
        if hasattr(self, "_connection"):
            self._connection.close(True)
        if self._lock is not None:
            os.close(self._lock)

    @property
    def is_served(self) -> bool:
        """Whether a server has the file open."""
        return self._lock is None

    @property
    def row_count(self) -> int:
        """The approximate number of rows that `run` reads."""
        return 2 * self._total

    def run(self) -> Iterator[Step]:
        """Reads all data, step by step."""
        yield Step(0, tuple(self._files()))
        for table in self._tables:
            yield Step(_count(self._connection, table), tuple(self._checked_by_sqlite(table)))
        yield Step(0, tuple(self._foreign()))
        for table in self._tables:
            try:
                yield from self._read(table)
            except apsw.Error as error:
                yield Step(0, (DamagedRow(table, "", _describe_error(error)),))

    def _read(self, table: str) -> Iterator[Step]:
        collections = {collection.name: collection for collection in COLLECTIONS}
        if table in collections:
            yield from self._documents(DocumentTable(collections[table]))
        elif table == "event":
            yield from self._checked_rows("event", "sequence", self._check_change)
        elif table == "timeline_event":
            yield from self._checked_rows("timeline_event", "sequence", self._check_timeline_event)
        else:
            yield from self._rows(table)

    # The pages, and the files beside them

    def _files(self) -> Iterator[DamagedRow]:
        folder = self._file.parent
        if (key := self._keys.find()) is not None:
            if not self._keys.is_whole():
                yield DamagedRow(KEY_FILE, "", "one of the two copies of the key in it is damaged")
            marked, is_sound = self._read_mark(folder, key)
            if not is_sound:
                yield DamagedRow(MARK_FILE, "", "it is not what was written")
            if (found := stored_commits(self._connection)) < marked:
                yield DamagedRow("the log", "", f"there are {found:,} commits, and at least {marked:,} were stored")
            if self._lock is not None and not has_fingerprint(self._file, key):
                yield DamagedRow("page 1", "", "the fingerprint of the key is not what was written")
        with closing(self._connect(self._file)) as connection:
            for number in PageFile(connection).damaged():
                yield DamagedRow(f"page {number}", "", "it is not what was written")

    def _read_mark(self, folder: Path, key: VaultKey) -> tuple[int, bool]:
        """See read_mark. A read during a server's write can get half of the old slot and half of the new one."""
        for _ in range(MARK_READS_MAX - 1 if self.is_served else 0):
            if (found := read_mark(folder, key))[1]:
                return found
        return read_mark(folder, key)

    # SQLite's own checks

    def _checked_by_sqlite(self, table: str) -> Iterator[DamagedRow]:
        try:
            for (message,) in fetch(self._connection, f'PRAGMA integrity_check("{table}")'):
                if message != "ok":
                    yield DamagedRow(table, "", str(message))
        except _UNREADABLE as error:
            yield DamagedRow(table, "", str(error))

    def _foreign(self) -> Iterator[DamagedRow]:
        try:
            for table, row, parent, _ in fetch(self._connection, "PRAGMA foreign_key_check")[:PROBLEMS_MAX]:
                yield DamagedRow(str(table), f"row {row}", f"belongs to a row of {parent} that does not exist")
        except _UNREADABLE as error:
            yield DamagedRow("records.db", "", str(error))

    # Records

    def _documents(self, table: DocumentTable) -> Iterator[Step]:
        name = table.tables.documents
        for positions in self._chunks(name, "position"):
            with self._snapshot():
                yield Step(len(positions), tuple(self._checked_documents(table, positions)))
        yield Step(0, tuple(self._orphans(table)))
        if table.tables.collection.words:
            yield from self._blocks(table.tables)
        yield from self._vector_blocks(table.tables)

    def _checked_documents(self, table: DocumentTable, positions: Sequence[int]) -> Iterator[DamagedRow]:
        try:
            chunk = id_array(positions)
            found = table.select(
                self._connection, "d.position IN (SELECT value FROM carray(?))", (chunk,), vectors=True
            )
        except _UNREADABLE:
            found = []
        if len(found) == len(positions):
            for position, _, document in found:
                yield from self._checked(table, position, document)
            return
        for position in positions:
            # One by one, so that a damaged document does not hide the others.
            try:
                rows = table.select(self._connection, "d.position = ?", (position,), vectors=True)
            except _UNREADABLE as error:
                yield DamagedRow(table.tables.documents, self._name(table, position), _describe_error(error))
                continue
            for _, _, document in rows:
                yield from self._checked(table, position, document)

    def _checked(self, table: DocumentTable, position: int, document: Document) -> Iterator[DamagedRow]:
        try:
            for problem in self._problems(table, position, document):
                yield DamagedRow(table.tables.documents, repr(document.doc_id), problem)
        except _UNREADABLE as error:
            yield DamagedRow(table.tables.documents, repr(document.doc_id), _describe_error(error))

    def _problems(self, table: DocumentTable, position: int, document: Document) -> Iterator[str]:
        tables, connection = table.tables, self._connection
        digest = connection.execute(f"SELECT digest FROM {tables.documents} WHERE position = ?", (position,)).get
        if digest != document_digest(document):
            yield "its content, metadata, scope or fields do not match its digest"
        wanted = sorted((key, *row) for key, value in document.metadata.items() for row in set(metadata_rows(value)))
        statement = f"SELECT key, type, value FROM {tables.metadata} WHERE position = ?"
        if sorted(fetch(connection, statement, (position,)), key=repr) != sorted(wanted, key=repr):
            yield "the metadata index does not match its metadata"
        yield from _passage_problems(document, self._dimension)
        statement = f"SELECT id FROM {tables.passages} WHERE position = ?"
        ids = [row[0] for row in fetch(connection, statement, (position,))]
        if tables.collection.words and ids:
            keywords = tables.keywords
            wanted_count = sum(not document.hidden and not keywords.is_packed(connection, each) for each in ids)
            if wanted_count != sum(keywords.unpacked_count(connection, each) for each in ids):
                yield "the keyword index does not match its passages"

    def _orphans(self, table: DocumentTable) -> Iterator[DamagedRow]:
        """Index rows whose record does not exist, in indexes without a foreign key."""
        tables = table.tables
        statements = []
        if tables.collection.words:
            keywords = tables.keywords
            for part in (keywords.first, keywords.second):
                index = f"{part.index}_docsize"
                statements.append(
                    (index, f"SELECT id FROM {index} WHERE id >> 8 NOT IN (SELECT id FROM {tables.passages})")
                )
        if table.related is not None:
            there = f"SELECT position FROM {tables.documents} WHERE hidden = 0"
            statements.append(
                (tables.related, f"SELECT DISTINCT position FROM {tables.related} WHERE position NOT IN ({there})")
            )
        for name, statement in statements:
            try:
                for (row,) in fetch(self._connection, statement):
                    yield DamagedRow(name, f"row {row}", "belongs to a record that does not exist")
            except _UNREADABLE as error:
                yield DamagedRow(name, "", _describe_error(error))

    def _blocks(self, tables: Tables) -> Iterator[Step]:
        after = -1
        while True:
            with self._snapshot():
                try:
                    keywords = tables.keywords
                    block = blocks.next_served(self._connection, keywords.blocks, after)
                except _UNREADABLE:
                    return  # reported by SQLite's own check
                if block is None:
                    return
                yield Step(0, tuple(self._packed_words(tables, keywords, block)))
            after = block.stop - 1

    def _packed_words(self, tables: Tables, keywords: KeywordIndex, block: Block) -> Iterator[DamagedRow]:
        """Compares the words of a block with the texts of its passages. A block is read as a whole, in seconds."""
        statement = (
            "SELECT p.id, d.content, d.metadata, p.start, p.stop"
            f" FROM {tables.passages} AS p JOIN {tables.documents} AS d ON d.position = p.position"
            " WHERE p.id >= ? AND p.id < ? AND d.hidden = 0 ORDER BY p.id"
        )
        packed = keywords.blocks
        try:
            wanted, passage_count, word_count = dict[str, bytearray](), 0, 0
            heads = stored_heads(self._connection)
            for start in range(block.first, block.stop, PASSAGE_IDS):
                texts = fetch(self._connection, statement, (start, min(start + PASSAGE_IDS, block.stop)))
                words = {row[0]: keywords.terms(passage_text(heads, *row[1:])) for row in texts}
                for word, passages in blocks.pack_texts(block.first, words).items():
                    wanted.setdefault(word, bytearray()).extend(passages)
                passage_count += len(words)
                word_count += sum(map(len, words.values()))
            found = blocks.words_of_block(self._connection, packed, block)
            if wanted != found:
                differing = sum(wanted.get(word) != found.get(word) for word in wanted.keys() | found.keys())
                problem = f"{differing} of its words do not match the passages {block.first} to {block.stop - 1}"
                yield DamagedRow(packed.words, f"block {block.first}", problem)
            if (block.passage_count, block.word_count) != (passage_count, word_count):
                yield DamagedRow(packed.blocks, f"block {block.first}", "its counts do not match its passages")
        except _UNREADABLE as error:
            yield DamagedRow(packed.words, f"block {block.first}", _describe_error(error))

    def _vector_blocks(self, tables: Tables) -> Iterator[Step]:
        for numbers in self._chunks(tables.vector_blocks, "number"):
            for number in numbers:
                with self._snapshot():
                    yield Step(
                        0, tuple(self._each(tables.vector_blocks, [number], partial(self._check_vectors, tables)))
                    )

    def _check_vectors(self, tables: Tables, number: int) -> None:
        statement = f"SELECT content FROM {tables.vector_blocks} WHERE number = ?"
        for (content,) in fetch(self._connection, statement, (number,)):
            block = read_block(tables, self._dimension, number, content)
            if block is None:
                raise ValueError("its content does not match its checksum")
            if content != block_content(self._connection, tables, self._dimension, number, block.origin):
                raise ValueError("it does not match the vectors of its passages")

    def _name(self, table: DocumentTable, position: int) -> str:
        try:
            statement = f"SELECT CAST(id AS BLOB) FROM {table.tables.documents} WHERE position = ?"
            found: bytes = self._connection.execute(statement, (position,)).get
        except _UNREADABLE:
            return f"row {position}"
        return repr(found.decode("utf-8", "backslashreplace"))

    # The log and the timeline

    def _checked_rows(self, table: str, key: str, check: Callable[[int], None]) -> Iterator[Step]:
        for keys in self._chunks(table, key):
            yield Step(len(keys), tuple(self._each(table, keys, check)))

    def _check_change(self, sequence: int) -> None:
        change = read_change(self._connection, sequence)
        if change is not None and change.details:
            json.loads(change.details)

    def _check_timeline_event(self, sequence: int) -> None:
        statement = "SELECT body, user, type, conversation FROM timeline_event WHERE sequence = ?"
        for body, *columns in fetch(self._connection, statement, (sequence,)):
            event = decode(body)
            if encode(event) != body or [event.scope.user, event.event_type, event.conversation] != columns:
                raise ValueError("its body does not match what was written")

    def _each(self, table: str, keys: Sequence[int], check: Callable[[int], None]) -> Iterator[DamagedRow]:
        for key in keys:
            try:
                check(key)
            except Exception as error:  # noqa: BLE001 - any exception means that the row is damaged
                yield DamagedRow(table, str(key), _describe_error(error))

    # All other tables

    def _rows(self, table: str) -> Iterator[Step]:
        """Reads the rows of a small table. All texts must be valid UTF-8, and JSON columns must be valid JSON."""
        columns = fetch(self._connection, f'PRAGMA table_info("{table}")')
        # As bytes, so that invalid UTF-8 does not hide the rows after it.
        read = ", ".join(f'CAST("{c[1]}" AS BLOB)' if c[2] == "TEXT" else f'"{c[1]}"' for c in columns)
        keys = [number for number, column in enumerate(columns) if column[5]] or [0]
        damages = []
        count = 0
        try:
            for row in self._connection.execute(f'SELECT {read} FROM "{table}"'):
                count += 1
                if problem := _problem_of_row(table, columns, row):
                    name = " ".join(_shown(row[key]) for key in keys)
                    damages.append(DamagedRow(table, name, problem))
        except _UNREADABLE as error:
            damages.append(DamagedRow(table, f"after row {count}", _describe_error(error)))
        yield Step(count, tuple(damages))

    def _chunks(self, table: str, key: str) -> Iterator[list[int]]:
        after = -(2**63)
        statement = f"SELECT {key} FROM {table} WHERE {key} > ? ORDER BY {key} LIMIT ?"
        while True:
            try:
                keys = [row[0] for row in fetch(self._connection, statement, (after, ROWS_MAX))]
            except apsw.Error:
                return  # reported by SQLite's own check
            if not keys:
                return
            yield keys
            after = keys[-1]

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """A read transaction, so that everything read in it is consistent."""
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            # A statement that found damage raises the same error again here.
            with suppress(apsw.Error):
                self._connection.execute("ROLLBACK")


def find_records(folder: Path) -> list[Path]:
    """The records.db files in a folder and all its subfolders. Raises OSError if it cannot be read to the end."""
    return find_files(folder, RECORDS)


def _dimension(connection: apsw.Connection) -> int:
    """The length of the vectors, which is the last part of the model's identity."""
    size = str(stored_meta(connection, "embedding_model")).rpartition("/")[2]
    return int(size) if size.isdigit() else 0


def _passage_problems(document: Document, dimension: int) -> Iterator[str]:
    for number, passage in enumerate(document.passages):
        if passage.index != number or not 0 <= passage.start <= passage.end <= len(document.content):
            yield f"passage {number} is not within its content"
        vector = np.array(passage.embedding or (), np.float32)
        norm = float(np.sqrt(np.dot(vector, vector)))
        if norm != 0.0 and not NORM_MIN <= norm <= NORM_MAX:
            yield f"the vector of passage {number} has the length {norm:g}, not 1"
        if dimension and len(vector) != dimension:
            yield f"the vector of passage {number} has {len(vector)} components, not {dimension}"


def _problem_of_row(table: str, columns: Sequence[Any], row: Sequence[Any]) -> str:
    for column, value in zip(columns, row, strict=True):
        if column[2] != "TEXT" or value is None:
            continue
        try:
            text = value.decode()
            if (table, column[1]) == ("request", "answer"):
                json.loads(text)
        except ValueError as error:
            return f"{column[1]}: {_describe_error(error)}"
    return ""


def _shown(value: Any) -> str:
    return repr(value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value)


def _describe_error(error: BaseException) -> str:
    """A description of the problem that does not contain bytes of a record."""
    cause = error.__cause__ if isinstance(error, MnemonError) and error.__cause__ else error
    if isinstance(cause, UnicodeDecodeError):
        return f"a text is not valid UTF-8 at byte {cause.start}"
    if isinstance(cause, json.JSONDecodeError):
        return f"a text is not valid JSON at character {cause.pos}"
    return f"cannot be read: {type(cause).__name__}" if isinstance(cause, KeyError) else f"cannot be read: {cause}"


def _tables(connection: apsw.Connection) -> list[str]:
    """The tables with rows of this program, without the internal tables of keyword indexes."""
    statement = "SELECT name FROM pragma_table_list WHERE type = 'table' AND schema = 'main' ORDER BY name"
    return [row[0] for row in fetch(connection, statement) if not row[0].startswith("sqlite_")]


def _count(connection: apsw.Connection, table: str) -> int:
    try:
        return int(connection.execute(f'SELECT count(*) FROM "{table}"').get)
    except apsw.Error:
        return 0  # reported by SQLite's own check


def _lock_folder(folder: Path) -> int | None:
    """Locks the folder so that no server opens it meanwhile; None if a server is using it."""
    try:
        descriptor = os.open(folder / "LOCK", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def open_still(file: Path, keys: VaultKeyFile) -> apsw.Connection:
    """Opens a database that no process uses, for reading. Raises the same as `connect`."""
    return open_reader(file, keys) if has_log(file) else connect_at_rest(file, keys)
