"""What becomes due while the packing runs is packed without waiting for a further commit."""

import threading
from collections.abc import Callable

import apsw
import pytest
from mnemon_server.engines.sqlite.connections import Connections
from mnemon_server.engines.sqlite.upkeep import packing
from mnemon_server.engines.sqlite.upkeep.packing import PackingThread

from tests.support.server import WAIT_S


class Gated:
    """Packs all rows of a table, once it may."""

    def __init__(self) -> None:
        self.begun, self.may_end, self.packed = threading.Semaphore(0), threading.Semaphore(0), threading.Semaphore(0)

    def is_due(self, connection: apsw.Connection) -> bool:
        return True

    def pack(self, connections: Connections, is_stopped: Callable[[], bool]) -> None:
        self.begun.release()
        assert self.may_end.acquire(timeout=WAIT_S)
        self.packed.release()


class Unused:
    """The packing of these tests reads and writes nothing."""

    def lend(self) -> None: ...

    def submit(self, operation: object) -> None: ...


def test_what_becomes_due_while_the_thread_runs_is_packed_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "CHECK_ROWS", 1)
    connection, gated = apsw.Connection(":memory:"), Gated()
    connection.execute("CREATE TABLE rows (number)")
    thread = PackingThread(Unused(), [gated])  # type: ignore[arg-type] # nothing of it is called

    def commit() -> None:
        connection.execute("INSERT INTO rows VALUES (1)")
        thread.before_commit(connection)
        thread.after_commit()

    thread.load(connection)
    thread.start()
    assert gated.begun.acquire(timeout=WAIT_S)
    commit()
    gated.may_end.release(2)
    for _ in range(2):
        assert gated.packed.acquire(timeout=WAIT_S)
    gated.may_end.release()
    commit()
    assert gated.packed.acquire(timeout=WAIT_S)
    thread.close()
