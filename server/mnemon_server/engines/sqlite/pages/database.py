"""Opens databases with the key of their vault. Each cause of a failure has an error of its own.

Pages are encrypted with AEGIS-256 by SQLite3 Multiple Ciphers, each with a nonce and a tag of its own, also in the
write-ahead log. A page that was changed or moved is an error when it is read. What the tags do not cover is checked
here: the sizes at the beginning of the file, and the fingerprint of the key, which stands where the library keeps the
salt that it does not need with such a key.
"""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import apsw

from mnemon_server.domain.damage import PageDamagedError, VaultDamagedError
from mnemon_server.engines.master_keys import VaultKeyError
from mnemon_server.engines.sqlite.pages.page_file import PageFile
from mnemon_server.engines.vault_key import FINGERPRINT_BYTES, KeyLostError, VaultKey, VaultKeyFile

MODE_NEW = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
MODE_READ = apsw.SQLITE_OPEN_READONLY
CIPHER = "aegis"
BUSY_TIMEOUT_MS = 5_000

_PAGES_AT_ONCE = 256
_PLAIN = b"SQLite format 3\0"
_PAGE_SIZES_AT = slice(16, 24)
_PAGE_SIZES = re.compile(rb"\x10\x00(\x01\x01|\x02\x02)\x40\x40\x20\x20")
"""4,096 bytes; twice whether there is a write-ahead log; 64 bytes for nonce and tag; three constants."""


class WrongKeyError(VaultDamagedError, VaultKeyError):
    """A database was written with another key."""


def connect(
    path: Path,
    keys: VaultKeyFile,
    *,
    flags: int = MODE_NEW,
    vfs: str | None = None,
    busy_timeout_ms: int = BUSY_TIMEOUT_MS,
) -> apsw.Connection:
    """Opens a database, and reads its first page. An unencrypted one is opened as such; a new one is encrypted
    if the vault has a key.

    `vfs` is the name of a registered VFS. `busy_timeout_ms` is how long to wait for other connections, also while
    opening.

    Raises:
        KeyLostError, WrongKeyError: the key is missing, or belongs to another vault.
        KeyDamagedError, MasterKeyMissingError, WrongMasterKeyError: see VaultKeyFile.
        PageDamagedError: the first page is not what was written.
        apsw.Error: the file cannot be read.
    """
    return _connect(path, str(path), keys, flags, vfs, busy_timeout_ms)


def connect_at_rest(path: Path, keys: VaultKeyFile) -> apsw.Connection:
    """Opens a database for reading that no process uses, and that has no write-ahead log. Creates no files beside it.

    Raises the same as `connect`.
    """
    name = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    return _connect(path, name, keys, MODE_READ | apsw.SQLITE_OPEN_URI, None, BUSY_TIMEOUT_MS)


def attach(connection: apsw.Connection, path: Path, keys: VaultKeyFile, *, is_at_rest: bool) -> None:
    """Attaches a database of the vault as `source`, for reading. One at rest has no write-ahead log, and gets none.

    The connection was opened with SQLITE_OPEN_URI. Raises the same as `connect`.
    """
    key = keys.find()
    options = f"mode=ro{'&immutable=1' if is_at_rest else ''}&cipher={CIPHER}"
    # The key is bound, because errors quote the name of the file.
    uri = f"file:{quote(str(path.absolute()))}?{options}"
    connection.execute("ATTACH ? AS source KEY ?", (uri, key_text(key) if key else ""))


def has_log(path: Path) -> bool:
    """Whether a database has a write-ahead log with content."""
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0


def _connect(
    path: Path, name: str, keys: VaultKeyFile, flags: int, vfs: str | None, busy_timeout_ms: int
) -> apsw.Connection:
    key = keys.find()
    connection = apsw.Connection(name, flags=flags, vfs=vfs)
    try:
        connection.set_busy_timeout(busy_timeout_ms)
        if key is not None:
            set_key(connection, key)
        connection.pragma("schema_version")
        if key is not None:
            _check_sizes(connection, path)
    except apsw.NotADBError:
        connection.close(True)
        if not is_plain(path):
            raise _reason(path, key, keys.name) from None
        return apsw.Connection(name, flags=flags, vfs=vfs)
    except BaseException:
        connection.close(True)
        raise
    return connection


def read_pages(path: Path, keys: VaultKeyFile) -> Iterator[bytes]:
    """All pages of a database and of its write-ahead log that can be read, decrypted: parts of up to 1 MiB.

    Raises the same as `connect`.
    """
    with closing(connect(path, keys, flags=MODE_READ)) as connection:
        file = PageFile(connection)
        yield from file.logged()
        yield from file.readable(_PAGES_AT_ONCE)


def is_plain(path: Path) -> bool:
    """Whether a file is a database that is not encrypted. No connection of this process may have it open, because
    closing any descriptor of a file releases the locks on it.
    """
    return _header(path) == _PLAIN


def set_key(connection: apsw.Connection, key: VaultKey) -> None:
    """Makes a connection encrypt and authenticate pages. Call it before any other use."""
    connection.pragma("cipher", CIPHER)
    connection.pragma("key", key_text(key))


def key_text(key: VaultKey) -> str:
    """The key in the form that the library takes: the key, then the first bytes of the file."""
    return f"raw:{key.secret.hex()}{key.fingerprint.hex()}"


def has_fingerprint(path: Path, key: VaultKey) -> bool:
    """Whether the file begins with the fingerprint of the key. As for `is_plain`, nothing may have it open."""
    return _header(path) == key.fingerprint


def _reason(path: Path, key: VaultKey | None, name: str) -> Exception:
    """Why a file cannot be decrypted."""
    if key is None:
        return KeyLostError(
            f"{path.name} cannot be read without {name}, which is missing beside it: "
            "put the file back from a copy, or restore a backup"
        )
    if _header(path) == key.fingerprint:
        return PageDamagedError(path.name, [1])
    return WrongKeyError(
        f"{path.name} was written with another key than that in {name}: put back the file that belongs to it, "
        "or restore a backup"
    )


def _check_sizes(connection: apsw.Connection, path: Path) -> None:
    file = PageFile(connection)
    if file.count and not _PAGE_SIZES.fullmatch(file.read(1, 1)[_PAGE_SIZES_AT]):
        raise PageDamagedError(path.name, [1])


def _header(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(FINGERPRINT_BYTES)
