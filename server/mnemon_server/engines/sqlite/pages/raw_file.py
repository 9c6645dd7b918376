"""Access to the bytes of a database file beside SQLite."""

import os
from pathlib import Path


class RawFile:
    """A database file that is opened once.

    It stays open until `close`, which must come after all connections of this process are closed, because closing any
    descriptor of a file releases all locks that the process holds on it.
    """

    def __init__(self, path: Path) -> None:
        """Opens nothing yet."""
        self._path = path
        self._descriptor = -1

    @property
    def name(self) -> str:
        """Its name, without the folder."""
        return self._path.name

    @property
    def descriptor(self) -> int:
        """The open file. Raises OSError if it cannot be opened."""
        if self._descriptor < 0:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        return self._descriptor

    def close(self) -> None:
        """Closes the file. Further calls have no effect."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
