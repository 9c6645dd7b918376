"""The minimum number of commits in a vault, stored with an HMAC in a file beside records.db.

SQLite reads its write-ahead log up to the first frame whose checksum is wrong, and takes what follows for a write that
a crash has cut off. So one flipped bit would undo commits without a word. Therefore records.db counts its commits, and
the file `records.mark` says how many there are at least: at each checkpoint, at the end, and soon after each commit.

The file has two slots, which are written in turn, so that one is sound if a write is cut off.
"""

import hmac
import logging
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

import apsw

from mnemon_server.domain.damage import CommitsLostError
from mnemon_server.engines.file_errors import translated
from mnemon_server.engines.sqlite.query import set_meta, stored_meta
from mnemon_server.engines.vault_key import KEY_FILE, KeyLostError, VaultKey, VaultKeyFile

MARK_FILE = "records.mark"
DELAY_S = 0.15
"""Maximum delay between a commit and its mark."""

_KEY = "commits"
_SLOTS, _SLOT_BYTES = 2, 512
_CONTENT = struct.Struct(">8sQ")
_MAGIC = b"MNEMARK1"
_TAG_BYTES = 32

log = logging.getLogger(__name__)


def stored_commits(connection: apsw.Connection) -> int:
    """How many commits are in records.db."""
    return int(stored_meta(connection, _KEY) or 0)


def read_mark(folder: Path, key: VaultKey) -> tuple[int, bool]:
    """The minimum number of commits, 0 if unknown; and whether the file is undamaged.

    Raises:
        StorageFailedError: the file cannot be read.
    """
    with translated("read", MARK_FILE):
        try:
            content = (folder / MARK_FILE).read_bytes()
        except FileNotFoundError:
            return 0, True
    slots = [content[start : start + _SLOT_BYTES] for start in range(0, _SLOTS * _SLOT_BYTES, _SLOT_BYTES)]
    counts = [_count_in(slot, key) for slot in slots]
    return max((count for count in counts if count is not None), default=0), None not in counts


def check_mark(connection: apsw.Connection, keys: VaultKeyFile) -> None:
    """Raises CommitsLostError if records.db, with its log, has fewer commits than the mark says."""
    if (key := keys.find()) is None:
        return
    marked, is_sound = read_mark(keys.folder, key)
    if not is_sound:
        log.warning("%s was damaged and is rewritten; lost commits cannot be detected this time", MARK_FILE)
    if marked and (found := stored_commits(connection)) < marked:
        raise CommitsLostError(found, marked)


class CommitMark:
    """Counts the commits of a vault, and updates the file. For the writer's thread."""

    def __init__(self, keys: VaultKeyFile, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Opens nothing yet."""
        self._keys = keys
        self._path = keys.folder / MARK_FILE
        self._monotonic = monotonic
        self._descriptor = -1
        self._key = b""
        self._changes = 0
        self._count = self._running = self._marked = 0
        self._slot = 0
        self._due: float | None = None

    def load(self, connection: apsw.Connection) -> None:
        """Begins to count for a connection, whose file is encrypted.

        Raises:
            StorageFullError, StorageFailedError: the file cannot be written.
        """
        self.close()
        self._connection = connection
        if (key := self._keys.find()) is None:
            raise KeyLostError(f"{KEY_FILE} is missing")
        self._key = _mark_key(key)
        self._count = self._running = stored_commits(connection)
        self._changes = connection.total_changes()
        with translated("open", MARK_FILE):
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # Writes both slots, to replace a damaged one.
        for _ in range(_SLOTS):
            self._write()
        self.sync()

    # With the transactions; see Follower

    def before_commit(self, connection: apsw.Connection) -> None:
        """Counts the commit, if it changes anything. Must come after all other changes."""
        if connection.total_changes() != self._changes:
            self._running = self._count + 1
            set_meta(connection, _KEY, self._running)
            self._changes = connection.total_changes()

    def after_commit(self) -> None:
        """Schedules the mark of the commit."""
        self._count = self._running
        if self._due is None and self._count != self._marked:
            self._due = self._monotonic() + DELAY_S

    def after_rollback(self) -> None:
        """Reverts the count."""
        self._running, self._changes = self._count, self._connection.total_changes()

    def seconds_until_due(self) -> float | None:
        """Seconds until `tend` is due; None if every commit is marked."""
        return None if self._due is None else max(0.0, self._due - self._monotonic())

    def tend(self) -> None:
        """Writes the mark if it is due. Raises StorageFullError or StorageFailedError if the disk failed."""
        if self._due is not None and self._monotonic() >= self._due:
            self._write()

    def sync(self) -> None:
        """Marks all commits, durably unless the vault is not. Raises StorageFullError or StorageFailedError."""
        if self._descriptor >= 0:
            self._write()
            if self._keys.is_durable:
                with translated("write", MARK_FILE):
                    os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Closes the file. Further calls have no effect."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _write(self) -> None:
        with translated("write", MARK_FILE):
            os.pwrite(self._descriptor, _slot(self._count, self._key), self._slot * _SLOT_BYTES)
        self._slot = (self._slot + 1) % _SLOTS
        self._marked, self._due = self._count, None


def _slot(count: int, key: bytes) -> bytes:
    content = _CONTENT.pack(_MAGIC, count)
    return (content + hmac.digest(key, content, "sha256")).ljust(_SLOT_BYTES, b"\0")


def _count_in(slot: bytes, key: VaultKey) -> int | None:
    content, tag = slot[: _CONTENT.size], slot[_CONTENT.size : _CONTENT.size + _TAG_BYTES]
    if len(content) < _CONTENT.size or not hmac.compare_digest(tag, hmac.digest(_mark_key(key), content, "sha256")):
        return None
    return int(_CONTENT.unpack(content)[1])


def _mark_key(key: VaultKey) -> bytes:
    return key.derive("mark of commits")
