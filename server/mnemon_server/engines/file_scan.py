"""Looks for marks in all files of a vault, decrypted."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import apsw

from mnemon_server.domain.errors import MnemonError
from mnemon_server.engines.encryption import DecryptionError, is_encrypted
from mnemon_server.engines.promises.marks import RUN_BYTES_MAX, Marks
from mnemon_server.engines.promises.vault import FileScan
from mnemon_server.engines.sqlite.pages.database import read_pages
from mnemon_server.engines.vault_key import SNAPSHOTS, VaultKeyFile

_LOG_AHEAD = ".db-wal"
_BYTES_AT_ONCE = 4 << 20

log = logging.getLogger(__name__)


def scan_files(keys: VaultKeyFile, marks: Marks) -> FileScan:
    """Looks for marks in every file of the vault with these keys, decrypted.

    A file that disappears meanwhile counts as empty, as does a folder. Blocks.
    """
    folder, files, size = keys.folder, 0, 0
    found: dict[str, frozenset[int]] = {}
    # `Path.rglob` fails if a folder disappears before it has been read.
    for path in sorted(Path(place, name) for place, _, names in os.walk(folder) for name in names):
        numbers = set[int]()
        try:
            last = b""
            for data in _content(path, keys):
                numbers |= marks.find(last + data)
                # A run may begin in one part and end in the next.
                last = data[-RUN_BYTES_MAX:]
                size += len(data)
        except FileNotFoundError:
            continue
        files += path.is_file()
        if numbers:
            found[str(path.relative_to(folder))] = frozenset(numbers)
    return FileScan(files, size, found)


def _content(path: Path, keys: VaultKeyFile) -> Iterator[bytes]:
    """The content of a file in parts."""
    if path.name.endswith(_LOG_AHEAD):
        return
    decrypted = _DECRYPTED.get(path.suffix, _raw)
    try:
        yield from decrypted(path, keys)
    except (apsw.Error, MnemonError, DecryptionError):
        log.warning("%s cannot be decrypted, so its raw bytes are read", path)
        yield from _raw(path, keys)


def _raw(path: Path, _: VaultKeyFile) -> Iterator[bytes]:
    if path.is_file():
        with path.open("rb") as file:
            while data := file.read(_BYTES_AT_ONCE):
                yield data


def _snapshot(path: Path, keys: VaultKeyFile) -> Iterator[bytes]:
    content, key = path.read_bytes(), keys.find()
    yield key.cipher(SNAPSHOTS).decrypt_file(content) if key and is_encrypted(content) else content


_DECRYPTED: Mapping[str, Callable[[Path, VaultKeyFile], Iterator[bytes]]] = {
    ".db": read_pages,
    ".segment": read_pages,
    ".graph": _snapshot,
}
