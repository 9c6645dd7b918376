"""Writes the files of a backup to a folder: all of it appears there, or nothing."""

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from mnemon.shared.errors import IncompleteBackupError

MANIFEST = "manifest.json"
DRAFTS = ".*.part"
"""The names of folders of unfinished backups, whether in progress or killed."""
_CONTENTS = frozenset({MANIFEST, "records.db", "records.db.changed", "vault.key", "timeline"})
"""The contents of such folders. A folder with anything else belongs to another program."""
_PATH = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}(/[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99})?")


class BackupFolder:
    """A backup that is being received. A context manager, which removes what was not committed.

    Until `commit`, the files are in a hidden folder beside the target. What a killed process has left there is removed
    by the next backup beside it. Only the user can read the files.
    """

    def __init__(self, target: Path) -> None:
        """Creates the hidden folder.

        Raises:
            FileExistsError: the target exists, or another process is writing it.
            OSError: the folder cannot be written.
        """
        self._target = target
        self._draft = target.parent / f".{target.name}.part"
        self._file: BinaryIO | None = None
        self._path = ""
        self._digests: dict[str, tuple[int, str]] = {}
        self._size, self._digest = 0, hashlib.sha256()
        if target.exists():
            raise FileExistsError(errno.EEXIST, "it exists already", str(target))
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # An unlocked folder would look like the leftover of a killed process.
        with _locked(target.parent):
            _discard(target.parent)
            self._draft.mkdir(mode=0o700, exist_ok=True)
            self._lock = _lock(self._draft)
        for left in self._draft.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file:
            self._file.close()
        if self._draft.exists():
            shutil.rmtree(self._draft, ignore_errors=True)
        os.close(self._lock)

    def write(self, path: str, data: bytes) -> None:
        """Appends to a file. The files come one after another.

        Raises:
            ValueError: the path leads elsewhere.
            OSError: it cannot be written.
        """
        if path != self._path:
            self._finish_file()
            if not _PATH.fullmatch(path) or path in self._digests:
                raise ValueError(f"{path!r} is not the path of a new file of a backup")
            place = self._draft / path
            place.parent.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            self._file, self._path = os.fdopen(descriptor, "wb"), path
            self._size, self._digest = 0, hashlib.sha256()
        if self._file:
            self._file.write(data)
        self._size += len(data)
        self._digest.update(data)

    def commit(self) -> dict[str, Any]:
        """Compares all files with the manifest, makes them durable, and gives the folder its name.

        Returns:
            The manifest.

        Raises:
            IncompleteBackupError: a file is missing, or is not what the manifest says.
            OSError: the disk failed.
        """
        self._finish_file()
        manifest = self._check()
        for folder in (*(each for each in self._draft.iterdir() if each.is_dir()), self._draft):
            _sync(folder)
        self._draft.rename(self._target)
        _sync(self._target.parent)
        return manifest

    def _check(self) -> dict[str, Any]:
        if MANIFEST not in self._digests:
            raise IncompleteBackupError("the backup ended before its manifest; nothing was kept, so take it again")
        manifest: dict[str, Any] = json.loads((self._draft / MANIFEST).read_bytes())
        for file in manifest["files"]:
            stored = file["stored"]
            if stored and self._digests.pop(stored["path"], None) != (stored["size"], stored["sha256"]):
                raise IncompleteBackupError(
                    f"{stored['path']} did not arrive as the manifest says; nothing was kept, so take the backup again"
                )
        return manifest

    def _finish_file(self) -> None:
        """Makes the current file durable."""
        if self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._digests[self._path] = self._size, self._digest.hexdigest()
            self._file, self._path = None, ""


def discard_drafts(folder: Path) -> list[str]:
    """Removes leftovers of killed backups in a folder. Returns the names of the backups in progress.

    Raises OSError if the folder cannot be read.
    """
    if not folder.is_dir():
        return []
    with _locked(folder):
        return _discard(folder)


def _discard(folder: Path) -> list[str]:
    kept = []
    for draft in sorted(folder.glob(DRAFTS)):
        try:
            if draft.is_symlink() or not _CONTENTS.issuperset(each.name for each in draft.iterdir()):
                continue
            lock = _lock(draft)
            try:
                shutil.rmtree(draft)
            finally:
                os.close(lock)
        except NotADirectoryError:
            continue
        except OSError:
            kept.append(draft.name[1:].removesuffix(".part"))
    return kept


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = _lock(folder, wait=True)
    try:
        yield
    finally:
        os.close(lock)


def _lock(folder: Path, *, wait: bool = False) -> int:
    """Locks a folder for as long as the result is open. Raises FileExistsError if another process has locked it."""
    import fcntl  # not on every system on which a client runs

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        os.close(descriptor)
        raise FileExistsError(errno.EEXIST, "another process is writing it", str(folder)) from error
    return descriptor


def read_manifest(folder: Path) -> bytes:
    """The manifest of a backup. Raises OSError if it cannot be read."""
    return (folder / MANIFEST).read_bytes()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
