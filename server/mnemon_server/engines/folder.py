"""Locks of data folders and of files in them."""

import contextlib
import errno
import fcntl
import fnmatch
import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.engines.file_stamp import Place
from mnemon_server.engines.private import create_file, create_folder, refused, tighten


def find_files(folder: Path, pattern: str) -> list[Path]:
    """The files in a folder and all its subfolders whose names match a pattern, sorted.

    Raises:
        OSError: a folder cannot be read, so the list would be incomplete. Folders removed meanwhile are skipped.
    """
    walk = os.walk(folder, onerror=_raise)
    return sorted(Path(parent, name) for parent, _, names in walk for name in fnmatch.filter(names, pattern))


def _raise(error: OSError) -> None:
    if error.errno != errno.ENOENT:
        raise error


class LinkError(ConfigurationError):
    """There is a symbolic link within the data folder."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{str(path)!r} is a symbolic link. Links inside the data folder are not followed, because one could lead "
            "to the data of another tenant: put the file or folder itself there, or mount a disk there. The data "
            "folder itself may be a link"
        )


def find_links(folder: Path) -> list[Path]:
    """The symbolic links in a folder and its subfolders, sorted; only the folder itself if it is a link."""
    if folder.is_symlink():
        return [folder]
    walk = os.walk(folder)
    paths = (Path(place, name) for place, folders, files in walk for name in (*folders, *files))
    return sorted(path for path in paths if path.is_symlink())


def refuse_links(*paths: Path) -> None:
    """Raises LinkError if one of these files or folders is, or contains, a symbolic link."""
    for link in (link for path in paths for link in find_links(path)):
        raise LinkError(link)


class FolderInUseError(ConfigurationError):
    """Another process has locked the folder."""


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keeps other processes out of the block, which waits for them. Creates the file that they all lock.

    Raises OSError if it cannot be opened.
    """
    create_file(path)
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


_held: "weakref.WeakSet[FolderLock]" = weakref.WeakSet()


class FolderLock:
    """Locks a folder for this process. Creates the folder if needed, readable by its owner only.

    It is a kernel lock, so it ends with the process, even after a crash. The child of a fork does not have it.
    """

    def __init__(self, folder: Path, *, shared: bool = False) -> None:
        """Locks the folder. If `shared`, other processes may lock it in the same way, and none alone.

        Raises:
            FolderInUseError: another process has locked it.
            LinkError: it is a symbolic link.
            ConfigurationError: it is not writable.
        """
        if folder.is_symlink():
            raise LinkError(folder)
        try:
            create_folder(folder)
            tighten(folder)
            self._descriptor = os.open(folder / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise refused(error, "the data folder") from error
        try:
            fcntl.flock(self._descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            raise FolderInUseError(
                f"the data folder {str(folder)!r} is in use by another process; stop it, or set another data_dir"
            ) from error
        self._folder = folder
        _held.add(self)
        if not shared:
            # Only informative, so a full disk must not prevent opening the folder.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
                os.write(self._descriptor, f"{os.getpid()}\n".encode())

    def place(self) -> Place:
        """Where the locked folder is. Raises OSError if it is gone already."""
        # From the open file, because the inode number of a removed folder may be reused.
        return Place(self._folder / "LOCK", self._folder.name)

    def close(self) -> None:
        """Unlocks the folder. Further calls have no effect."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _leave_to_the_parent() -> None:
    """Closes the descriptors that a fork copied: the lock would otherwise last until the child has ended, too."""
    for lock in _held:
        lock.close()


os.register_at_fork(after_in_child=_leave_to_the_parent)
