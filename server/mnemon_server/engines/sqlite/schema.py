"""The common tables of records.db, and how connections are opened."""

import logging
import os
from functools import cache
from pathlib import Path

import apsw

from mnemon_server.domain.collections import COLLECTIONS
from mnemon_server.engines.layout import is_new, mark
from mnemon_server.engines.private import tighten_database
from mnemon_server.engines.sqlite import history_gaps, journal, tombstones, values
from mnemon_server.engines.sqlite.pages.conversion import prepare_database
from mnemon_server.engines.sqlite.pages.database import MODE_READ, connect
from mnemon_server.engines.sqlite.pages.mark import check_mark
from mnemon_server.engines.sqlite.tables import (
    TIMELINE_STATEMENTS,
    create_statements,
    keyword_statements,
    vector_block_statements,
)
from mnemon_server.engines.vault_key import VaultKeyFile

log = logging.getLogger(__name__)

APPLICATION_ID = 0x4D4E454D  # "MNEM"
EPOCH_BYTES = 16

# Numbers of pages of 4 KiB. A checkpoint copies the log into the file. Past the second bound, it waits for readers, and
# the log restarts.
CHECKPOINT_PAGES = 1_000
WAL_PAGES_MAX = 16_384

# The cache of a connection. Evicted pages are usually still in the system's page cache.
WRITER_CACHE_KIB = 8_192
READER_CACHE_KIB = 4_096

_TABLES = """
CREATE TABLE meta (
  key TEXT PRIMARY KEY,
  value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- Answers to request ids, as JSON.
CREATE TABLE request (
  id TEXT PRIMARY KEY,
  digest BLOB NOT NULL,
  answer TEXT NOT NULL,
  expire_time INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX request_expire_time ON request (expire_time);

-- How far each index has come, and how many records were removed or replaced since it was first filled.
CREATE TABLE index_position (
  collection TEXT NOT NULL,
  name TEXT NOT NULL,
  sequence INTEGER NOT NULL,
  generation TEXT NOT NULL,
  removed INTEGER NOT NULL,
  PRIMARY KEY (collection, name)
) STRICT, WITHOUT ROWID;
"""


def open_writer(path: Path, keys: VaultKeyFile, vfs: str | None = None) -> apsw.Connection:
    """Opens the only connection that writes and checkpoints. Creates the tables of a new file.

    The caller has locked the folder. If the file is new, `keys` gets a new key.

    Raises:
        ConfigurationError: the file is not a Mnemon database, has another layout, or its key is not there. It is left
            unchanged.
        RecordDamagedError: its beginning, or the end of its log, is not what was written. It is left unchanged.
    """
    prepare_database(path, keys, APPLICATION_ID)
    connection = connect(path, keys, vfs=vfs)
    try:
        is_empty = is_new(connection, path, APPLICATION_ID)
        check_mark(connection, keys)
        tighten_database(path)
        configure(connection, WRITER_CACHE_KIB)
        # Deleted text must not stay in the file's free space.
        connection.pragma("secure_delete", True)
        # Before the write-ahead log is created, which is synced otherwise.
        connection.pragma("synchronous", "full" if keys.is_durable else "off")
        if is_empty:
            # Before there is a log: what is written into it is copied into the file and looked through again.
            _create(connection)
        connection.pragma("journal_mode", "wal")
        connection.pragma("foreign_keys", True)
    except BaseException:
        # The last connection would otherwise copy the log into the file.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        close_quietly(connection)
        raise
    return connection


def open_reader(path: Path, keys: VaultKeyFile, vfs: str | None = None) -> apsw.Connection:
    """Opens a connection that only reads. Raises the same as `connect`."""
    connection = connect(path, keys, flags=MODE_READ, vfs=vfs)
    configure(connection, READER_CACHE_KIB)
    return connection


def close_quietly(connection: apsw.Connection) -> None:
    """Closes a connection. Only logs errors, because nothing depends on the result."""
    try:
        connection.close(True)
    except apsw.Error:
        log.warning("a connection to the records could not be closed cleanly", exc_info=True)


def configure(connection: apsw.Connection, cache_kib: int) -> None:
    """The settings that all connections to databases with a write-ahead log have."""
    connection.set_busy_timeout(5_000)
    # Only the writer checkpoints: the WAL-reset bug of older versions requires two connections that checkpoint.
    connection.wal_autocheckpoint(0)
    connection.pragma("trusted_schema", False)
    connection.pragma("cell_size_check", True)
    connection.pragma("mmap_size", 0)
    connection.pragma("cache_size", -cache_kib)
    # Otherwise SQLite plans a statement anew for each bound value that might improve the plan, which takes ten times as
    # long as many look-ups. The filters contain all that the planner needs.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


@cache
def _statements() -> tuple[str, ...]:
    """The statements that create the tables, in order."""
    return (
        *journal.CREATE_STATEMENTS,
        values.CREATE_STATEMENT,
        tombstones.CREATE_STATEMENT,
        history_gaps.CREATE_STATEMENT,
        *TIMELINE_STATEMENTS,
        *keyword_statements(),
        *vector_block_statements(),
        *(statement for collection in COLLECTIONS for statement in create_statements(collection)),
    )


def _create(connection: apsw.Connection) -> None:
    with connection:
        connection.execute(_TABLES)
        for statement in _statements():
            connection.execute(statement)
        # The secret to which the log's cursors are bound.
        connection.execute("INSERT INTO meta (key, value) VALUES ('epoch', ?)", (os.urandom(EPOCH_BYTES),))
        mark(connection, APPLICATION_ID)
