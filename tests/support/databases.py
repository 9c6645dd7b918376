"""Looks into the databases of a vault as the server does: decrypted."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
from mnemon_server.engines.access_file import COPY_NAME, FILE_NAME, KEY_NAME
from mnemon_server.engines.sqlite.pages.database import MODE_NEW, connect, read_pages
from mnemon_server.engines.vault_key import VaultKeyFile

_FOLDERS = {"timeline", "timeline-index", "quarantine"}
"""The folders of databases within that of a vault."""


def open_database(path: Path, *, flags: int = MODE_NEW) -> apsw.Connection:
    """A connection to records.db or text.db, encrypted or not."""
    return connect(path, keys_of(path), flags=flags)


def content_of(path: Path) -> bytes:
    """The bytes of a file; for a database and its write-ahead log, all pages, decrypted."""
    if path.name.endswith(".db-wal"):
        return b""
    is_database = path.suffix in {".db", ".segment"} or path.name == COPY_NAME
    return b"".join(read_pages(path, keys_of(path))) if is_database else path.read_bytes()


def contents_of(folder: Path) -> bytes:
    """The bytes of all files of a vault, one after another."""
    return b"".join(content for _, content in files_below(folder, content_of))


def files_below(folder: Path, read: Callable[[Path], bytes] = Path.read_bytes) -> Iterator[tuple[Path, bytes]]:
    """All files below a folder with their content, ascending; files that a server removes meanwhile are left out."""
    for path in sorted(Path(place, name) for place, _, names in os.walk(folder) for name in names):
        try:
            yield path, read(path)
        except FileNotFoundError:
            continue


def keys_of(path: Path) -> VaultKeyFile:
    """The key of the vault that a database belongs to, or that of API keys."""
    if path.name.startswith(FILE_NAME):
        return VaultKeyFile(path.parent, name=KEY_NAME)
    return VaultKeyFile(path.parent.parent if path.parent.name in _FOLDERS else path.parent)
