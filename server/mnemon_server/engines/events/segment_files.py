"""The files of sealed segments: SQLite databases with the same table of events as records.db, which never change.

Their pages are encrypted and authenticated like the pages of records.db. Each change of a segment writes another
generation of its file, which gets its name once it is complete, synced and read back.
"""

import errno
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import tzinfo
from pathlib import Path
from sys import intern
from typing import NamedTuple, TypeAlias

import apsw
import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.damage import PageDamagedError
from mnemon_server.domain.errors import StorageFailedError, StorageFullError
from mnemon_server.engines.events.tables import SegmentRow, SegmentState
from mnemon_server.engines.file_errors import translated
from mnemon_server.engines.layout import LAYOUT
from mnemon_server.engines.private import create_file, create_folder, sync
from mnemon_server.engines.promises.events import Sequences
from mnemon_server.engines.sqlite.pages.database import (
    MODE_NEW,
    WrongKeyError,
    attach,
    connect,
    connect_at_rest,
)
from mnemon_server.engines.sqlite.pages.page_file import PageFile
from mnemon_server.engines.sqlite.query import fetch, id_array, ids_from_text, runs_of
from mnemon_server.engines.sqlite.schema import close_quietly
from mnemon_server.engines.sqlite.tables import EVENT_STATEMENTS
from mnemon_server.engines.vault_key import VaultKeyFile

FOLDER, QUARANTINE = "timeline", "quarantine"
SUFFIX, DRAFT_SUFFIX = ".segment", ".tmp"
APPLICATION_ID = 0x4D4E4553  # "MNES"

_IDLE_MAX = 200
"""Maximum number of open files that no thread uses."""
_READER_CACHE_KIB, _WRITER_CACHE_KIB = 256, 32_768
_HASH_BITS, _PROBE_BITS, _PROBES = 10, 21, 3
_DAMAGE = (apsw.CorruptError, apsw.NotADBError, apsw.IOError, PageDamagedError, WrongKeyError, UnicodeDecodeError)
_UNREADABLE = frozenset({apsw.SQLITE_IOERR_READ, apsw.SQLITE_IOERR_SHORT_READ})
"""A draft is kept in memory while it is filled, so these are about what is read."""
_FOREIGN = "it is not a segment of this layout"
_LOST = frozenset({errno.ENOENT, errno.EIO, errno.EBADMSG})
"""Errors that mean loss. After any other error on opening, such as too many open files, the file may be intact."""

_CREATE = (
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {LAYOUT}",
    # hashes: see HashFilter.
    """
CREATE TABLE segment (
  segment_id INTEGER PRIMARY KEY,
  generation INTEGER NOT NULL,
  event_count INTEGER NOT NULL,
  hashes BLOB NOT NULL
) STRICT""",
    "CREATE TABLE segment_user (user TEXT PRIMARY KEY, event_count INTEGER NOT NULL) STRICT, WITHOUT ROWID",
)

ZONES_KEPT_MAX = 8
"""For how many time zones the counts of a file are kept."""

DayCount: TypeAlias = tuple[str, int, int, int, int]
"""A type of events, a day since 1970, how many there are, and the times of the first and the last."""

log = logging.getLogger(__name__)


class SegmentDamagedError(Exception):
    """The file of a segment is missing, or is not what was written."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name

    @property
    def segment_id(self) -> int:
        """The segment."""
        return int(self.name.partition("-")[0])


class HashFilter:
    """Tells of most hashes that no event of a segment has them (a Bloom filter), so that few segments are asked."""

    def __init__(self, content: bytes) -> None:
        """`content` is a power of two bytes long."""
        self._content = content
        self._mask = 8 * len(content) - 1

    @classmethod
    def of(cls, hashes: NDArray[np.int64]) -> "HashFilter":
        """The filter of these hashes."""
        count = 1 << max(64, min(_HASH_BITS * len(hashes), 1 << _PROBE_BITS) - 1).bit_length()
        bits = np.zeros(min(count, 1 << _PROBE_BITS), np.bool_)
        for probe in range(_PROBES):
            bits[(hashes >> (probe * _PROBE_BITS)) & (len(bits) - 1)] = True
        return cls(np.packbits(bits, bitorder="little").tobytes())

    @property
    def content(self) -> bytes:
        """Its stored form."""
        return self._content

    def may_have(self, number: int) -> bool:
        """Whether an event may have this hash."""
        content, mask = self._content, self._mask
        first, second, third = number & mask, number >> _PROBE_BITS & mask, number >> 2 * _PROBE_BITS & mask
        return bool(
            content[first >> 3] >> (first & 7) & 1
            and content[second >> 3] >> (second & 7) & 1
            and content[third >> 3] >> (third & 7) & 1
        )


class Summary(NamedTuple):
    """A segment's part of the catalogue in memory."""

    users: Mapping[str, int]
    """The number of events of each user in its file."""
    hashes: HashFilter
    """The hashes of ids and of keys."""


