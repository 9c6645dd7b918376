"""The file that says who may call: API keys and tenants. The server and commands use it at the same time."""

import contextlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw

from mnemon_server.domain.damage import PageDamagedError, VaultDamagedError
from mnemon_server.domain.errors import ConfigurationError, RecordDamagedError, StorageFailedError, StorageFullError
from mnemon_server.engines.access_copy import BUSY_TIMEOUT_MS, AccessCopy
from mnemon_server.engines.file_stamp import Place, Stamp, settled_stamp
from mnemon_server.engines.folder import alone, refuse_links
from mnemon_server.engines.layout import is_new, mark
from mnemon_server.engines.master_keys import NO_MASTER_KEYS, MasterKeys, VaultKeyError
from mnemon_server.engines.private import create_folder, refused, tighten_database
from mnemon_server.engines.sqlite.pages.conversion import prepare_database
from mnemon_server.engines.sqlite.pages.database import connect
from mnemon_server.engines.vault_key import VaultKeyFile

FILE_NAME, COPY_NAME, KEY_NAME = "access.db", "access.db.copy", "access.key"
LOCK_NAME = f"{FILE_NAME}.lock"
APPLICATION_ID = 0x4D4E414B  # "MNAK"

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
  previous_expire_time INTEGER,
  users TEXT,
  namespaces TEXT,
  origins TEXT
) STRICT;
CREATE INDEX api_key_tenant ON api_key (tenant);

-- Counts the changes, so that another process notices them.
CREATE TABLE change_count (version INTEGER NOT NULL) STRICT;
INSERT INTO change_count VALUES (0);

-- Seals the page tokens of lists of keys.
CREATE TABLE page_key (bytes BLOB NOT NULL) STRICT;
INSERT INTO page_key VALUES (randomblob(32));

CREATE TABLE tenant (
  position INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant TEXT NOT NULL UNIQUE,
  display_name TEXT NOT NULL DEFAULT '',
  create_time INTEGER NOT NULL,
  update_time INTEGER NOT NULL,
  suspend_time INTEGER,
  suspend_reason TEXT,
  delete_time INTEGER,
  quotas TEXT
) STRICT;

-- Tenants that were deleted, and not created again: tokens and certificates may still name them.
CREATE TABLE ended_tenant (tenant TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
CREATE TRIGGER tenant_ends AFTER DELETE ON tenant BEGIN
  INSERT OR IGNORE INTO ended_tenant VALUES (OLD.tenant);
END;
CREATE TRIGGER tenant_begins AFTER INSERT ON tenant BEGIN
  DELETE FROM ended_tenant WHERE tenant = NEW.tenant;
END;
"""


class AccessMissingError(ConfigurationError):
    """The file is missing but its copy exists: a new file would lack the keys in the copy."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"callers cannot be authenticated: {str(path)!r} is missing or empty, and its second copy, {COPY_NAME}, is "
            "there: `mnemon-server repair` puts it back from the copy; to begin anew without the keys and tenants in "
            "it, move both files away"
        )


class AccessDamagedError(VaultDamagedError, ConfigurationError):
    """The file is damaged and cannot be restored from its copy, so callers cannot be authenticated."""

    def __init__(self, path: Path, damage: RecordDamagedError) -> None:
        where = ", ".join(f"page {page}" for page in getattr(damage, "pages", ())) or "a page"
        super().__init__(
            f"callers cannot be authenticated: {where} of {str(path)!r} is damaged on disk, and its second copy is "
            f"missing, damaged, or of another time. Put {FILE_NAME} and {KEY_NAME} back from a copy of the data folder."
            f" Without one, move both {FILE_NAME} and {COPY_NAME} away, and make new keys with `mnemon-server keys "
            "create NAME --tenant TENANT --role ROLE`: the vaults stay as they are; set names, quotas and suspensions "
            "of tenants again"
        )


def has_access_file(folder: Path) -> bool:
    """Whether a data folder has keys and tenants, if only in the copy. Raises OSError if the folder cannot be read."""
    return any((folder / name).exists() for name in (FILE_NAME, COPY_NAME))


