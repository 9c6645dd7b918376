"""Access to the pages of a database file without SQL, decrypted and authenticated by SQLite itself.

SQLite lends the file object of a connection (SQLITE_FCNTL_FILE_POINTER), whose methods are those of its VFS:
https://sqlite.org/c3ref/io_methods.html. An encrypted file is decrypted below them, page by page.
"""

import ctypes
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import apsw

_OK, _BUSY = 0, 5
_INTEGER, _OFFSET, _POINTER = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p
_SYNC_NORMAL_DATA = 0x02 | 0x10
_LOCK_EXCLUSIVE, _UNLOCK_EXCLUSIVE = 0x02 | 0x08, 0x01 | 0x08
_READ_LOCK_OF_FILE = 3
"""The lock of readers who need nothing from the write-ahead log: WAL_READ_LOCK(0)."""
_LOG_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_ATTEMPTS, _PAUSE_S = 4, 0.005
_LOCK_ATTEMPTS, _LOCK_PAUSE_S = 100, 0.000_5


def _method(*arguments: Any) -> Any:
    """The type of a method, which releases the interpreter lock."""
    return ctypes.CFUNCTYPE(_INTEGER, _POINTER, *arguments)


class _Methods(ctypes.Structure):
    read: Any
    write: Any
    sync: Any
    file_size: Any
    shm_lock: Any
    _fields_ = (
        ("version", _INTEGER),
        ("close", _method()),
        ("read", _method(_POINTER, _INTEGER, _OFFSET)),
        ("write", _method(_POINTER, _INTEGER, _OFFSET)),
        ("truncate", _method(_OFFSET)),
        ("sync", _method(_INTEGER)),
        ("file_size", _method(ctypes.POINTER(_OFFSET))),
        ("lock", _method(_INTEGER)),
        ("unlock", _method(_INTEGER)),
        ("check_reserved_lock", _method(_POINTER)),
        ("file_control", _method(_INTEGER, _POINTER)),
        ("sector_size", _method()),
        ("device_characteristics", _method()),
        ("shm_map", _method(_INTEGER, _INTEGER, _INTEGER, _POINTER)),
        ("shm_lock", _method(_INTEGER, _INTEGER, _INTEGER)),
    )


class PageFile:
    """The file of a connection, which must stay open. For the thread that uses the connection.

    After a damaged page, the connection may no longer be used for SQL.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        """Reads the size of a page. The connection must have read before. Raises apsw.Error if that fails."""
        self.page_bytes = int(connection.pragma("page_size"))
        self._file = _File(connection, apsw.SQLITE_FCNTL_FILE_POINTER)
        self._log = _File(connection, apsw.SQLITE_FCNTL_JOURNAL_POINTER)

    @property
    def count(self) -> int:
        """The number of pages in the file."""
        return self._file.size // self.page_bytes

    def read(self, first: int, count: int) -> bytes:
        """The bytes of adjacent pages; the first page of a file is 1. Raises apsw.Error if one is damaged."""
        # One by one, because the library only returns the error of the last page.
        return b"".join(self.read_each(range(first, first + count)))

    def read_each(self, numbers: Iterable[int]) -> Iterator[bytes]:
        """The pages with these numbers, in their order. Raises apsw.Error if one is damaged."""
        size = self.page_bytes
        return self._file.read_each(((number - 1) * size for number in numbers), size)

    def write(self, number: int, page: bytes) -> None:
        """Writes a page. Raises apsw.Error if the disk failed."""
        self._file.write((number - 1) * self.page_bytes, page)

    def sync(self) -> None:
        """Makes written pages durable. Raises apsw.Error if the disk failed."""
        self._file.sync()

    def readable(self, at_once: int) -> Iterator[bytes]:
        """All pages of the file that can be read, as runs of up to `at_once` adjacent ones."""
        for first in range(1, self.count + 1, at_once):
            count = min(at_once, self.count + 1 - first)
            try:
                yield self.read(first, count)
            except apsw.Error:
                for number in range(first, first + count):
                    if not self.is_damaged(number):
                        yield self.read(number, 1)

    def damaged(self) -> Iterator[int]:
        """The damaged pages. Other threads may write at the same time."""
        return (number for number in range(1, self.count + 1) if self.is_damaged(number))

    def is_damaged(self, number: int) -> bool:
        """Whether a page is damaged. A page that is being written is read again."""
        for _ in range(_ATTEMPTS):
            try:
                self.read(number, 1)
            except apsw.Error:
                time.sleep(_PAUSE_S)
            else:
                return False
        return True

    def logged(self) -> Iterator[bytes]:
        """The pages in the write-ahead log, whether they are still valid or not."""
        frame_bytes = _FRAME_HEADER_BYTES + self.page_bytes
        for start in range(_LOG_HEADER_BYTES, self._log.size - frame_bytes + 1, frame_bytes):
            try:
                yield from self._log.read_each([start + _FRAME_HEADER_BYTES], self.page_bytes)
            except apsw.Error:
                continue

    @contextmanager
    def without_readers(self) -> Iterator[bool]:
        """Keeps other connections from reading the file, but not the log. Yields False if reads did not end in time.

        A page that is read while it is written would look damaged.
        """
        locked = any(self._lock() for _ in range(_LOCK_ATTEMPTS))
        try:
            yield locked
        finally:
            if locked:
                self._file.shm_lock(_READ_LOCK_OF_FILE, _UNLOCK_EXCLUSIVE)

    def _lock(self) -> bool:
        if self._file.shm_lock(_READ_LOCK_OF_FILE, _LOCK_EXCLUSIVE):
            return True
        time.sleep(_LOCK_PAUSE_S)
        return False


class _File:
    """An open file of SQLite."""

    def __init__(self, connection: apsw.Connection, which: int) -> None:
        self._pointer = ctypes.c_void_p()
        connection.file_control("main", which, ctypes.addressof(self._pointer))
        self._methods = ctypes.cast(self._pointer, ctypes.POINTER(ctypes.POINTER(_Methods)))

    @property
    def size(self) -> int:
        size = _OFFSET()
        if self._is_open:
            _check(self._methods[0][0].file_size(self._pointer, ctypes.byref(size)))
        return size.value

    @property
    def _is_open(self) -> bool:
        return bool(self._methods) and bool(self._methods[0])

    def read_each(self, starts: Iterable[int], count: int) -> Iterator[bytes]:
        """The `count` bytes from each of these positions."""
        # To look a method up takes about as long as to call it.
        buffer, read = ctypes.create_string_buffer(count), self._methods[0][0].read
        for start in starts:
            self._call(read, buffer, count, start)
            yield buffer.raw

    def write(self, start: int, data: bytes) -> None:
        self._call(self._methods[0][0].write, data, len(data), start)

    def sync(self) -> None:
        self._call(self._methods[0][0].sync, _SYNC_NORMAL_DATA)

    def _call(self, method: Any, *arguments: Any) -> None:
        try:
            _check(method(self._pointer, *arguments))
        except SystemError as error:
            # A VFS written in Python raised its own error.
            raise error.__cause__ or error from None

    def shm_lock(self, lock: int, flags: int) -> bool:
        """Returns False if another connection holds it."""
        result = self._methods[0][0].shm_lock(self._pointer, lock, 1, flags)
        if result != _BUSY:
            _check(result)
        return bool(result == _OK)


def _check(result: int) -> None:
    if result != _OK:
        raise apsw.exception_for(result)