class Draft:
    """A new file, or with the name of a segment's next generation in memory, which is filled and then sealed."""

    def __init__(self, folder: Path | None, name: str, keys: VaultKeyFile) -> None:
        """Creates the file. Without a folder, it is in memory.

        Raises:
            StorageFullError, StorageFailedError: the disk is full, or failed.
        """
        self.name = name
        self._folder = folder
        self._keys = keys
        self._source = ""
        self._path = None if folder is None else folder / f"{name}{DRAFT_SUFFIX}"
        with self._guarded():
            self.connection = self._connect()
            for pragma, value in (("journal_mode", "memory"), ("synchronous", "off"), ("temp_store", "memory")):
                self.connection.pragma(pragma, value)
            self.connection.pragma("cache_size", -_WRITER_CACHE_KIB)
            for statement in (*_CREATE, EVENT_STATEMENTS[0]):
                self.connection.execute(statement)

    def _connect(self) -> apsw.Connection:
        if self._path is None or self._folder is None:
            return apsw.Connection(":memory:", flags=MODE_NEW | apsw.SQLITE_OPEN_URI)
        with translated("create", self.name):
            if not self._folder.is_dir():
                create_folder(self._folder)
                sync(self._folder.parent)
            self._path.unlink(missing_ok=True)
        create_file(self._path)
        return connect(self._path, self._keys, flags=MODE_NEW | apsw.SQLITE_OPEN_URI)

    @contextmanager
    def attached(self, path: Path, *, is_at_rest: bool = False) -> Iterator[None]:
        """Makes the events of a database of the vault available to `copy`. One at rest has no journal, and gets none.

        Raises SegmentDamagedError if it cannot be read.
        """
        self._source = path.name
        with self._guarded(path.name):
            # A segment has no writer, so there is nothing to lock and no journal to look for.
            attach(self.connection, path, self._keys, is_at_rest=is_at_rest or path.suffix == SUFFIX)
        try:
            yield
        finally:
            with suppress(apsw.Error):
                self.connection.execute("DETACH source")

    def copy(self, first: int, last: int, without: Sequences) -> None:
        """Copies the attached events of a range of sequences, except for some and for those already present.

        Raises:
            SegmentDamagedError: some cannot be read, and none were copied.
            StorageFullError, StorageFailedError: the disk is full, or failed.
        """
        with self._guarded(self._source):
            self.connection.execute(
                "INSERT OR IGNORE INTO main.timeline_event SELECT * FROM source.timeline_event"
                " WHERE sequence BETWEEN ? AND ? AND sequence NOT IN (SELECT value FROM carray(?)) ORDER BY sequence",
                (first, last, id_array(without)),
            )

    def sequences(self) -> Sequences:
        """The sequences of its events, ascending."""
        statement = "SELECT group_concat(sequence) FROM (SELECT sequence FROM timeline_event ORDER BY sequence)"
        return ids_from_text(self.connection.execute(statement).get)

    def seal(self, row: SegmentRow) -> tuple[SegmentRow, Summary]:
        """Completes the file; returns the row and the summary of its segment, whose generation `row` has.

        Raises:
            StorageFullError, StorageFailedError: the disk is full, failed, or gives back other data.
        """
        with self._guarded():
            connection, sequences = self.connection, self.sequences()
            for statement in EVENT_STATEMENTS[1:]:
                connection.execute(statement)
            both = "SELECT id_hash AS hash FROM timeline_event UNION ALL SELECT key_hash FROM timeline_event"
            hashes = ids_from_text(connection.execute(f"SELECT group_concat(hash) FROM ({both})").get)  # noqa: S608
            connection.execute(
                "INSERT INTO segment_user SELECT user, count(*) FROM timeline_event GROUP BY user ORDER BY user"
            )
            connection.execute(
                "INSERT INTO segment VALUES (?, ?, ?, ?)",
                (row.segment_id, row.generation, len(sequences), HashFilter.of(hashes).content),
            )
            earliest, latest = fetch(connection, "SELECT min(time), max(time) FROM timeline_event")[0]
            summary = read_summary(connection, row.segment_id, row.generation)
        sealed = row._replace(
            state=SegmentState.SEALED,
            event_count=len(sequences),
            byte_count=self._settle(),
            min_time_us=earliest,
            max_time_us=latest,
            runs=runs_of(sequences).tobytes(),
        )
        return sealed, summary

    def _settle(self) -> int:
        """Makes the file durable under its name, once it reads back as written; returns its size."""
        if self._path is None or self._folder is None:
            return 0
        self.connection.close()
        with translated("write", self.name):
            sync(self._path)
            if problem := damage_of(self._path, self._keys):
                raise StorageFailedError(f"{self.name} reads back other data than was written: {problem}")
            self._path.rename(self._folder / self.name)
            sync(self._folder)
            return (self._folder / self.name).stat().st_size

    def abandon(self) -> None:
        """Removes the file unless it is sealed."""
        close_quietly(self.connection)
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    @contextmanager
    def _guarded(self, source: str = "") -> Iterator[None]:
        """Translates errors of SQLite. With `source`, damage is that of a file that is read."""
        try:
            yield
        except apsw.FullError as error:
            raise StorageFullError(
                f"could not write {self.name}: no space is left on the disk; free some space, or enlarge it"
            ) from error
        except (apsw.CorruptError, apsw.NotADBError, apsw.CantOpenError, apsw.SQLError) as error:
            if source:
                raise SegmentDamagedError(source, str(error)) from error
            raise StorageFailedError(f"could not write {self.name}: {error}") from error
        except apsw.Error as error:
            # The stubs of apsw lack the attribute.
            if source and getattr(error, "extendedresult", 0) in _UNREADABLE:
                raise SegmentDamagedError(source, str(error)) from error
            raise StorageFailedError(f"could not write {self.name}: {error}") from error


