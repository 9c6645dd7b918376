"""The disk of a vault, whose calls fail on request, and of which a power cut leaves less than was written."""

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.support.faulty_vfs import Content, FaultyFile, FaultyVFS

_NAMES = count()


class FaultyDisk(FaultyVFS):
    """The operating system's files below a folder, for SQLite and for Python.

    Of the calls below `failing`, number `fail_at`, counted from 1, and those after it, `failures` in all, fail with
    `error`. `left` is what a power cut would leave: synced bytes, random whole sectors of the other writes, and of the
    changes to the names in a folder since its last sync a random number of the first ones.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(f"disk-{next(_NAMES)}")
        self.folder = self.failing = folder
        self.calls = self.fail_at = 0
        self.error = errno.EIO
        self.bad_sector: tuple[str, int] | None = None
        """A file, and an offset at which it cannot be read."""
        self.on_call: Callable[[], object] = lambda: None
        """Called before each sync and each change of a name."""
        self._names: dict[str, list[dict[str, Content]]] = {}
        for path in folder.glob("*/*.segment"):
            self.contents[str(path)] = Content(path.read_bytes())
            self._names[str(path.parent)] = [self._now(str(path.parent))]

    @contextmanager
    def used(self) -> Iterator["FaultyDisk"]:
        """Puts the disk below all files that this process opens from now on."""
        usual = apsw.vfs_names()[0]
        # The layer that encrypts is made when it is first asked for.
        apsw.Connection(str(self.folder.parent / "first"), vfs=self.name).close()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", self._fsync(os.fsync))
            patch.setattr(os, "rename", self._rename(os.rename))
            patch.setattr(os, "unlink", self._unlink(os.unlink))
            apsw.set_default_vfs(self.name)
            try:
                yield self
            finally:
                apsw.set_default_vfs(usual)
                apsw.unregister_vfs(self.name)
                self.unregister()

    def heal(self) -> None:
        """From now on no call fails."""
        self.fail_at, self.bad_sector = 0, None

    def left(self, rng: random.Random) -> dict[str, bytes]:
        """The files that a power cut would leave now, by their paths in the folder."""
        with self.lock:
            # To close a descriptor of a database would release the locks of SQLite.
            others = [path for path in self.folder.iterdir() if not path.name.startswith("records.db")]
            files = {str(path): path.read_bytes() for path in others if path.is_file()}
            files |= {path: one.torn(rng) for path, one in self._now(str(self.folder)).items()}
            for history in self._names.values():
                files |= {path: one.torn(rng) for path, one in rng.choice(history).items()}
        return {str(Path(path).relative_to(self.folder)): content for path, content in files.items()}

    # Called by SQLite

    def added(self, path: str) -> None:
        self._note(path)

    def xOpen(self, name: Any, flags: list[int]) -> FaultyFile:  # noqa: N802 - SQLite's name
        return _File(self, name, flags)

    def check_sync(self, path: str) -> None:
        if self._is_mine(path):
            self.on_call()
            if self._is_failing(path):
                raise apsw.IOError("the test's disk failed to sync")

    def check_write(self, path: str) -> None:
        if self._is_failing(path):
            raise (apsw.FullError if self.error == errno.ENOSPC else apsw.IOError)("the test's disk failed to write")

    # Called by Python

    def _fsync(self, usual: Any) -> Any:
        def fsync(descriptor: int) -> None:
            path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
            with self._call(path):
                usual(descriptor)
                if path in self.contents:
                    self.contents[path].settle(os.fstat(descriptor).st_size)
                elif self._is_mine(path) and Path(path).is_dir():
                    self._names[path] = [self._now(path)]

        return fsync

    def _rename(self, usual: Any) -> Any:
        def rename(source: Any, target: Any, **options: Any) -> None:
            old, new = str(Path(source).absolute()), str(Path(target).absolute())
            with self._call(new):
                usual(source, target, **options)
                if old in self.contents:
                    self.contents[new] = self.contents.pop(old)
                    self._note(old, new)

        return rename

    def _unlink(self, usual: Any) -> Any:
        def unlink(path: Any, **options: Any) -> None:
            name = str(Path(path).absolute())
            with self._call(name):
                usual(path, **options)
                if self.contents.pop(name, None):
                    self._note(name)

        return unlink

    @contextmanager
    def _call(self, path: str) -> Iterator[None]:
        if not self._is_mine(path):
            yield
            return
        with self.lock:
            self.on_call()
            if self._is_failing(path):
                raise OSError(self.error, os.strerror(self.error), path)
            yield

    def _is_mine(self, path: str) -> bool:
        return Path(path).is_relative_to(self.folder)

    def _is_failing(self, path: str) -> bool:
        if not Path(path).is_relative_to(self.failing):
            return False
        self.calls += 1
        return bool(self.fail_at) and self.fail_at <= self.calls < self.fail_at + self.failures

    def _now(self, folder: str) -> dict[str, Content]:
        return {path: content for path, content in self.contents.items() if str(Path(path).parent) == folder}

    def _note(self, *paths: str) -> None:
        for folder in {str(Path(path).parent) for path in paths}:
            if folder != str(self.folder) and self._is_mine(folder):
                self._names.setdefault(folder, [{}]).append(self._now(folder))


class _File(FaultyFile):
    def __init__(self, disk: FaultyDisk, name: Any, flags: list[int]) -> None:
        super().__init__(disk, name, flags)
        self._disk = disk

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 - SQLite's name
        if self._disk.bad_sector == (Path(self.path).name, offset):
            error = apsw.IOError("the test's disk has a bad sector")
            error.extendedresult = apsw.SQLITE_IOERR_READ  # type: ignore[attr-defined]
            raise error
        return super().xRead(amount, offset)
