"""API keys in a SQLite file of their own, which the server and `mnemon-server keys` use at the same time."""

import contextlib
import json
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw

from mnemon_server.domain.access import ApiKey, Role
from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.domain.clock import from_microseconds, to_microseconds
from mnemon_server.domain.errors import ConfigurationError, StorageFailedError, StorageFullError
from mnemon_server.engines.private import create_file, create_folder, tighten_database
from mnemon_server.engines.promises.keys import KeyStore, StoredKey

FILE_NAME = "access.db"
APPLICATION_ID = 0x4D4E414B  # "MNAK"
FORMAT = 3
BUSY_TIMEOUT_MS = 5_000

log = logging.getLogger(__name__)

_TABLES = """
CREATE TABLE api_key (
  position INTEGER PRIMARY KEY AUTOINCREMENT,
  key_id TEXT NOT NULL UNIQUE,
  tenant TEXT NOT NULL,
  name TEXT NOT NULL,
  role INTEGER NOT NULL,
  create_time INTEGER NOT NULL,
  expire_time INTEGER,
  last_use_time INTEGER,
  digest BLOB NOT NULL,
  previous_digest BLOB,
  previous_expire_time INTEGER
) STRICT;
CREATE INDEX api_key_tenant ON api_key (tenant);

-- Counts the changes, so that another process notices them.
CREATE TABLE change_count (version INTEGER NOT NULL) STRICT;
INSERT INTO change_count VALUES (0);
"""
_PAGE_KEY = """
-- Seals the page tokens of lists of keys.
CREATE TABLE page_key (bytes BLOB NOT NULL) STRICT;
INSERT INTO page_key VALUES (randomblob(32));
"""
_BOUNDS = """
ALTER TABLE api_key ADD COLUMN users TEXT;
ALTER TABLE api_key ADD COLUMN namespaces TEXT;
"""
_MIGRATIONS = (_TABLES, _PAGE_KEY, _BOUNDS)
"""What makes each format from the one before."""
_READ = """
SELECT position, key_id, tenant, name, role, create_time, expire_time, last_use_time, previous_expire_time, digest,
  previous_digest, users, namespaces
FROM api_key WHERE key_id = coalesce(?1, key_id) AND tenant = coalesce(?2, tenant) ORDER BY position
"""