def read_summary(connection: apsw.Connection, segment_id: int, generation: int) -> Summary:
    """The summary in a segment's file.

    Raises:
        SegmentDamagedError: it is another segment.
        apsw.Error: it cannot be read.
    """
    rows = fetch(connection, "SELECT segment_id, generation, hashes FROM segment")
    if [row[:2] for row in rows] != [(segment_id, generation)]:
        raise SegmentDamagedError(f"{segment_id:020d}-{generation:04d}.segment", "it is not this segment's file")
    users = {intern(user): count for user, count in fetch(connection, "SELECT user, event_count FROM segment_user")}
    return Summary(users, HashFilter(rows[0][2]))


def _is_segment(connection: apsw.Connection) -> bool:
    return (connection.pragma("application_id"), connection.pragma("user_version")) == (APPLICATION_ID, LAYOUT)


def damage_of(path: Path, keys: VaultKeyFile) -> str | None:
    """Reads every byte of a segment's file from the disk; returns what is damaged, None if nothing is.

    Raises:
        StorageFailedError: it cannot be opened at present, and may be intact.
        VaultKeyError: its key cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _LOST:
            return "the file is missing" if error.errno == errno.ENOENT else f"it cannot be read: {error.strerror}"
        raise StorageFailedError(
            f"could not open {path.name}: {error.strerror} ({errno.errorcode.get(error.errno or 0, 'unknown error')})"
        ) from error
    try:
        # Otherwise the page cache may hide what has become of the disk.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    try:
        with closing(connect_at_rest(path, keys)) as connection:
            if not _is_segment(connection):
                return _FOREIGN
            page_count, file = connection.pragma("page_count"), PageFile(connection)
            if file.count < page_count:
                return f"{page_count - file.count:,} of its pages are missing"
            pages = [number for number in range(1, page_count + 1) if file.is_damaged(number)]
    except _DAMAGE as error:
        return str(error)
    named = ", ".join(map(str, pages[:5])) + (" and others" if len(pages) > 5 else "")
    return f"page {named}: it is not what was written" if pages else None


class SegmentFiles:
    """The files of a vault. Any thread may call any method."""

    def __init__(self, keys: VaultKeyFile) -> None:
        """Opens nothing yet. The folder of `keys` is that of the vault."""
        self.keys = keys
        self.folder, self.quarantine = keys.folder / FOLDER, keys.folder / QUARANTINE
        self._lock = threading.Lock()
        self._idle: OrderedDict[str, list[apsw.Connection]] = OrderedDict()
        self._idle_count = 0
        self._gone: set[str] = set()
        self._days: dict[str, OrderedDict[str, Sequence[DayCount]]] = {}
        self._in_memory: dict[str, tuple[apsw.Connection, threading.Lock]] = {}
        self._is_closed = False

    def draft(self, row: SegmentRow, *, in_memory: bool = False) -> Draft:
        """A new file for the generation in `row`."""
        self._gone.discard(row.file_name)
        return Draft(None if in_memory else self.folder, row.file_name, self.keys)

    @contextmanager
    def lend(self, name: str) -> Iterator[apsw.Connection]:
        """A connection to a file.

        Raises:
            SegmentDamagedError: the file is missing, or is not what was written.
            StorageFailedError: it cannot be opened at present.
        """
        if (held := self._in_memory.get(name)) is not None:
            with held[1]:
                yield held[0]
            return
        connection = self._take(name)
        try:
            yield connection
        except _DAMAGE as error:
            close_quietly(connection)
            raise SegmentDamagedError(name, str(error)) from error
        except BaseException:
            close_quietly(connection)
            raise
        self._give_back(name, connection)

    def summary(self, row: SegmentRow) -> Summary:
        """The summary of a sealed segment. Raises the same as `lend`."""
        with self.lend(row.file_name) as connection:
            return read_summary(connection, row.segment_id, row.generation)

    def days(self, name: str, zone: tzinfo, count: Callable[[], Sequence[DayCount]]) -> Sequence[DayCount]:
        """The counts of all events in a file, which never changes, by the days of a time zone.

        What `count` returns is kept for the ZONES_KEPT_MAX zones that were asked for last.
        """
        with self._lock:
            kept = OrderedDict() if name in self._gone else self._days.setdefault(name, OrderedDict())
            if (found := kept.get(str(zone))) is not None:
                kept.move_to_end(str(zone))
                return found
        found = count()
        with self._lock:
            kept[str(zone)] = found
            if len(kept) > ZONES_KEPT_MAX:
                kept.popitem(last=False)
        return found

    def hold(self, name: str, connection: apsw.Connection) -> None:
        """Lets reads of a file use a database in memory instead, until `forget`."""
        self._days.pop(name, None)
        self._in_memory[name] = connection, threading.Lock()

    def forget(self, name: str) -> None:
        """Closes a file that no segment has any more."""
        with self._lock:
            idle = self._idle.pop(name, [])
            self._idle_count -= len(idle)
            self._gone.add(name)
            self._days.pop(name, None)
        self._in_memory.pop(name, None)
        for connection in idle:
            close_quietly(connection)

    def discard(self, name: str) -> None:
        """Deletes a file that no segment has any more, for good. Threads that have it open can still read it.

        Raises StorageFailedError if it cannot be deleted.
        """
        self.forget(name)
        with translated("remove", name):
            (self.folder / name).unlink(missing_ok=True)
            if self.folder.is_dir():
                sync(self.folder)

    def set_aside(self, name: str) -> bool:
        """Moves a damaged file that no segment has any more into the quarantine; returns whether there was one."""
        self.forget(name)
        with translated("move", name):
            if not (self.folder / name).exists():
                return False
            create_folder(self.quarantine)
            (self.folder / name).rename(self.quarantine / name)
            sync(self.quarantine)
            sync(self.folder)
        log.warning("%s is in the quarantine", name)
        return True

    def discard_copies(self, names: Sequence[str]) -> None:
        """Deletes files of the quarantine for good. Raises StorageFailedError if that fails."""
        with translated("clear", QUARANTINE):
            for name in names:
                (self.quarantine / name).unlink(missing_ok=True)
            # Also without names: an earlier call may have failed here.
            if self.quarantine.is_dir():
                sync(self.quarantine)

    def names(self, folder: Path) -> list[str]:
        """The names of the files in one of the two folders, sorted. Raises StorageFailedError."""
        with translated("list", folder.name):
            return sorted(path.name for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []

    def close(self) -> None:
        """Closes all files. Further calls have no effect."""
        self._is_closed = True
        for name in [*self._idle]:
            self.forget(name)

    def _take(self, name: str) -> apsw.Connection:
        with self._lock:
            if idle := self._idle.get(name):
                self._idle_count -= 1
                return idle.pop()
        if self._is_closed:
            raise StorageFailedError("the timeline is closed")
        path = self.folder / name
        try:
            connection = connect_at_rest(path, self.keys)
            if not _is_segment(connection):
                connection.close()
                raise SegmentDamagedError(name, _FOREIGN)
        except _DAMAGE as error:
            raise SegmentDamagedError(name, str(error)) from error
        except (apsw.Error, OSError) as error:
            if not path.exists():
                raise SegmentDamagedError(name, "the file is missing") from error
            raise StorageFailedError(f"could not open {name}: {error}") from error
        connection.pragma("cache_size", -_READER_CACHE_KIB)
        # See `sqlite/schema.py`.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        return connection

    def _give_back(self, name: str, connection: apsw.Connection) -> None:
        surplus: list[apsw.Connection] = []
        with self._lock:
            if self._is_closed or name in self._gone:
                surplus.append(connection)
            else:
                self._idle.setdefault(name, []).append(connection)
                self._idle.move_to_end(name)
                self._idle_count += 1
                if self._idle_count > _IDLE_MAX:
                    surplus = self._idle.popitem(last=False)[1]
                    self._idle_count -= len(surplus)
        for each in surplus:
            close_quietly(each)
