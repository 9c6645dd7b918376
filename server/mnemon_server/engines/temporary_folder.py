"""A folder for what ends with the process: in RAM if the system allows it, and removed by the next at the latest."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.engines.folder import FolderLock
from mnemon_server.engines.private import refused

PREFIX = "mnemon-memory-"
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the folder within it has a random name and belongs to this user alone
FREE_MIN_BYTES = 1 << 30
"""Containers have 64 MiB of it unless they are given more, which would be full soon."""


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new folder for this process alone, which is removed when the block is left.

    A kill leaves it behind. So this also removes the folders of processes that have ended: those that are not locked.

    Raises:
        ConfigurationError: no folder can be created.
    """
    parent = _parent()
    _remove_abandoned(parent)
    try:
        draft = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=parent))
    except OSError as error:
        raise refused(error, "the folder for temporary files", remedy="set TMPDIR to another folder") from error
    with FolderLock(draft):
        # It gets its name once it is locked: another process would take it for abandoned.
        folder = draft.rename(parent / draft.name.removeprefix("."))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _parent() -> Path:
    """The folder in TMPDIR; otherwise shared memory if there is enough of it, or the system's temporary folder."""
    with suppress(OSError):
        if not os.environ.get("TMPDIR") and shutil.disk_usage(SHARED_MEMORY).free >= FREE_MIN_BYTES:
            return SHARED_MEMORY
    return Path(tempfile.gettempdir())


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError, ConfigurationError):
            if folder.lstat().st_uid == os.geteuid():
                with FolderLock(folder):
                    shutil.rmtree(folder)
