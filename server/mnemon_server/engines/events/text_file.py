"""The file of the timeline's text index: the words and the vectors of events, by sequence."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import apsw
import numpy as np

from mnemon_server.domain.errors import RecordDamagedError
from mnemon_server.engines.events import text_words
from mnemon_server.engines.events.text_vectors import STORED_TYPE, EventVectors
from mnemon_server.engines.master_keys import VaultKeyError
from mnemon_server.engines.private import create_file, tighten_database
from mnemon_server.engines.promises.events import Sequences
from mnemon_server.engines.promises.values import Vector
from mnemon_server.engines.sqlite.connections import ReaderPool
from mnemon_server.engines.sqlite.pages.damage import DamageFinder
from mnemon_server.engines.sqlite.pages.database import connect
from mnemon_server.engines.sqlite.query import fetch, id_array, set_meta, stored_meta
from mnemon_server.engines.sqlite.schema import close_quietly, configure, open_reader
from mnemon_server.engines.sqlite.write_ahead_log import WriteAheadLog
from mnemon_server.engines.vault_key import VaultKeyFile

FORMAT = 4
FILE_NAME = "text.db"

_CACHE_KIB = 8_192
_LOG_PAGES = 4_000
"""Maximum size of the log in pages of 4 KiB. A large log writes pages that change often to the file only once."""

_CREATE = """
CREATE TABLE meta (
  key TEXT PRIMARY KEY,
  value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- 16-bit floats, of unit length; empty where the event has no text.
CREATE TABLE vector (
  sequence INTEGER PRIMARY KEY,
  vector BLOB NOT NULL
) STRICT;
"""


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

    def __init__(self, path: Path, identity: str, keys: VaultKeyFile) -> None:
        """Opens the file, or creates it in an existing folder. `identity` names the vault and the model.

        Raises:
            ForeignFileError: the existing file has another identity, or its beginning is damaged.
        """
        self.path = path
        self.vectors = EventVectors()
        create_file(path)
        self._connection = _connect(path, keys)
        self.part_counts = partial(text_words.part_counts, self._connection)
        self.stored = partial(text_words.stored, self._connection)
        self.stored_among = partial(text_words.stored_among, self._connection)
        """See text_words."""
        self._log_ahead = WriteAheadLog(path, pages_few=_LOG_PAGES, pages_max=4 * _LOG_PAGES)
        reader = partial(open_reader, path, keys)
        self.readers = ReaderPool(reader, path.name, DamageFinder(reader))
        try:
            _configure(self._connection, is_durable=keys.is_durable)
            # After a crash, the log may still contain removed data.
            self._log_ahead.empty(self._connection)
            self._check(identity)
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

    def hold_vectors(self) -> None:
        """Reads the newest vectors into memory, unless they are there."""
        if not self.vectors.is_held:
            self.vectors.hold(self._connection)

    def stored_vectors(self, first: int, last: int) -> Sequences:
        """The sequences with a vector, from `first` to `last`, ascending."""
        statement = "SELECT sequence FROM vector WHERE sequence BETWEEN ? AND ? ORDER BY sequence"
        return np.array([row for (row,) in fetch(self._connection, statement, (first, last))], np.int64)

    def add_words(self, texts: Mapping[int, str], *, until: int) -> None:
        """Adds the words of events in one part, by sequence. They are then complete up to `until`."""
        with self._connection:
            if texts:
                text_words.add(self._connection, texts)
            set_meta(self._connection, "words", until)
        self._log_ahead.tend(self._connection)
        self._progress = replace(self._progress, words=until)

    def add_vectors(self, vectors: Iterable[tuple[int, Vector | None]], *, until: int) -> None:
        """Adds vectors by sequence, None for events without text. The file is then complete up to `until`."""
        given = list(vectors)
        rows = [(number, b"" if vector is None else vector.astype(STORED_TYPE).tobytes()) for number, vector in given]
        made = {number: vector for number, vector in given if vector is not None}
        # Before they are stored: a reader that sees the new progress must find them.
        are_newest = not made or self.vectors.add(np.array(list(made), np.int64), np.stack(list(made.values())))
        with self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO vector (sequence, vector) VALUES (?, ?)", rows)
            set_meta(self._connection, "vectors", until)
        if not are_newest:
            self.vectors.hold(self._connection)
        self._log_ahead.tend(self._connection)
        self._progress = replace(self._progress, vectors=until)

    def go_back(self, sequence: int) -> None:
        """Resets the progress: words or vectors may be missing from this sequence on."""
        with self._connection:
            for key in ("words", "vectors"):
                self._connection.execute("UPDATE meta SET value = min(value, ?) WHERE key = ?", (sequence, key))
        self._progress = read_progress(self._connection)

    def remove(self, number: int, sequences: Sequences) -> None:
        """Removes stored events of a part. The file itself then contains nothing of these words and their vectors."""
        with self._connection:
            self._connection.execute(
                "DELETE FROM vector WHERE sequence IN (SELECT value FROM carray(?))", (id_array(sequences),)
            )
            text_words.remove(self._connection, number, sequences)
        self.vectors.remove(sequences)

    def empty_log(self) -> None:
        """Removes the data from the write-ahead log, too. Raises apsw.BusyError if readers use the log for too long."""
        if not self._log_ahead.empty(self._connection):
            raise apsw.BusyError("older readers hold the log")

    def _check(self, identity: str) -> None:
        connection = self._connection
        with connection:
            if not connection.execute("SELECT count(*) FROM sqlite_schema").get:
                connection.execute(_CREATE)
                connection.execute(text_words.CREATE_STATEMENT)
                set_meta(connection, "words", 0)
                set_meta(connection, "vectors", 0)
            elif stored_meta(connection, "identity") not in (
                f"{FORMAT} {identity}",
                # A file without a model has no vectors yet, so any model may add them.
                f"{FORMAT} {identity.split(' ')[0]} ",
            ):
                raise ForeignFileError(self.path.name)
            set_meta(connection, "identity", f"{FORMAT} {identity}")


def read_progress(connection: apsw.Connection) -> Progress:
    """The progress of the file."""
    return Progress(**dict(fetch(connection, "SELECT key, value FROM meta WHERE key IN ('words', 'vectors')")))


def discard(path: Path) -> None:
    """Deletes a closed file.

    Raises:
        OSError: it cannot be deleted.
    """
    for suffix in ("-wal", "-shm", ""):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _connect(path: Path, keys: VaultKeyFile) -> apsw.Connection:
    try:
        return connect(path, keys)
    except (RecordDamagedError, VaultKeyError) as error:
        raise ForeignFileError(str(error)) from error


def _configure(connection: apsw.Connection, *, is_durable: bool) -> None:
    configure(connection, _CACHE_KIB)
    # Removed data must not stay in free space, or in the files beside this one.
    connection.pragma("secure_delete", True)
    connection.pragma("temp_store", "memory")
    # A power failure may lose the last writes; they are then repeated.
    connection.pragma("synchronous", "normal" if is_durable else "off")
    connection.pragma("journal_mode", "wal")