class KeyFile(KeyStore):
    """The file `access.db` of a data folder, readable by its owner only.

    It has a rollback journal instead of a write-ahead log, because it changes rarely: then no other file keeps what was
    removed from it.
    """

    def __init__(self, folder: Path) -> None:
        """Opens or creates the file.

        Raises:
            ConfigurationError: the folder cannot be used, or the file is not ours, or of a newer format.
        """
        self._lock = threading.Lock()
        path = folder / FILE_NAME
        try:
            create_folder(folder)
            create_file(path)
            self._connection = apsw.Connection(str(path))
        except (OSError, apsw.Error) as error:
            raise ConfigurationError(f"the keys in {str(path)!r} cannot be opened: {error}") from error
        try:
            self._prepare(path)
        except apsw.Error as error:
            self._connection.close(True)
            raise ConfigurationError(f"the keys in {str(path)!r} cannot be read: {error}") from error
        except ConfigurationError:
            self._connection.close(True)
            raise

    def page_key(self) -> bytes:
        """See KeyStore."""
        with self._working() as connection:
            return bytes(connection.execute("SELECT bytes FROM page_key").get)

    def version(self) -> int:
        """See KeyStore."""
        with self._working() as connection:
            return int(connection.execute("SELECT version FROM change_count").get)

    def read(self) -> Sequence[StoredKey]:
        """See KeyStore."""
        with self._working() as connection:
            return [_stored(row) for row in connection.execute(_READ, (None, None))]

    def add(self, key: ApiKey, digest: bytes, *, tenant_keys_max: int) -> bool:
        """See KeyStore."""
        with self._writing() as connection:
            count: int = connection.execute("SELECT count(*) FROM api_key WHERE tenant = ?", (key.tenant,)).get
            if count >= tenant_keys_max:
                return False
            connection.execute(
                "INSERT INTO api_key"
                " (key_id, tenant, name, role, create_time, expire_time, digest, users, namespaces) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    key.key_id,
                    key.tenant,
                    key.name,
                    int(key.role),
                    to_microseconds(key.created_at),
                    _microseconds(key.expires_at),
                    digest,
                    json.dumps(key.bounds.user_texts),
                    json.dumps(key.bounds.namespace_texts),
                ),
            )
            return True

    def rotate(self, tenant: str, key_id: str, digest: bytes, previous_expires_at: datetime | None) -> ApiKey | None:
        """See KeyStore."""
        with self._writing() as connection:
            connection.execute(
                "UPDATE api_key SET previous_digest = CASE WHEN ?3 IS NULL THEN NULL ELSE digest END, "
                "previous_expire_time = ?3, digest = ?4 WHERE key_id = ?1 AND tenant = ?2",
                (key_id, tenant, _microseconds(previous_expires_at), digest),
            )
            return next((_stored(row).key for row in connection.execute(_READ, (key_id, tenant))), None)

    def remove(self, tenant: str, key_id: str) -> bool:
        """See KeyStore."""
        with self._writing() as connection:
            connection.execute("DELETE FROM api_key WHERE key_id = ? AND tenant = ?", (key_id, tenant))
            return connection.changes() > 0

    def note_uses(self, last_used_at: Mapping[str, datetime]) -> None:
        """See KeyStore."""
        with self._working() as connection, connection:
            connection.executemany(
                "UPDATE api_key SET last_use_time = ? WHERE key_id = ?",
                [(to_microseconds(time), key_id) for key_id, time in last_used_at.items()],
            )

    def close(self) -> None:
        """See KeyStore."""
        with self._lock:
            self._connection.close(True)

    def _prepare(self, path: Path) -> None:
        connection = self._connection
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        connection.pragma("trusted_schema", False)
        connection.pragma("secure_delete", True)
        connection.pragma("synchronous", "extra")
        tighten_database(path)
        # Two processes may both find a file that is new, or of an older format.
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._migrate(path)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def _migrate(self, path: Path) -> None:
        connection = self._connection
        application, version = connection.pragma("application_id"), connection.pragma("user_version")
        is_new = not connection.execute("SELECT count(*) FROM sqlite_schema").get
        if application != APPLICATION_ID and not is_new:
            raise ConfigurationError(f"{str(path)!r} is not a file of Mnemon's keys; set another data_dir")
        if version > FORMAT:
            raise ConfigurationError(
                f"{str(path)!r} has format {version}, and this program knows formats up to {FORMAT}: "
                "a newer Mnemon wrote it; run that version"
            )
        if version < FORMAT:
            for migration in _MIGRATIONS[version:]:
                connection.execute(migration)
            connection.pragma("application_id", APPLICATION_ID)
            connection.pragma("user_version", FORMAT)

    @contextlib.contextmanager
    def _working(self) -> Iterator[apsw.Connection]:
        try:
            with self._lock:
                yield self._connection
        except apsw.FullError as error:
            raise StorageFullError("no space is left on the disk for keys; free some space, then try again") from error
        except apsw.Error as error:
            log.exception("the file of keys failed")
            raise StorageFailedError("the file of keys cannot be read or written") from error

    @contextlib.contextmanager
    def _writing(self) -> Iterator[apsw.Connection]:
        """A transaction that other processes notice."""
        with self._working() as connection, connection:
            connection.execute("UPDATE change_count SET version = version + 1")
            yield connection


def _stored(row: tuple[Any, ...]) -> StoredKey:
    position, key_id, tenant, name, role, created, expires, used, previous_expires, digest, previous, *bounds = row
    key = ApiKey(
        key_id,
        tenant,
        name,
        Role(role),
        from_microseconds(created),
        expires_at=_time(expires),
        last_used_at=_time(used),
        previous_expires_at=_time(previous_expires),
        bounds=Bounds.of(*(json.loads(texts or "[]") for texts in bounds)),
    )
    return StoredKey(position, key, digest, previous)


def _time(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else from_microseconds(microseconds)


def _microseconds(time: datetime | None) -> int | None:
    return None if time is None else to_microseconds(time)
