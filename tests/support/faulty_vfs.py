"""A file layer for SQLite that fails on request, and that knows what a power cut would leave."""

import random
import threading
from pathlib import Path
from typing import Any

import apsw

SECTOR = 512


class FaultyVFS(apsw.VFS):
    """The operating system's files, with faults.

    `fail_sync_at` and `fail_write_at` name the call that fails, counted from 1. `failures` says how many calls fail
    from there on. `power_cut` writes what a disk may hold after a power failure: synced bytes, and of the others a
    random choice of whole sectors.
    """

    def __init__(self, name: str) -> None:
        # Below the encryption, as disks are.
        self.name = f"multipleciphers-{name}"
        self.fail_sync_at = 0
        self.fail_write_at = 0
        self.failures = 1
        self.syncs = 0
        self.writes = 0
        self.lock = threading.RLock()
        """Held during each change, so that a power cut comes between two."""
        self.contents: dict[str, Content] = {}
        """The databases and their write-ahead logs, by their paths."""
        super().__init__(name, "unix")

    def xOpen(self, name: Any, flags: list[int]) -> "FaultyFile":  # noqa: N802 - SQLite's name
        return FaultyFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802, FBT001 - SQLite's name and shape
        super().xDelete(filename, syncdir)
        self.contents.pop(filename, None)

    def added(self, path: str) -> None:
        """Called when a file is opened for the first time."""

    def check_sync(self, path: str) -> None:
        self.syncs += 1
        if self.fail_sync_at <= self.syncs < self.fail_sync_at + self.failures and self.fail_sync_at:
            raise apsw.IOError("the test's disk failed to sync")

    def check_write(self, path: str) -> None:
        self.writes += 1
        if self.fail_write_at <= self.writes < self.fail_write_at + self.failures and self.fail_write_at:
            raise apsw.FullError("the test's disk is full")

    def power_cut(self, folder: Path, rng: random.Random) -> None:
        """Writes into `folder` what the disk may hold now."""
        folder.mkdir(parents=True)
        for path, content in self.contents.items():
            (folder / Path(path).name).write_bytes(content.torn(rng))


class Content:
    """The synced content of a file, and the writes since."""

    def __init__(self, synced: bytes = b"") -> None:
        self.synced = synced
        self.unsynced: list[tuple[int, bytes]] = []

    def settle(self, size: int) -> None:
        """Makes all durable."""
        content = bytearray(self.synced)
        for offset, data in self.unsynced:
            _place(content, offset, data)
        self.synced, self.unsynced = bytes(content[:size]), []

    def torn(self, rng: random.Random) -> bytes:
        """A state that a power cut may leave."""
        content = bytearray(self.synced)
        for offset, data in self.unsynced:
            for start in range(0, len(data), SECTOR):
                if rng.random() < 0.5:
                    _place(content, offset + start, data[start : start + SECTOR])
        return bytes(content)


class FaultyFile(apsw.VFSFile):
    def __init__(self, vfs: FaultyVFS, name: Any, flags: list[int]) -> None:
        self._vfs = vfs
        self.path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        super().__init__("unix", name, flags)
        self._content: Content | None = None
        if flags[0] & (apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_WAL):
            with vfs.lock:
                if self.path not in vfs.contents:
                    vfs.contents[self.path] = Content(Path(self.path).read_bytes())
                    vfs.added(self.path)
                self._content = vfs.contents[self.path]

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        with self._vfs.lock:
            self._vfs.check_write(self.path)
            super().xWrite(data, offset)
            if self._content:
                self._content.unsynced.append((offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - SQLite's name
        with self._vfs.lock:
            super().xTruncate(newsize)
            self._settle()

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        with self._vfs.lock:
            self._vfs.check_sync(self.path)
            super().xSync(flags)
            self._settle()

    def _settle(self) -> None:
        if self._content:
            self._content.settle(self.xFileSize())


def _place(content: bytearray, offset: int, data: bytes) -> None:
    content.extend(bytes(max(0, offset + len(data) - len(content))))
    content[offset : offset + len(data)] = data
