"""Tells whether a file was written or moved, at the cost of one system call."""

import time
from pathlib import Path

from mnemon_server.domain.errors import StorageFailedError

SETTLED_S = 3.0
"""A change is at least so old if the times of files tell it from further ones: some file systems count two seconds."""

Stamp = tuple[int, int, int]


def settled_stamp(path: Path) -> Stamp | None:
    """What differs once the file has changed; None if it was written just now, or cannot be seen."""
    try:
        found = path.stat()
    except OSError:
        return None
    is_settled = found.st_mtime + SETTLED_S < time.time()
    return (found.st_mtime_ns, found.st_size, found.st_ino) if is_settled else None


class FileMovedError(StorageFailedError):
    """The open file is no longer the one at its path: what is written to it would not be found after a restart."""


class Place:
    """Where a file was opened. Any thread may call any method."""

    def __init__(self, path: Path, name: str = "") -> None:
        """The file is open. `name` is that of its folder, if messages shall name it instead. Raises OSError if the file
        is gone already.
        """
        self._path = path
        self._name = name or path.name
        self._identity = _identity(path)

    def problem(self) -> str | None:
        """Why nothing may be written to it: the path leads to another file, or to none."""
        try:
            if _identity(self._path) == self._identity:
                return None
        except OSError:
            pass
        return (
            f"{self._name} is not where it was opened: its folder was moved, removed or replaced, and nothing is "
            "written to it any more. Put the folder back, or restart the server, which serves what is there then"
        )

    def require(self) -> None:
        """Raises FileMovedError if there is a problem."""
        if problem := self.problem():
            raise FileMovedError(problem)


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino
