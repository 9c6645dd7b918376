"""Folders and files that nobody but the server's own user can read, whatever the umask."""

import errno
import logging
import os
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

_FOLDER, _FILE, _OTHERS = 0o700, 0o600, 0o077

log = logging.getLogger(__name__)


def create_folder(folder: Path) -> None:
    """Creates a folder, and what is missing above it; folders that are there stay as they are.

    Raises:
        OSError: it cannot be.
    """
    missing = [*takewhile(lambda each: not each.exists(), (folder, *folder.parents))]
    for each in reversed(missing):
        each.mkdir(mode=_FOLDER, exist_ok=True)
    if not missing and not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def create_file(path: Path) -> None:
    """Creates an empty file where there is none and there can be one; whoever opens it meets the error."""
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE))


def tighten_database(path: Path) -> None:
    """As `tighten`, for a file of SQLite and those that lie beside it while it is open."""
    for each in path.parent.glob(f"{path.name}*"):
        tighten(each)


def tighten(path: Path) -> None:
    """Takes from others what they may do with a file or folder of the server; warns where that is not allowed."""
    mode = path.stat().st_mode
    if not mode & _OTHERS:
        return
    try:
        path.chmod(mode & ~_OTHERS & 0o7777)
    except OSError:
        log.warning("other users of this machine may have access to %s, whose mode is %o", path, mode & 0o7777)
