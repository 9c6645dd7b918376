"""Prepares databases, copies them to files with another key, and replaces them: after a kill, the file is either the
old one or the new one.
"""

from collections.abc import Iterator
from contextlib import closing
from itertools import zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from mnemon_server.engines.layout import EarlierLayoutError, is_new
from mnemon_server.engines.private import create_file, sync
from mnemon_server.engines.sqlite.pages.database import CIPHER, MODE_READ, is_plain, key_text, set_key
from mnemon_server.engines.vault_key import VaultKey, VaultKeyFile

_DRAFT = ".encrypting"
_BESIDE = ("-wal", "-shm", "-journal")
_SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"


def discard_draft(path: Path) -> None:
    """Removes the draft of a database, and what SQLite keeps beside it. Raises OSError if that fails."""
    for suffix in ("", *_BESIDE):
        draft_of(path).with_name(draft_of(path).name + suffix).unlink(missing_ok=True)


def draft_of(path: Path) -> Path:
    """Where the copy that will replace a database is written."""
    return path.with_name(path.name + _DRAFT)


def prepare_database(path: Path, keys: VaultKeyFile, application: int) -> None:
    """Makes sure that a database exists and has a key. No other process is opening it.

    Raises:
        ConfigurationError: another program wrote it, or an earlier version, which did not encrypt.
    """
    if not path.exists() or not path.stat().st_size:
        keys.create()
        create_file(path)
    elif is_plain(path):
        with closing(apsw.Connection(str(path), flags=MODE_READ)) as plain:
            is_new(plain, path, application)
        raise EarlierLayoutError(path)
    elif keys.find():
        keys.create()
    discard_draft(path)


def put_draft_in_place(path: Path) -> None:
    """Replaces a database by its draft. The old file's log must be empty, and no connection open.

    Raises OSError if the disk failed; the file is then the old one or the new one.
    """
    sync(draft_of(path))
    # SQLite would apply the old file's log to the new one.
    for suffix in _BESIDE:
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    sync(path.parent)
    draft_of(path).rename(path)
    sync(path.parent)


def copy_with_key(source: apsw.Connection, target: Path, key: VaultKey) -> None:
    """Copies a database to a new file, which is encrypted with a key, and compares both. The file is not durable yet.

    The source was opened with SQLITE_OPEN_URI. Raises apsw.CorruptError if something cannot be read, and apsw.FullError
    or another apsw.Error if the disk failed.
    """
    # Created first, because SQLite would make it readable by other users.
    create_file(target)
    name = f"file:{quote(str(target.absolute()))}?cipher={CIPHER}&key={key_text(key)}"
    source.execute("VACUUM INTO ?", (name,))
    with closing(apsw.Connection(str(target), flags=apsw.SQLITE_OPEN_READONLY)) as copy:
        set_key(copy, key)
        _compare(source, copy)


def _compare(source: apsw.Connection, copy: apsw.Connection) -> None:
    """Raises apsw.CorruptError if the copy differs."""
    for pragma in ("application_id", "user_version"):
        if source.pragma(pragma) != copy.pragma(pragma):
            raise apsw.CorruptError(f"the copy has another {pragma}")
    schema = source.execute(_SCHEMA).fetchall()
    if schema != copy.execute(_SCHEMA).fetchall():
        raise apsw.CorruptError("the copy has other tables")
    for kind, name, _, sql in schema:
        is_virtual = str(sql).upper().startswith("CREATE VIRTUAL")
        if kind == "table" and not is_virtual and any(one != other for one, other in _rows(source, copy, str(name))):
            raise apsw.CorruptError(f"the copy of the table {name} differs")


def _rows(source: apsw.Connection, copy: apsw.Connection, table: str) -> Iterator[tuple[Any, Any]]:
    statement = f'SELECT * FROM "{table}"'  # noqa: S608 - the name of a table of the file
    return zip_longest(source.execute(statement), copy.execute(statement))
