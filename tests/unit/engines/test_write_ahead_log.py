"""Deleted text leaves every page of a file and of its log, soon but not after each deletion."""

import random
import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from mnemon_server.engines.sqlite.write_ahead_log import RETRY_S, WriteAheadLog

_MARK = re.compile(rb"MARK(\d{5})E")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.db"


@pytest.fixture
def connection(path: Path) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(str(path))
    connection.pragma("secure_delete", True)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "off")
    connection.wal_autocheckpoint(0)
    connection.execute(
        "CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT, owner TEXT);"
        "CREATE INDEX note_owner ON note (owner);"
        "CREATE TABLE word (word TEXT, note INTEGER, PRIMARY KEY (word, note)) WITHOUT ROWID"
    )
    yield connection
    connection.close()


class Seconds:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def open_log(path: Path, seconds: Seconds, *, pages_few: int = 1_000) -> WriteAheadLog:
    return WriteAheadLog(path, pages_few=pages_few, pages_max=16_384, life_s=3.0, monotonic=seconds)


def log_size(path: Path) -> int:
    return path.with_name(f"{path.name}-wal").stat().st_size


def marks(path: Path) -> set[int]:
    files = path.read_bytes() + path.with_name(f"{path.name}-wal").read_bytes()
    return {int(number) for number in _MARK.findall(files)}


def test_no_page_holds_deleted_text(path: Path, connection: apsw.Connection) -> None:
    """Rows of all sizes come and go, so pages are joined and split all the time."""
    rng, alive = random.Random(1), set[int]()
    log = open_log(path, Seconds(), pages_few=100)
    for number in range(2_000):
        mark = f"MARK{number:05}E"
        text = mark * rng.choice([1, 3, 10, 100, 400, 900])
        with connection:
            connection.execute("INSERT INTO note VALUES (?, ?, ?)", (number, text, f"u{mark}"))
            connection.execute("INSERT INTO word VALUES (?, ?)", (mark, number))
        alive.add(number)
        if rng.random() < 0.5:
            gone = rng.choice(sorted(alive))
            with connection:
                if rng.random() < 0.5:
                    connection.execute("DELETE FROM note WHERE id = ?", (gone,))
                else:
                    other = ("other" * rng.choice([1, 50, 300]), "nobody", gone)
                    connection.execute("UPDATE note SET text = ?, owner = ? WHERE id = ?", other)
                connection.execute("DELETE FROM word WHERE note = ?", (gone,))
            alive.discard(gone)
        log.tend(connection)
    assert log.empty(connection)
    assert marks(path) == alive
    assert connection.pragma("integrity_check") == "ok"
    log.close()


def test_a_stream_of_deletions_empties_the_log_once_in_its_lifetime(path: Path, connection: apsw.Connection) -> None:
    seconds, emptied = Seconds(), 0
    log = open_log(path, seconds)
    log.empty(connection)
    for _ in range(300):
        with connection:
            connection.execute("INSERT OR REPLACE INTO note VALUES (1, 'MARK00001E', '')")
            connection.execute("DELETE FROM note")
        log.tend(connection)
        emptied += log_size(path) == 0
        seconds.now += 0.1
    # The lifetime of a log begins with its first write.
    assert 9 <= emptied <= 10
    seconds.now += 3.0
    log.tend(connection)
    assert (log_size(path), marks(path), log.seconds_until_due()) == (0, set(), None)
    log.close()


def test_an_older_reader_delays_the_erasure_and_does_not_prevent_it(path: Path, connection: apsw.Connection) -> None:
    seconds = Seconds()
    log = open_log(path, seconds)
    with connection:
        connection.execute("INSERT INTO note VALUES (1, 'MARK00001E', '')")
    reader = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM note").get == 1
    with connection:
        connection.execute("DELETE FROM note")
    log.tend(connection)
    seconds.now += 3.0
    log.tend(connection)
    assert marks(path) == {1}
    assert log.seconds_until_due() == RETRY_S
    reader.execute("COMMIT")
    seconds.now += RETRY_S
    log.tend(connection)
    assert (log_size(path), marks(path)) == (0, set())
    reader.close()
    log.close()


def test_a_log_that_restarted_in_between_hides_no_page(path: Path, connection: apsw.Connection) -> None:
    """A checkpointed log is overwritten from its beginning, and the bytes after that stay."""
    log = open_log(path, Seconds(), pages_few=0)
    for number in range(40):
        with connection:
            connection.execute("INSERT INTO note VALUES (?, ?, '')", (number, f"MARK{number:05}E" * 200))
        log.tend(connection)
    with connection:
        connection.execute("DELETE FROM note WHERE id >= 7")
    assert log.empty(connection)
    assert marks(path) == set(range(7))
    log.close()
