"""The file of the timeline's text index: the words and the vectors of events, by sequence.

Words are in parts of 65,536 sequences each. Removing an event rewrites only one part, an empty part is dropped, and a
search reads only the parts that it needs.
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
from mnemon_server.engines.sqlite.keywords import fts
from mnemon_server.engines.sqlite.keywords.fts import KeywordTables
from mnemon_server.engines.sqlite.keywords.scoring import Found, score
from mnemon_server.engines.sqlite.query import fetch, fetch_chunks, id_array
from mnemon_server.engines.sqlite.readers import ReaderPool
from mnemon_server.engines.sqlite.schema import close_quietly, open_reader
from mnemon_server.engines.sqlite.write_ahead_log import WriteAheadLog
from mnemon_server.ranking.keyword_context import CONTEXT_WEIGHT
from mnemon_server.ranking.stemming import PORTER_WORDS

FORMAT = 1
FILE_NAME = "text.db"
PART_SEQUENCES = 1 << 16

_CACHE_KIB = 8_192
_LOG_PAGES = 4_000
"""Maximum size of the log in pages of 4 KiB. A large log writes pages that change often to the file only once."""
_FEW = 96
"""Up to this many requested events of a part, reading their texts takes less time than reading where the words are."""
_VECTORS_AT_ONCE = 4_096
_VECTOR_TYPE = np.dtype("<f2")
"""Half the size of 32-bit floats; the error in the similarity of two vectors is below 0.001."""

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
_ANALYSIS = PORTER_WORDS
_SET_META = "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)"

Floats: TypeAlias = NDArray[np.float64]


class ForeignFileError(Exception):
    """The file belongs to another vault or model, or has another format."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of the file: it has the words, and the vectors, of all events up to these sequences."""

    words: int = 0
    vectors: int = 0


class TextFile:
    """An open file. One thread writes. Any thread may read through `readers`; each read sees a consistent state.

    Every method raises apsw.Error, and a damaged file can cause any other exception.
    """

    def __init__(self, path: Path, identity: str) -> None:
        """Opens the file, or creates it.

        Args:
            path: the file; its folder must exist.
            identity: identifies the vault and the model from which the index is made.

        Raises:
            ForeignFileError: the existing file has another identity.
        """
        self.path = path
        create_file(path)
        self._connection = apsw.Connection(str(path))
        self._log_ahead = WriteAheadLog(path, pages_few=_LOG_PAGES, pages_max=4 * _LOG_PAGES)
        self.readers = ReaderPool(lambda: open_reader(path))
        try:
            _configure(self._connection)
            # After a crash, the log may still contain removed data.
            self._log_ahead.empty(self._connection)
            self._check(f"{FORMAT} {identity}")
            tighten_database(path)
            self._progress = read_progress(self._connection)
        except BaseException:
            self.close()
            raise

    @property
    def progress(self) -> Progress:
        """The progress. Any thread may call it."""
        return self._progress

    def close(self) -> None:
        """Waits for readers, and closes the file."""
        self.readers.close()
        close_quietly(self._connection)
        self._log_ahead.close()

    def part_counts(self) -> dict[int, int]:
        """The number of events in each part."""
        return dict(fetch(self._connection, "SELECT number, event_count FROM part"))

    def stored(self, first: int, last: int) -> Sequences:
        """The sequences with words, from `first` to `last` within one part, ascending."""
        number = first // PART_SEQUENCES
        if not self._has_part(number):
            return np.empty(0, np.int64)
        return fts.stored_ids(self._connection, tables_of(number), first, last)

    def stored_vectors(self, first: int, last: int) -> Sequences:
        """The sequences with a vector, from `first` to `last`, ascending."""
        statement = "SELECT sequence FROM vector WHERE sequence BETWEEN ? AND ? ORDER BY sequence"
        return np.array([row for (row,) in fetch(self._connection, statement, (first, last))], np.int64)

    def add_words(self, texts: Mapping[int, str], *, until: int) -> None:
        """Adds the words of events in one part, by sequence. The file is then complete up to `until`."""
        with self._connection:
            if texts:
                number = min(texts) // PART_SEQUENCES
                if not self._has_part(number):
                    self._create_part(number)
                fts.insert(self._connection, tables_of(number), texts)
                self._connection.execute(
                    "UPDATE part SET event_count = event_count + ? WHERE number = ?", (len(texts), number)
                )
            self._connection.execute(_SET_META, ("words", until))
        self._log_ahead.tend(self._connection)
        self._progress = replace(self._progress, words=until)

    def add_vectors(self, vectors: Iterable[tuple[int, Vector | None]], *, until: int) -> None:
        """Adds vectors by sequence, None for events without text. The file is then complete up to `until`."""
        rows = [
            (number, b"" if vector is None else vector.astype(_VECTOR_TYPE).tobytes()) for number, vector in vectors
        ]
        with self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO vector (sequence, vector) VALUES (?, ?)", rows)
            self._connection.execute(_SET_META, ("vectors", until))
        self._log_ahead.tend(self._connection)
        self._progress = replace(self._progress, vectors=until)

    def go_back(self, sequence: int) -> None:
        """Resets the progress: words or vectors may be missing from this sequence on."""
        progress = Progress(min(sequence, self._progress.words), min(sequence, self._progress.vectors))
        with self._connection:
            self._connection.executemany(_SET_META, [("words", progress.words), ("vectors", progress.vectors)])
        self._progress = progress

    def stored_among(self, number: int, sequences: Sequences) -> Sequences:
        """Those of the given events of a part that have words, ascending."""
        if not self._has_part(number):
            return np.empty(0, np.int64)
        return fts.stored_among(self._connection, tables_of(number), sequences)

    def remove(self, number: int, sequences: Sequences) -> None:
        """Removes stored events of a part. The file itself then contains nothing of their words and vectors."""
        connection, tables = self._connection, tables_of(number)
        with connection:
            connection.execute(
                "DELETE FROM vector WHERE sequence IN (SELECT value FROM carray(?))", (id_array(sequences),)
            )
            left = self.part_counts()[number] - len(sequences)
            if left:
                fts.remove_many(connection, tables, sequences)
                connection.execute("UPDATE part SET event_count = ? WHERE number = ?", (left, number))
                return
            for statement in fts.drop_statements(tables):
                connection.execute(statement)
            connection.execute("DELETE FROM part WHERE number = ?", (number,))

    def empty_log(self) -> None:
        """Removes the data from the write-ahead log, too. Raises apsw.BusyError if readers use the log for too long."""
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
        for statement in fts.create_with_texts(tables_of(number)):
            self._connection.execute(statement)
        self._connection.execute("INSERT INTO part VALUES (?, 0)", (number,))


