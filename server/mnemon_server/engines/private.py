"""Folders and files that only the server's user can access, whatever the umask."""

import errno
import logging
import os
import pwd
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from mnemon_server.domain.errors import ConfigurationError

_FOLDER, _FILE, _OTHERS = 0o700, 0o600, 0o077

log = logging.getLogger(__name__)


def create_folder(folder: Path) -> None:
    """Creates a folder and its missing parents. Existing folders keep their modes.

    Raises:
        OSError: the folder cannot be created.
    """
    missing = [*takewhile(lambda each: not each.exists(), (folder, *folder.parents))]
    for each in reversed(missing):
        each.mkdir(mode=_FOLDER, exist_ok=True)
    if not missing and not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def refused(
    error: OSError, what: str = "the path", *, remedy: str = "set data_dir to another folder"
) -> ConfigurationError:
    """The error of a path that the operating system refuses: the reason, the owner if it matters, and a remedy."""
    path = Path(os.fsdecode(error.filename or ""))
    # A missing or hidden path does not tell who owns it; the nearest visible folder does.
    seen = next(filter(_is_seen, (path, *path.parents)), path)
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in (errno.EACCES, errno.EPERM) and _is_seen(seen):
        owner, user = user_name(seen.stat().st_uid), user_name(os.geteuid())
        reason += f": {str(seen)!r} belongs to {owner}, and this process runs as {user}"
    elif error.errno == errno.ENOTDIR:
        reason = f"{str(seen)!r} is not a folder"
    named = f"{what} {str(path)!r}" if error.filename else what
    return ConfigurationError(f"{named} cannot be used: {reason}; change that, or {remedy}")


def user_name(uid: int) -> str:
    """A user of this machine for messages, such as ada (uid 1000); the number alone if it has no name."""
    with suppress(KeyError):
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    return f"uid {uid}"


def _is_seen(path: Path) -> bool:
    with suppress(OSError):
        return path.stat() is not None
    return False


def create_file(path: Path) -> None:
    """Creates an empty file if possible. Does nothing if it exists or cannot be created: opening it will report the
    error.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE))


def open_private(path: str | Path, flags: int) -> int:
    """Opens a file as `os.open` does, also for `open`; one that it creates belongs to its user alone."""
    return os.open(path, flags | os.O_CLOEXEC, _FILE)


def tighten_database(path: Path) -> None:
    """Applies `tighten` to a SQLite database and to the files that SQLite keeps beside it."""
    for each in path.parent.glob(f"{path.name}*"):
        tighten(each)


def tighten(path: Path) -> None:
    """Removes the permissions of other users on a file or folder. Logs a warning if that is not allowed."""
    mode = path.stat().st_mode
    if not mode & _OTHERS:
        return
    try:
        path.chmod(mode & ~_OTHERS & 0o7777)
    except OSError:
        log.warning("other users of this machine may have access to %s, whose mode is %o", path, mode & 0o7777)


def sync(path: Path) -> None:
    """Makes the content of a file durable, or the names in a folder. Raises OSError if the disk failed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
