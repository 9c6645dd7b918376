"""A file layer for SQLite that fails on request, and that knows what a power cut would leave."""

import random
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
        self.synced: dict[str, bytes] = {}
        self.unsynced: dict[str, list[tuple[int, bytes]]] = {}
        super().__init__(name, "unix")

    def xOpen(self, name: Any, flags: list[int]) -> "_FaultyFile":  # noqa: N802 - SQLite's name
        return _FaultyFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802, FBT001 - SQLite's name and shape
        super().xDelete(filename, syncdir)
        self.synced.pop(filename, None)
        self.unsynced.pop(filename, None)

    def check_sync(self) -> None:
        self.syncs += 1
        if self.fail_sync_at <= self.syncs < self.fail_sync_at + self.failures and self.fail_sync_at:
            raise apsw.IOError("the test's disk failed to sync")

    def check_write(self) -> None:
        self.writes += 1
        if self.fail_write_at <= self.writes < self.fail_write_at + self.failures and self.fail_write_at:
            raise apsw.FullError("the test's disk is full")

    def power_cut(self, folder: Path, rng: random.Random) -> None:
        """Writes into `folder` what the disk may hold now."""
        folder.mkdir(parents=True)
        for path, synced in self.synced.items():
            content = bytearray(synced)
            for offset, data in self.unsynced.get(path, []):
                for start in range(0, len(data), SECTOR):
                    if rng.random() < 0.5:
                        _place(content, offset + start, data[start : start + SECTOR])
            (folder / Path(path).name).write_bytes(content)


class _FaultyFile(apsw.VFSFile):
    def __init__(self, vfs: FaultyVFS, name: Any, flags: list[int]) -> None:
        self._vfs = vfs
        self._path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self._kept = bool(flags[0] & (apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_WAL))
        super().__init__("unix", name, flags)
        if self._kept:
            vfs.synced.setdefault(self._path, Path(self._path).read_bytes() if Path(self._path).exists() else b"")

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        self._vfs.check_write()
        super().xWrite(data, offset)
        if self._kept:
            self._vfs.unsynced.setdefault(self._path, []).append((offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - SQLite's name
        super().xTruncate(newsize)
        if self._kept:
            self._settle()

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        self._vfs.check_sync()
        super().xSync(flags)
        if self._kept:
            self._settle()

    def _settle(self) -> None:
        content = bytearray(self._vfs.synced[self._path])
        for offset, data in self._vfs.unsynced.pop(self._path, []):
            _place(content, offset, data)
        self._vfs.synced[self._path] = bytes(content[: self.xFileSize()])


def _place(content: bytearray, offset: int, data: bytes) -> None:
    content.extend(bytes(max(0, offset + len(data) - len(content))))
    content[offset : offset + len(data)] = data
