"""Finds the damaged pages of a database, for errors that name them."""

import threading
import time
from collections.abc import Callable
from contextlib import closing
from itertools import islice

import apsw

from mnemon_server.domain.damage import PageDamagedError
from mnemon_server.domain.errors import MnemonError, RecordDamagedError
from mnemon_server.engines.sqlite.pages.page_file import PageFile

_PAGES_MAX = 1_000
_LIFE_S = 60.0


class DamageFinder:
    """Looks for damaged pages at most once a minute, because that reads the whole file. Any thread may call it."""

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        """`connect` opens a connection of its own."""
        self._connect = connect
        self._lock = threading.Lock()
        self._pages: tuple[int, ...] = ()
        self._expires = float("-inf")

    def error(self, name: str) -> RecordDamagedError:
        """The error to raise if SQLite reports the database with this name as malformed."""
        with self._lock:
            if time.monotonic() >= self._expires:
                self._pages = self._find()
                self._expires = time.monotonic() + _LIFE_S
            pages = self._pages
        return PageDamagedError(name, pages) if pages else RecordDamagedError(name)

    def _find(self) -> tuple[int, ...]:
        try:
            with closing(self._connect()) as connection:
                return tuple(islice(PageFile(connection).damaged(), _PAGES_MAX))
        except (apsw.Error, MnemonError):
            return ()
