"""A data folder that belongs to one process at a time."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.engines.private import create_folder, tighten


class FolderLock:
    """Holds a folder for this process: created where missing, readable by its owner alone, refused to a second one.

    The lock is the kernel's: it ends with the process, however that ends.
    """

    def __init__(self, folder: Path) -> None:
        """Takes the folder.

        Raises:
            ConfigurationError: another process holds it, or it cannot be written.
        """
        try:
            create_folder(folder)
            tighten(folder)
            self._descriptor = os.open(folder / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigurationError(f"the data folder {str(folder)!r} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            raise ConfigurationError(
                f"the data folder {str(folder)!r} is in use by another process; stop it, or name another data_dir"
            ) from error
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, f"{os.getpid()}\n".encode())

    def close(self) -> None:
        """Lets the folder go. Calling it again does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
