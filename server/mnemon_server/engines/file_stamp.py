"""Tells whether a file was written or moved, at the cost of one system call."""

import time
from pathlib import Path

from mnemon_server.domain.errors import StorageFailedError

SETTLED_S = 3.0
"""A change is at least so old if the times of files tell it from further ones: some file systems count two seconds."""

Stamp = tuple[int, int, int]


def settled_stamp(path: Path) -> Stamp | None:
    """A stamp that differs once the file has changed; None if it was written just now, or cannot be seen."""
    try:
        found = path.stat()
    except OSError:
        return None
    is_settled = found.st_mtime + SETTLED_S < time.time()
    return (found.st_mtime_ns, found.st_size, found.st_ino) if is_settled else None


class FileMovedError(StorageFailedError):
    """The open file is no longer the one at its path, so writes would be lost after a restart."""


class Place:
    """The identity of an opened file. Any thread may call any method."""

    def __init__(self, path: Path, name: str = "") -> None:
        """Takes an open file. `name`: of its folder, to be used in messages. Raises OSError if the file
        is gone already.
        """
        self._path = path
        self._name = name or path.name
        self._identity = _identity(path)

    def problem(self) -> str | None:
        """The reason why writes would be lost: the path leads to another file, or does not exist."""
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
