"""The file of the timeline's text index: the words and the vectors of events, by sequence.

Words lie in parts of 65,536 sequences. So removing an event writes one part anew, a part of which nothing is left is
dropped as a whole, and a search reads the parts that it is about.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import apsw
import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.private import create_file, tighten_database
from mnemon_server.engines.promises.timeline import Sequences
from mnemon_server.engines.promises.values import Vector
from mnemon_server.engines.sqlite import keyword_index
from mnemon_server.engines.sqlite.keyword_index import KeywordTables
from mnemon_server.engines.sqlite.query import fetch, fetch_chunks, id_array
from mnemon_server.engines.sqlite.readers import ReaderPool
from mnemon_server.engines.sqlite.schema import close_quietly, open_reader
from mnemon_server.engines.sqlite.write_ahead_log import WriteAheadLog
from mnemon_server.ranking.keyword_context import CONTEXT_WEIGHT

FORMAT = 1
FILE_NAME = "text.db"
PART_SEQUENCES = 1 << 16

_CACHE_KIB = 8_192
_LOG_PAGES = 4_000
"""Of 4 KiB: what is written over and over while words come in reaches the file once."""
_VECTORS_AT_ONCE = 4_096
_VECTOR_TYPE = np.dtype("<f2")
"""Half the size, and the similarity of two vectors is off by less than 0.001."""

_CREATE = """
CREATE TABLE meta (
  key TEXT PRIMARY KEY,
  value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- Parts that have words: part n holds the sequences from n * 65,536 on.
CREATE TABLE part (
  number INTEGER PRIMARY KEY,
  event_count INTEGER NOT NULL
) STRICT;

-- 16-bit floats, of unit length; empty where the event has no text.
CREATE TABLE vector (
  sequence INTEGER PRIMARY KEY,
  vector BLOB NOT NULL
) STRICT;
"""
_SET_META = "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)"

Floats: TypeAlias = NDArray[np.float64]


class ForeignFileError(Exception):
    """The file is another vault's or model's, or of another format."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the file has come: of all events up to these sequences it has the words, and the vectors."""

    words: int = 0
    vectors: int = 0


class TextFile:
    """An open file. One thread writes; any thread may read through `readers`, each reading at one moment.

    Every method raises apsw.Error, and whatever else a damaged file leads to.
    """

    def __init__(self, path: Path, identity: str) -> None:
        """Opens the file; creates it where there is none.

        Args:
            path: the file, in a folder that is there.
            identity: of what the index is made: equal for the same vault and the same model.

        Raises:
            ForeignFileError: what is there is of something else.
        """
        self.path = path
        create_file(path)
        self._connection = apsw.Connection(str(path))
        self._log_ahead = WriteAheadLog(path, pages_few=_LOG_PAGES, pages_max=4 * _LOG_PAGES)
        self.readers = ReaderPool(lambda: open_reader(path))
        try:
            _configure(self._connection)
            # What was removed before a crash may be there still.
            self._log_ahead.empty(self._connection)
            self._check(f"{FORMAT} {identity}")
            tighten_database(path)
            self._progress = read_progress(self._connection)
        except BaseException:
            self.close()
            raise

    @property
    def progress(self) -> Progress:
        """How far it has come. Any thread may ask."""
        return self._progress

    def close(self) -> None:
        """Waits for those who read, and closes the file."""
        self.readers.close()
        close_quietly(self._connection)
        self._log_ahead.close()

    def part_counts(self) -> dict[int, int]:
        """Events in each part."""
        return dict(fetch(self._connection, "SELECT number, event_count FROM part"))

    def stored(self, first: int, last: int) -> Sequences:
        """The sequences that have words, from `first` to `last` of one part, ascending."""
        number = first // PART_SEQUENCES
        if not self._has_part(number):
            return np.empty(0, np.int64)
        return keyword_index.stored_ids(self._connection, tables_of(number), first, last)

    def stored_vectors(self, first: int, last: int) -> Sequences:
        """The sequences that have a vector, from `first` to `last`, ascending."""
        statement = "SELECT sequence FROM vector WHERE sequence BETWEEN ? AND ? ORDER BY sequence"
        return np.array([row for (row,) in fetch(self._connection, statement, (first, last))], np.int64)

    def add_words(self, texts: Mapping[int, str], *, until: int) -> None:
        """Adds the words of events of one part, by sequence; now the file has those of all up to `until`."""
        with self._connection:
            if texts:
                number = min(texts) // PART_SEQUENCES
                if not self._has_part(number):
                    self._create_part(number)
                keyword_index.insert_many(self._connection, tables_of(number), texts)
                self._connection.execute(
                    "UPDATE part SET event_count = event_count + ? WHERE number = ?", (len(texts), number)
                )
            self._connection.execute(_SET_META, ("words", until))
        self._log_ahead.tend(self._connection)
        self._progress = replace(self._progress, words=until)

    def add_vectors(self, vectors: Iterable[tuple[int, Vector | None]], *, until: int) -> None:
        """Adds vectors by sequence, None where there is no text; now the file has those of all up to `until`."""
        rows = [
            (number, b"" if vector is None else vector.astype(_VECTOR_TYPE).tobytes()) for number, vector in vectors
        ]
        with self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO vector (sequence, vector) VALUES (?, ?)", rows)
            self._connection.execute(_SET_META, ("vectors", until))
        self._log_ahead.tend(self._connection)
        self._progress = replace(self._progress, vectors=until)

    def go_back(self, sequence: int) -> None:
        """From here on, words or vectors may be missing."""
        progress = Progress(min(sequence, self._progress.words), min(sequence, self._progress.vectors))
        with self._connection:
            self._connection.executemany(_SET_META, [("words", progress.words), ("vectors", progress.vectors)])
        self._progress = progress

    def remove(self, number: int, sequences: Sequences) -> None:
        """Removes stored events of a part: nothing of their words and vectors is left in the file itself."""
        connection, tables = self._connection, tables_of(number)
        with connection:
            connection.execute(
                "DELETE FROM vector WHERE sequence IN (SELECT value FROM carray(?))", (id_array(sequences),)
            )
            left = self.part_counts()[number] - len(sequences)
            if left:
                keyword_index.remove_many(connection, tables, sequences)
                connection.execute("UPDATE part SET event_count = ? WHERE number = ?", (left, number))
                return
            for statement in keyword_index.drop_statements(tables):
                connection.execute(statement)
            connection.execute("DELETE FROM part WHERE number = ?", (number,))

    def empty_log(self) -> None:
        """What was removed leaves the log of the last writes, too; apsw.BusyError where readers hold it for long."""
        if not self._log_ahead.empty(self._connection):
            raise apsw.BusyError("older readers hold the log")

    def _check(self, identity: str) -> None:
        if not self._connection.execute("SELECT count(*) FROM sqlite_schema").get:
            with self._connection:
                self._connection.execute(_CREATE)
                rows = [("identity", identity), ("words", 0), ("vectors", 0)]
                self._connection.executemany(_SET_META, rows)
        elif self._connection.execute("SELECT value FROM meta WHERE key = 'identity'").get != identity:
            raise ForeignFileError(self.path.name)

    def _has_part(self, number: int) -> bool:
        return bool(self._connection.execute("SELECT count(*) FROM part WHERE number = ?", (number,)).get)

    def _create_part(self, number: int) -> None:
        for statement in keyword_index.create_with_texts(tables_of(number)):
            self._connection.execute(statement)
        self._connection.execute("INSERT INTO part VALUES (?, 0)", (number,))


def tables_of(number: int) -> KeywordTables:
    """The tables of a part."""
    return KeywordTables(f"part_{number}")


def read_progress(connection: apsw.Connection) -> Progress:
    """How far the file has come."""
    values = dict(fetch(connection, "SELECT key, value FROM meta WHERE key IN ('words', 'vectors')"))
    return Progress(int(values["words"]), int(values["vectors"]))


def keyword_scores(
    connection: apsw.Connection, query: str, among: Sequences, *, context_weight: float = CONTEXT_WEIGHT
) -> tuple[Sequences, Floats]:
    """Sequences, ascending, and scores, 0 to 1, of the events that share a word with the query."""
    parts = {number for (number,) in fetch(connection, "SELECT number FROM part")}
    asked = sorted(parts.intersection(np.unique(among // PART_SEQUENCES).tolist()))
    tables = [tables_of(number) for number in asked]
    return keyword_index.search_parts(connection, tables, query, among, context_weight=context_weight)


def similarities(connection: apsw.Connection, query: Vector, among: Sequences) -> tuple[Sequences, Floats]:
    """Sequences, ascending, and cosines, 0 to 1, of the events that have a vector."""
    statement = (
        "SELECT sequence, vector FROM vector WHERE sequence IN (SELECT value FROM carray(?)) AND vector <> x''"
        " ORDER BY sequence"
    )
    found: list[Sequences] = [np.empty(0, np.int64)]
    scores: list[Floats] = [np.empty(0, np.float64)]
    for rows in fetch_chunks(connection, statement, (id_array(among),), rows_max=_VECTORS_AT_ONCE):
        matrix = np.frombuffer(b"".join([vector for _, vector in rows]), _VECTOR_TYPE).reshape(len(rows), -1)
        found.append(np.array([sequence for sequence, _ in rows], np.int64))
        scores.append((matrix.astype(np.float32) @ query).astype(np.float64))
    return np.concatenate(found), np.clip(np.concatenate(scores), 0.0, 1.0)


def discard(path: Path) -> None:
    """Removes a file that is closed.

    Raises:
        OSError: it cannot be.
    """
    for suffix in ("-wal", "-shm", ""):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _configure(connection: apsw.Connection) -> None:
    connection.set_busy_timeout(5_000)
    connection.pragma("trusted_schema", False)
    connection.pragma("cell_size_check", True)
    connection.pragma("mmap_size", 0)
    connection.pragma("cache_size", -_CACHE_KIB)
    # What was removed must not stay in free space, nor in files beside this one.
    connection.pragma("secure_delete", True)
    connection.pragma("temp_store", "memory")
    connection.pragma("journal_mode", "wal")
    connection.wal_autocheckpoint(0)
    # A power cut may take the last writes along; they are made again.
    connection.pragma("synchronous", "normal")