class AccessFile:
    """The file `access.db` of a data folder, readable by its owner only.

    It has a rollback journal instead of a write-ahead log, because it changes rarely: then no other file keeps what was
    removed from it. Then a reader waits for writers, too, and SQLite has no queue for that, so a process opens the file
    once for all its threads: beside one that wrote all the time, a reader with a connection of its own took up to 24 s.
    """

    def __init__(self, folder: Path, master: MasterKeys = NO_MASTER_KEYS) -> None:
        """Opens or creates the file. Its pages are authenticated, as those of vaults are. Its key is in a file of its
        own, which `master` encrypts.

        Raises:
            AccessMissingError: the file is missing but its copy exists.
            ConfigurationError: the folder cannot be used, the file is damaged, not ours, or of another layout, or its
                key cannot be read.
        """
        self._lock = threading.Lock()
        path = self._path = folder / FILE_NAME
        keys = VaultKeyFile(folder, master, KEY_NAME)
        self._copy = AccessCopy(path, folder / COPY_NAME, keys)
        with contextlib.ExitStack() as opened:
            opened.callback(self._copy.close)
            try:
                create_folder(folder)
                refuse_links(*(folder / name for name in (FILE_NAME, COPY_NAME, KEY_NAME)))
                with alone(folder / LOCK_NAME):
                    if self._copy.is_alone():
                        raise AccessMissingError(path)
                    self._copy.mend()
                    prepare_database(path, keys, APPLICATION_ID)
                    self._connection = connect(path, keys, busy_timeout_ms=BUSY_TIMEOUT_MS)
                opened.callback(self._connection.close, True)
                self._prepare(path)
            except VaultKeyError:
                raise
            except OSError as error:
                raise refused(error, "the file of keys") from error
            except RecordDamagedError as error:
                raise AccessDamagedError(path, error) from error
            except apsw.Error as error:
                raise ConfigurationError(f"the keys in {str(path)!r} cannot be read: {error}") from error
            self._place = Place(path)
            self._close = opened.pop_all().close
        self._copy.store()

    def stamp(self) -> Stamp | None:
        """A stamp that differs once any process has written the file; None if it was written just now."""
        return settled_stamp(self._path)

    def close(self) -> None:
        """Closes the file. Further calls have no effect."""
        with self._lock:
            self._close()

    def _prepare(self, path: Path) -> None:
        connection = self._connection
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        connection.pragma("trusted_schema", False)
        connection.pragma("secure_delete", True)
        connection.pragma("synchronous", "extra")
        tighten_database(path)
        # Two processes may both find a new file.
        with _transaction(connection):
            if is_new(connection, path, APPLICATION_ID):
                connection.execute(_TABLES)
                mark(connection, APPLICATION_ID)

    @contextlib.contextmanager
    def working(self) -> Iterator[apsw.Connection]:
        """The connection, for this thread alone."""
        try:
            with self._lock:
                yield self._connection
        except apsw.FullError as error:
            raise StorageFullError("no space is left on the disk for keys; free some space, then try again") from error
        except apsw.CorruptError as error:
            raise PageDamagedError(FILE_NAME) from error
        except apsw.Error as error:
            log.exception("the file of keys failed")
            raise StorageFailedError("the file of keys cannot be read or written") from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[apsw.Connection]:
        """A transaction that other processes do not notice."""
        self._place.require()
        with self.working() as connection:
            with _transaction(connection):
                yield connection
            self._copy.store()

    @contextlib.contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """A transaction that other processes notice."""
        with self.transaction() as connection:
            connection.execute("UPDATE change_count SET version = version + 1")
            yield connection


class AccessTable:
    """One kind of content of the file. Several share an open file."""

    def __init__(self, file: AccessFile) -> None:
        """The file belongs to the caller, who closes it."""
        self._file = file
        self._stamp: Stamp | None = None
        """The stamp of the file when its version was read last."""

    def page_key(self) -> bytes:
        """32 random bytes that are made with the file, and never change."""
        with self._file.working() as connection:
            return bytes(connection.execute("SELECT bytes FROM page_key").get)

    def version(self) -> int:
        """A number that differs once any process has changed a key or a tenant, except for the times of last use."""
        stamp = self._file.stamp()
        with self._file.working() as connection:
            version = int(connection.execute("SELECT version FROM change_count").get)
        self._stamp = stamp
        return version

    def may_have_changed(self) -> bool:
        """Whether `version` may differ from what it was last, by the time of the file; does not wait for anything."""
        return self._stamp is None or self._file.stamp() != self._stamp


@contextlib.contextmanager
def _transaction(connection: apsw.Connection) -> Iterator[None]:
    """Waits for other writers and readers. A connection as a context manager would hold the interpreter lock while it
    waits, and so stop the reader that it waits for.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite itself has rolled back after some errors.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
