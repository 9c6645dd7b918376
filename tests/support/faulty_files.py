"""In-memory files that fail on request, and that know what a power cut would leave of them."""

import errno
import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from mnemon_server.engines.encryption import Cipher
from mnemon_server.engines.events.format.files import AppendFile, Files, ReadFile, copy_file
from mnemon_server.engines.file_errors import translated

SECTOR = 512

Operation = Literal["create", "append", "sync", "truncate", "rename", "unlink", "sync_folder", "pread", "overwrite"]


class PowerCutError(Exception):
    """A file was used that was open when the power failed."""


class FaultyFiles:
    """A folder whose files and entries each have a volatile image, which is read, and a durable one.

    `fail` names the call that fails, counted from 1 for each kind of operation. A failing `append` or `overwrite`
    writes half of its bytes. What a failing `sync` should have written stays readable but never reaches the disk.
    `crash` is a power cut: synced bytes stay, and so do random whole sectors of the other writes and a random number of
    the first changes to the folder.
    """

    def __init__(self) -> None:
        self.cipher: Cipher | None = None
        self.calls: Counter[str] = Counter()
        self.cuts = 0
        self.unreadable = range(0)
        """Bytes of every file that cannot be read."""
        self._entries: dict[str, Inode] = {}
        self._durable_entries: dict[str, Inode] = {}
        self._pending_entries: list[dict[str, Inode]] = []
        self._failures: dict[Operation, tuple[int, int, int]] = {}

    def fail(self, operation: Operation, *, at: int, times: int = 1, error: int = errno.EIO) -> None:
        """The next call number `at`, counted from now, and those after it fail, `times` in all."""
        start = self.calls[operation] + at
        self._failures[operation] = start, start + times, error

    def heal(self) -> None:
        """From now on no call fails."""
        self._failures.clear()

    def crash(self, rng: random.Random) -> None:
        """The power fails and returns. Files that were open can no longer be used."""
        self.cuts += 1
        kept = rng.randint(0, len(self._pending_entries))
        entries = self._pending_entries[kept - 1] if kept else self._durable_entries
        for inode in {*self._entries.values(), *entries.values()}:
            inode.crash(rng)
        self._entries, self._durable_entries, self._pending_entries = dict(entries), dict(entries), []

    def content(self, name: str) -> bytes:
        """The bytes that a read returns."""
        return bytes(self._entries[name].data)

    def put(self, name: str, content: bytes) -> None:
        """Makes a durable file with this content, replacing any previous one."""
        inode = Inode()
        inode.data, inode.durable = bytearray(content), bytearray(content)
        self._entries[name] = self._durable_entries[name] = inode

    def create(self, name: str) -> AppendFile:
        with self._call("create", name):
            if name in self._entries:
                raise FileExistsError(errno.EEXIST, "the file is there")
            self._entries[name] = Inode()
            self._pending_entries.append(dict(self._entries))
        return _AppendFile(self, name, self._entries[name])

    def open_append(self, name: str) -> AppendFile:
        return _AppendFile(self, name, self.inode(name))

    def open_read(self, name: str, *, uncached: bool = False) -> ReadFile:
        del uncached
        return _ReadFile(self, name, self.inode(name))

    def overwrite(self, name: str, pieces: Sequence[tuple[int, bytes]]) -> None:
        inode = self.inode(name)
        with translated("overwrite", name):
            for offset, data in pieces:
                try:
                    self.check("overwrite")
                except OSError:
                    inode.write_at(offset, data[: len(data) // 2])
                    raise
                inode.write_at(offset, data)
            try:
                self.check("sync")
            except OSError:
                inode.forget()
                raise
            inode.sync()

    def rename(self, old: str, new: str) -> None:
        with self._call("rename", old):
            if old not in self._entries:
                raise FileNotFoundError(errno.ENOENT, "no such file")
            self._entries[new] = self._entries.pop(old)
            self._pending_entries.append(dict(self._entries))

    def unlink(self, name: str) -> None:
        with self._call("unlink", name):
            if self._entries.pop(name, None):
                self._pending_entries.append(dict(self._entries))

    def sync_folder(self) -> None:
        with self._call("sync_folder", "segments"):
            self._durable_entries, self._pending_entries = dict(self._entries), []

    def names(self) -> list[str]:
        return sorted(self._entries)

    def copy_to(self, name: str, target: Files) -> None:
        copy_file(self, name, target)

    def inode(self, name: str) -> "Inode":
        """The content under a name, for a test to damage."""
        with translated("open", name):
            if name not in self._entries:
                raise FileNotFoundError(errno.ENOENT, "no such file")
        return self._entries[name]

    @contextmanager
    def _call(self, operation: Operation, name: str) -> Iterator[None]:
        with translated(operation, name):
            self.check(operation)
            yield

    def check(self, operation: Operation) -> None:
        """Counts the call, and fails it if requested."""
        self.calls[operation] += 1
        start, end, error = self._failures.get(operation, (0, 0, 0))
        if start <= self.calls[operation] < end:
            raise OSError(error, os.strerror(error))


class Inode:
    """The content of a file: as it is read, as it is on disk, and the writes that are not on disk yet."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self._pending: list[tuple[int, bytes | None]] = []

    def write(self, data: bytes) -> None:
        self.write_at(len(self.data), data)

    def write_at(self, offset: int, data: bytes) -> None:
        self._pending.append((offset, data))
        _place(self.data, offset, data)

    def cut(self, size: int) -> None:
        self._pending.append((size, None))
        _place(self.data, size, None)

    def sync(self) -> None:
        for offset, data in self._pending:
            _place(self.durable, offset, data)
        self._pending.clear()

    def forget(self) -> None:
        """The effect of a failed sync: pending bytes count as written, but are not."""
        self._pending.clear()

    def crash(self, rng: random.Random) -> None:
        """Leaves what a disk may hold: none of the pending writes, the first ones, or random sectors of any."""
        kept = rng.choice([0, rng.randint(0, len(self._pending)), len(self._pending)])
        torn = rng.random() < 0.5
        for offset, data in self._pending[:kept]:
            for start in range(0, len(data) if data is not None else 1, SECTOR):
                if not torn or rng.random() < 0.5:
                    _place(self.durable, offset + start, data[start : start + SECTOR] if data is not None else None)
        if torn and self._pending[kept:] and (data := self._pending[kept][1]):
            _place(self.durable, self._pending[kept][0], data[: rng.randint(0, len(data))])
        self._pending.clear()
        self.data = bytearray(self.durable)


class _AppendFile:
    def __init__(self, files: FaultyFiles, name: str, inode: Inode) -> None:
        self._files, self._name, self._inode, self._cuts = files, name, inode, files.cuts

    @property
    def size(self) -> int:
        return len(self._inode.data)

    def append(self, data: bytes) -> None:
        with self._use():
            try:
                self._files.check("append")
            except OSError:
                self._inode.write(data[: len(data) // 2])
                raise
            self._inode.write(data)

    def sync(self) -> None:
        with self._use():
            try:
                self._files.check("sync")
            except OSError:
                self._inode.forget()
                raise
            self._inode.sync()

    def truncate(self, size: int) -> None:
        with self._use():
            self._files.check("truncate")
            self._inode.cut(size)

    def close(self) -> None:
        pass

    @contextmanager
    def _use(self) -> Iterator[None]:
        if self._cuts != self._files.cuts:
            raise PowerCutError(self._name)
        with translated("write", self._name):
            yield


class _ReadFile:
    def __init__(self, files: FaultyFiles, name: str, inode: Inode) -> None:
        self._files, self._name, self._inode = files, name, inode

    def pread(self, size: int, offset: int) -> bytes:
        with translated("read", self._name):
            self._files.check("pread")
            bad = self._files.unreadable
            if max(offset, bad.start) < min(offset + size, bad.stop):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        return bytes(self._inode.data[offset : offset + size])

    def size(self) -> int:
        return len(self._inode.data)

    def close(self) -> None:
        pass


def _place(content: bytearray, offset: int, data: bytes | None) -> None:
    """Writes `data` at `offset`, padding shorter content with zeros. None truncates there."""
    if data is None:
        del content[offset:]
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    if data is not None:
        content[offset : offset + len(data)] = data
