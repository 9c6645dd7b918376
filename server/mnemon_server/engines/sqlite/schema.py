"""The tables of records.db, and how its connections are opened."""

import logging
from pathlib import Path

import apsw

from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.engines.sqlite import keyword_index

log = logging.getLogger(__name__)

APPLICATION_ID = 0x4D4E454D  # "MNEM"
SCHEMA_VERSION = 1

# Of 4 KiB. A checkpoint copies what the log holds into the file; past the second bound it waits for readers, and the
# log starts anew.
CHECKPOINT_PAGES = 1_000
WAL_PAGES_MAX = 16_384

_TABLES = """
CREATE TABLE meta (
  key TEXT PRIMARY KEY,
  value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- position: the order of first indexing, never used again. sequence: the order of newest changes.
-- metadata: JSON; a time is {"time": microseconds}. digest: of content, metadata and scope. Times in microseconds.
CREATE TABLE document (
  position INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  content TEXT NOT NULL,
  metadata TEXT NOT NULL,
  digest BLOB NOT NULL,
  user TEXT NOT NULL,
  household TEXT NOT NULL,
  persona TEXT NOT NULL,
  agent TEXT NOT NULL,
  project TEXT NOT NULL,
  revision INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  create_time INTEGER NOT NULL,
  update_time INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX document_sequence ON document (sequence);
CREATE INDEX document_user ON document (user) WHERE user <> '';
CREATE INDEX document_household ON document (household) WHERE household <> '';
CREATE INDEX document_persona ON document (persona) WHERE persona <> '';
CREATE INDEX document_agent ON document (agent) WHERE agent <> '';
CREATE INDEX document_project ON document (project) WHERE project <> '';

-- One row per value, one per item of a list; `type` keeps 1, 1.0, true and "1" apart.
CREATE TABLE document_metadata (
  key TEXT NOT NULL,
  type TEXT NOT NULL,
  value ANY NOT NULL,
  position INTEGER NOT NULL REFERENCES document (position) ON DELETE CASCADE,
  PRIMARY KEY (key, type, value, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX document_metadata_position ON document_metadata (position);

-- start and stop count code points of the content. vector: little-endian float32, unit length.
CREATE TABLE passage (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  position INTEGER NOT NULL REFERENCES document (position) ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,
  start INTEGER NOT NULL,
  stop INTEGER NOT NULL,
  vector BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX passage_document ON passage (position, ordinal);

-- Documents that are gone, for as long as an index has yet to hear of it.
CREATE TABLE deletion (
  sequence INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE index_position (
  name TEXT PRIMARY KEY,
  sequence INTEGER NOT NULL,
  generation TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Answers to request ids, as JSON.
CREATE TABLE request (
  id TEXT PRIMARY KEY,
  digest BLOB NOT NULL,
  answer TEXT NOT NULL,
  expire_time INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX request_expire_time ON request (expire_time);
"""


def open_writer(path: Path, vfs: str | None = None) -> apsw.Connection:
    """The one connection that writes and checkpoints; creates the tables where the file is new.

    Raises:
        ConfigurationError: the file is not ours, or a newer program wrote it; it is left untouched.
    """
    connection = apsw.Connection(str(path), vfs=vfs)
    try:
        _check_format(connection, path)
        _configure(connection)
        # Deleted text must not stay in the file's free space.
        connection.pragma("secure_delete", True)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "full")
        connection.pragma("foreign_keys", True)
        if connection.pragma("user_version") == 0:
            _create(connection)
    except BaseException:
        close_quietly(connection)
        raise
    return connection


def open_reader(path: Path, vfs: str | None = None) -> apsw.Connection:
    """A connection that only reads."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs=vfs)
    _configure(connection)
    return connection


def close_quietly(connection: apsw.Connection) -> None:
    """Closes a connection whose disk may fail even at that: nothing can be done about it, and nothing depends on it."""
    try:
        connection.close(True)
    except apsw.Error:
        log.warning("a connection to the records could not be closed in order", exc_info=True)


def _configure(connection: apsw.Connection) -> None:
    connection.set_busy_timeout(5_000)
    # Checkpoints belong to the writer: the WAL-reset bug of older versions needs two connections that checkpoint.
    connection.wal_autocheckpoint(0)
    connection.pragma("trusted_schema", False)
    connection.pragma("cell_size_check", True)
    connection.pragma("mmap_size", 0)
    connection.pragma("cache_size", -16_384)


def _check_format(connection: apsw.Connection, path: Path) -> None:
    application, version = connection.pragma("application_id"), connection.pragma("user_version")
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    if tables and application != APPLICATION_ID:
        raise ConfigurationError(f"{path.name} in the data folder is not a file of Mnemon; name another data_dir")
    if version > SCHEMA_VERSION:
        raise ConfigurationError(
            f"{path.name} has format {version}, and this program knows formats up to {SCHEMA_VERSION}: "
            "a newer Mnemon wrote it; run that version"
        )


def _create(connection: apsw.Connection) -> None:
    with connection:
        connection.execute(_TABLES)
        for statement in keyword_index.CREATE_STATEMENTS:
            connection.execute(statement)
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", SCHEMA_VERSION)