def tables_of(number: int) -> KeywordTables:
    """The table names of a part."""
    return KeywordTables(f"part_{number}", _ANALYSIS)


def read_progress(connection: apsw.Connection) -> Progress:
    """The progress of the file."""
    values = dict(fetch(connection, "SELECT key, value FROM meta WHERE key IN ('words', 'vectors')"))
    return Progress(int(values["words"]), int(values["vectors"]))


def keyword_scores(
    connection: apsw.Connection, query: str, among: Sequences, *, context_weight: float = CONTEXT_WEIGHT
) -> tuple[Sequences, Floats]:
    """Ascending sequences, and scores from 0 to 1, of the events that share a word with the query."""
    words = _ANALYSIS.query(query)
    found: list[Found] = []
    for (number,) in fetch(connection, "SELECT number FROM part ORDER BY number"):
        low, high = among.searchsorted((number * PART_SEQUENCES, (number + 1) * PART_SEQUENCES)).tolist()
        if low == high:
            continue
        if high - low <= _FEW:
            found.append(fts.read_few(connection, tables_of(number), words.terms, among[low:high]))
        else:
            found.append(fts.read(connection, tables_of(number), words.terms))
    scores = score(words, found, among, context_weight=context_weight)
    return scores.passage_ids, scores.scores


def similarities(connection: apsw.Connection, query: Vector, among: Sequences) -> tuple[Sequences, Floats]:
    """Ascending sequences, and cosines from 0 to 1, of the events that have a vector."""
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
    """Deletes a closed file.

    Raises:
        OSError: it cannot be deleted.
    """
    for suffix in ("-wal", "-shm", ""):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _configure(connection: apsw.Connection) -> None:
    connection.set_busy_timeout(5_000)
    connection.pragma("trusted_schema", False)
    connection.pragma("cell_size_check", True)
    connection.pragma("mmap_size", 0)
    connection.pragma("cache_size", -_CACHE_KIB)
    # Removed data must not stay in free space, or in the files beside this one.
    connection.pragma("secure_delete", True)
    connection.pragma("temp_store", "memory")
    connection.pragma("journal_mode", "wal")
    connection.wal_autocheckpoint(0)
    # A power failure may lose the last writes; they are then repeated.
    connection.pragma("synchronous", "normal")
