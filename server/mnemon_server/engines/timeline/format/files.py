"""The files of one folder, as far as segments need them: a narrow layer that tests replace with one that fails."""

import contextlib
import os
from pathlib import Path
from typing import Protocol

from mnemon_server.domain.errors import StorageFailedError, StorageFullError
from mnemon_server.engines.file_errors import storage_error, translated
from mnemon_server.engines.private import create_folder

_COPY_BYTES = 1 << 20


class AppendFile(Protocol):
    """A file that grows at its end. One thread uses it."""

    @property
    def size(self) -> int:
        """Bytes in the file, synced or not."""
        ...

    def append(self, data: bytes) -> None:
        """Writes all of `data` at the end. Where it fails, any part of it may be there.

        Raises:
            StorageFullError: no space is left.
            StorageFailedError: the disk failed.
        """
        ...

    def sync(self) -> None:
        """Returns once everything written is on the disk. After an error, what was not yet synced may be lost for
        good although it can still be read, and another sync proves nothing of it.

        Raises:
            StorageFullError: no space is left.
            StorageFailedError: the disk failed.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cuts the file to its first `size` bytes.

        Raises:
            StorageFailedError: the disk failed.
        """
        ...

    def close(self) -> None:
        """Lets the file go; nothing is synced. Calling it again does nothing."""
        ...


class ReadFile(Protocol):
    """A file that is read at any place, by several threads at once, and still after it was unlinked."""

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`; fewer only where the file ends.

        Raises:
            StorageFailedError: the disk failed.
        """
        ...

    def size(self) -> int:
        """Bytes in the file now.

        Raises:
            StorageFailedError: the disk failed.
        """
        ...

    def close(self) -> None:
        """Lets the file go, when no thread reads it any more; a file that is dropped unclosed is let go as well.
        Calling it again does nothing.
        """
        ...


class Files(Protocol):
    """The files of one folder. Names are plain names, without a folder.

    Every method raises StorageFullError where no space is left, and StorageFailedError where the disk failed or the
    file is not there (or, for `create`, is there already).
    """

    def create(self, name: str) -> AppendFile:
        """A new, empty file. Its name is durable after `sync_folder`."""
        ...

    def open_append(self, name: str) -> AppendFile:
        """A file that is there, to write on at its end."""
        ...

    def open_read(self, name: str, *, uncached: bool = False) -> ReadFile:
        """A file that is there, to read; `uncached` asks for what the disk holds, not what memory holds of it."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Gives a file another name, in place of whatever had it. Durable after `sync_folder`."""
        ...

    def unlink(self, name: str) -> None:
        """Removes a file; who has it open reads on. One that is not there is no error. Durable after `sync_folder`."""
        ...

    def sync_folder(self) -> None:
        """Returns once every creation, renaming and removal is on the disk."""
        ...

    def names(self) -> list[str]:
        """The names of all files, sorted; no folders."""
        ...

    def copy_to(self, name: str, target: "Files") -> None:
        """Copies a file, under its name and durably, into another folder, in place of whatever was there."""
        ...


class OsFiles:
    """A folder of the file system, created where it is missing; readable by its owner alone."""

    def __init__(self, folder: Path) -> None:
        """Touches nothing yet: the folder is created with the first file.

        Args:
            folder: holds the files; its name is in no error, only in the log.
        """
        self._folder = folder

    def create(self, name: str) -> AppendFile:
        with translated("create", name):
            if not self._folder.is_dir():
                create_folder(self._folder)
                _sync_entries(self._folder.parent)
            return _OsAppendFile(self._folder / name, os.O_CREAT | os.O_EXCL)

    def open_append(self, name: str) -> AppendFile:
        with translated("open", name):
            return _OsAppendFile(self._folder / name, 0)

    def open_read(self, name: str, *, uncached: bool = False) -> ReadFile:
        with translated("open", name):
            return _OsReadFile(self._folder / name, uncached=uncached)

    def rename(self, old: str, new: str) -> None:
        with translated("rename", old):
            (self._folder / old).replace(self._folder / new)

    def unlink(self, name: str) -> None:
        with translated("remove", name):
            (self._folder / name).unlink(missing_ok=True)

    def sync_folder(self) -> None:
        with translated("sync the folder of", "segments"):
            _sync_entries(self._folder)

    def names(self) -> list[str]:
        with translated("list the folder of", "segments"):
            try:
                with os.scandir(self._folder) as entries:
                    return sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
            except FileNotFoundError:
                return []

    def copy_to(self, name: str, target: Files) -> None:
        copy_file(self, name, target)


def copy_file(source: Files, name: str, target: Files) -> None:
    """Copies a file durably: it has its name in `target` only once it is whole there; of a failure nothing is left.

    Raises:
        StorageFullError: no space is left.
        StorageFailedError: the disk failed.
    """
    draft = f"{name}.tmp"
    target.unlink(draft)
    try:
        with contextlib.closing(source.open_read(name)) as original, contextlib.closing(target.create(draft)) as copy:
            while chunk := original.pread(_COPY_BYTES, copy.size):
                copy.append(chunk)
            copy.sync()
    except (StorageFullError, StorageFailedError):
        target.unlink(draft)
        raise
    target.rename(draft, name)
    target.sync_folder()


def _sync_entries(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Descriptor:
    """A descriptor that is closed at the latest with the object that holds it."""

    def __init__(self, path: Path, flags: int) -> None:
        self._descriptor = -1
        self._name = path.name
        self._descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close()


class _OsAppendFile(_Descriptor):
    def __init__(self, path: Path, flags: int) -> None:
        super().__init__(path, os.O_WRONLY | os.O_APPEND | flags)
        self._size = os.fstat(self._descriptor).st_size

    @property
    def size(self) -> int:
        return self._size

    def append(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                written = os.write(self._descriptor, view)
                self._size += written
                view = view[written:]
        except OSError as error:
            raise storage_error("append to", self._name, error) from error

    def sync(self) -> None:
        with translated("sync", self._name):
            os.fdatasync(self._descriptor)

    def truncate(self, size: int) -> None:
        with translated("truncate", self._name):
            os.ftruncate(self._descriptor, size)
            self._size = size


class _OsReadFile(_Descriptor):
    def __init__(self, path: Path, *, uncached: bool) -> None:
        super().__init__(path, os.O_RDONLY)
        if uncached:
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def pread(self, size: int, offset: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size, offset)
            # A read may be cut short by a signal or at 2 GiB; only an empty one says that the file ends.
            while len(data) < size and (more := os.pread(self._descriptor, size - len(data), offset + len(data))):
                data += more
        except OSError as error:
            raise storage_error("read", self._name, error) from error
        return data

    def size(self) -> int:
        with translated("read", self._name):
            return os.fstat(self._descriptor).st_size
