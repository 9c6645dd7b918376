"""A disk whose syncs a test can hold back; it applies to every SQLite database opened while it is in use."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw

DEADLINE_S = 60


class SlowDisk(apsw.VFS):
    """The operating system's files. While `gate` is closed, a sync waits."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = 0
        """Syncs that wait for the gate."""
        self.base = apsw.vfs_names()[0]
        super().__init__("slow-disk", self.base, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> "_SlowFile":  # noqa: N802 - SQLite's name
        return _SlowFile(self, name, flags)


class _SlowFile(apsw.VFSFile):
    def __init__(self, disk: SlowDisk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        super().__init__(disk.base, name, flags)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.waiting += 1
        try:
            assert self._disk.gate.wait(DEADLINE_S), "the gate was not opened"
        finally:
            self._disk.waiting -= 1
        super().xSync(flags)


@contextmanager
def slow_disk() -> Iterator[SlowDisk]:
    """The default disk of SQLite until the block ends."""
    disk = SlowDisk()
    try:
        yield disk
    finally:
        disk.gate.set()
        disk.unregister()
