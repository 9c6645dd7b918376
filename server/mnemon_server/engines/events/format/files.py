"""File access for segments: a narrow interface, so that tests can replace it with a failing implementation."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from mnemon_server.domain.errors import StorageFailedError, StorageFullError
from mnemon_server.engines.encryption import Cipher
from mnemon_server.engines.file_errors import storage_error, translated
from mnemon_server.engines.private import create_folder

_COPY_BYTES = 1 << 20


class AppendFile(Protocol):
    """A file that grows at its end. For use by one thread."""

    @property
    def size(self) -> int:
        """The size of the file in bytes, including data that is not synced."""
        ...

    def append(self, data: bytes) -> None:
        """Writes all of `data` at the end. After an error, any part of it may have been written.

        Raises:
            StorageFullError: the disk is full.
            StorageFailedError: the disk failed.
        """
        ...

    def sync(self) -> None:
        """Returns once everything written is on the disk. After an error, unsynced data may be lost although it can
        still be read, and a further successful sync does not prove otherwise.

        Raises:
            StorageFullError: the disk is full.
            StorageFailedError: the disk failed.
        """
        ...

    def truncate(self, size: int) -> None:
        """Truncates the file to its first `size` bytes.

        Raises:
            StorageFailedError: the disk failed.
        """
        ...

    def close(self) -> None:
        """Closes the file without a sync. Further calls have no effect."""
        ...


class ReadFile(Protocol):
    """A file for random reads by several threads at once. It stays readable after it was unlinked."""

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`; fewer only at the end of the file.

        Raises:
            StorageFailedError: the disk failed.
        """
        ...

    def size(self) -> int:
        """The current size of the file in bytes.

        Raises:
            StorageFailedError: the disk failed.
        """
        ...

    def close(self) -> None:
        """Closes the file; no thread may be reading it. A file that is garbage-collected is closed as well. Further
        calls have no effect.
        """
        ...


class Files(Protocol):
    """The files of one folder. Names are plain file names without a path.

    Every method raises StorageFullError if the disk is full, and StorageFailedError if the disk failed or the file does
    not exist (for `create`: if it already exists).
    """

    cipher: Cipher | None
    """Encrypts the events and indexes of segments; None can neither write nor read encrypted ones."""

    def create(self, name: str) -> AppendFile:
        """Creates an empty file. Its name is durable after `sync_folder`."""
        ...

    def open_append(self, name: str) -> AppendFile:
        """Opens an existing file to append to it."""
        ...

    def open_read(self, name: str, *, uncached: bool = False) -> ReadFile:
        """Opens an existing file for reading. `uncached` asks for the content on the disk rather than in the page
        cache.
        """
        ...

    def overwrite(self, name: str, pieces: Sequence[tuple[int, bytes]]) -> None:
        """Writes pieces at their offsets within an existing file, durably. After an error, any part of them may have
        been written, and no other byte has changed. Other links to the file keep its former content.
        """
        ...

    def rename(self, old: str, new: str) -> None:
        """Renames a file, replacing any file with the new name. Durable after `sync_folder`."""
        ...

    def unlink(self, name: str) -> None:
        """Removes a file if it exists. Threads that have it open can still read it. Durable after `sync_folder`."""
        ...

    def sync_folder(self) -> None:
        """Returns once every creation, renaming and removal is on the disk."""
        ...

    def names(self) -> list[str]:
        """The names of all files, sorted, without folders."""
        ...

    def copy_to(self, name: str, target: "Files") -> None:
        """Copies a file durably to another folder, under the same name. Replaces an existing file there."""
        ...


class OsFiles:
    """A folder of the file system. It is created if missing, readable by its owner only."""

    def __init__(self, folder: Path, cipher: Cipher | None = None) -> None:
        """Does not access the disk. The first file creates the folder.

        Args:
            folder: contains the files. Its name appears in the log, but not in errors.
            cipher: see Files.
        """
        self._folder = folder
        self.cipher = cipher

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

    def overwrite(self, name: str, pieces: Sequence[tuple[int, bytes]]) -> None:
        with translated("overwrite", name):
            if (self._folder / name).stat().st_nlink > 1:
                # A backup is reading it.
                copy_file(self, name, self)
            descriptor = os.open(self._folder / name, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                for offset, data in pieces:
                    done = 0
                    while done < len(data):
                        done += os.pwrite(descriptor, data[done:], offset + done)
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)

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
    """Copies a file durably. It appears in `target` only once it is complete; after a failure, nothing remains there.

    Raises:
        StorageFullError: the disk is full.
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
    """A file descriptor that is closed at the latest when its owner is garbage-collected."""

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
            # A signal or the 2 GiB limit can cut a read short. Only an empty read means the end of the file.
            while len(data) < size and (more := os.pread(self._descriptor, size - len(data), offset + len(data))):
                data += more
        except OSError as error:
            raise storage_error("read", self._name, error) from error
        return data

    def size(self) -> int:
        with translated("read", self._name):
            return os.fstat(self._descriptor).st_size
