"""Writes that share a transaction: a failing one is undone alone."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import apsw
import pytest
from mnemon_server.domain.errors import InvalidOperationError
from mnemon_server.engines.sqlite.pages.damage import DamageFinder
from mnemon_server.engines.sqlite.pages.mark import CommitMark
from mnemon_server.engines.sqlite.write_ahead_log import WriteAheadLog
from mnemon_server.engines.sqlite.writer import Writer
from mnemon_server.engines.vault_key import VaultKeyFile

TIMEOUT_S = 60.0


class Group:
    """A writer on a table of numbers. It is held until several operations wait, so that they share a transaction."""

    def __init__(self, file: Path) -> None:
        self._reader = apsw.Connection(str(file))
        self._reader.execute("CREATE TABLE number (value INTEGER PRIMARY KEY) STRICT")
        self.rollbacks = self.commits = 0
        self._writer = Writer(
            apsw.Connection(str(file)),
            WriteAheadLog(file, pages_few=1000, pages_max=10_000),
            CommitMark(VaultKeyFile(file.parent)),
            DamageFinder(lambda: apsw.Connection(str(file))),
            before_commit=lambda _: None,
            after_commit=self._count_commit,
            after_rollback=self._count_rollback,
        )

    def run(
        self, *operations: Callable[[apsw.Connection], Any] | list[Callable[[apsw.Connection], Any]]
    ) -> list[Future[Any]]:
        """Runs the operations as one group and waits for all of them."""
        gate, entered = threading.Event(), threading.Event()

        def hold(_: apsw.Connection) -> None:
            entered.set()
            assert gate.wait(TIMEOUT_S)

        first = self._writer.submit(hold)
        assert entered.wait(TIMEOUT_S)
        futures = [self._submit(operation) for operation in operations]
        gate.set()
        first.result(TIMEOUT_S)
        for future in futures:
            future.exception(TIMEOUT_S)
        return futures

    def _submit(self, operation: Callable[[apsw.Connection], Any] | list[Callable[[apsw.Connection], Any]]) -> Any:
        """Submits an operation, or several as the parts of one."""
        if not isinstance(operation, list):
            return self._writer.submit(operation)
        return self._writer.submit(lambda connection: [part(connection) for part in operation], operation)

    def stored(self) -> list[int]:
        """The numbers that another connection sees."""
        return [value for (value,) in self._reader.execute("SELECT value FROM number ORDER BY value")]

    def close(self) -> None:
        """Ends the writer."""
        self._writer.close()
        self._reader.close()

    def _count_commit(self) -> None:
        self.commits += 1

    def _count_rollback(self) -> None:
        self.rollbacks += 1


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    """A writer, ended with the test."""
    group = Group(tmp_path / "numbers.db")
    yield group
    group.close()


def adding(value: int, error: Exception | None = None) -> Callable[[apsw.Connection], int]:
    """An operation that stores a number, and then fails if an error is given."""

    def add(connection: apsw.Connection) -> int:
        connection.execute("INSERT INTO number VALUES (?)", (value,))
        if error is not None:
            raise error
        return value

    return add


def test_an_operation_that_fails_after_writing_is_undone_alone(group: Group) -> None:
    before, failed, after = group.run(adding(1), adding(2, InvalidOperationError("no")), adding(3))

    assert (before.result(), after.result()) == (1, 3)
    assert isinstance(failed.exception(), InvalidOperationError)
    assert group.stored() == [1, 3]


def test_operations_before_a_failure_are_told_of_the_undo_before_they_run_again(group: Group) -> None:
    group.run(adding(1), adding(2, InvalidOperationError("no")))

    assert group.rollbacks == 1
    assert group.commits == 2


def test_several_failures_in_one_group_leave_the_others_in_order(group: Group) -> None:
    errors = [InvalidOperationError(f"number {value}") for value in range(4)]
    operations = [adding(value, errors[value] if value % 2 else None) for value in range(4)]

    futures = group.run(*operations)

    assert [future.exception() for future in futures] == [None, errors[1], None, errors[3]]
    assert group.stored() == [0, 2]


def test_an_operation_refused_before_writing_repeats_no_other(group: Group) -> None:
    runs: list[int] = []

    def counted(connection: apsw.Connection) -> int:
        runs.append(1)
        return adding(5)(connection)

    def refused(_: apsw.Connection) -> None:
        raise InvalidOperationError("no")

    stored, failed = group.run(counted, refused)

    assert stored.result() == 5
    assert isinstance(failed.exception(), InvalidOperationError)
    assert (len(runs), group.rollbacks, group.stored()) == (1, 0, [5])


def test_parts_of_an_operation_that_fails_run_one_by_one(group: Group) -> None:
    error = InvalidOperationError("no")

    before, parts, after = group.run(adding(1), [adding(2), adding(3, error), adding(4)], adding(5))

    assert (before.result(), after.result()) == (1, 5)
    assert parts.result() == [2, error, 4]
    assert group.stored() == [1, 2, 4, 5]


def test_parts_of_an_operation_that_succeeds_run_once(group: Group) -> None:
    [parts] = group.run([adding(1), adding(2)])

    assert parts.result() == [1, 2]
    assert (group.rollbacks, group.stored()) == (0, [1, 2])
