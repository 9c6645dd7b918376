"""The thread that packs what was written one by one into forms that are read faster."""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

import apsw

from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.engines.sqlite.connections import Connections
from mnemon_server.engines.sqlite.follower import Follower

CHECK_ROWS = 4_096
"""The number of changed rows in the file after which is checked again what is due."""

log = logging.getLogger(__name__)


class Packing(Protocol):
    """Packs one kind of data. What is not packed yet is only slower to read."""

    def is_due(self, connection: apsw.Connection) -> bool:
        """Whether there is enough to pack. Called on the writer's thread, so it must be quick."""

    def pack(self, connections: Connections, is_stopped: Callable[[], bool]) -> None:
        """Packs it in short transactions. `is_stopped` is asked before each."""


class PackingThread(Follower):
    """Packs what is due, and follows the vault's transactions. The thread runs only while there is work."""

    def __init__(self, connections: Connections, packings: Sequence[Packing]) -> None:
        """Starts no thread yet."""
        self._connections = connections
        self._packings = packings
        self._checked_at = 0
        self._due = self._running = False
        self._lock = threading.Lock()
        """Whether the thread runs is decided in it: what becomes due as the thread ends must not wait for a commit."""
        self._closing = threading.Event()
        self._thread = threading.Thread()

    def start(self) -> None:
        """Starts the thread if something is due. Call it once the vault is open; later commits do."""
        with self._lock:
            if self._running or not self._takes_due():
                return
            self._running = True
            self._thread = threading.Thread(target=self._run, name="packing", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stops after the current step, and waits for it."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()

    # With the transactions; see Follower

    def load(self, connection: apsw.Connection) -> None:
        """Checks what is due."""
        self._checked_at = connection.total_changes()
        self._due = self._is_due(connection)

    def before_commit(self, connection: apsw.Connection) -> None:
        """Checks what is due if much was written since the last check."""
        if connection.total_changes() - self._checked_at >= CHECK_ROWS:
            self._checked_at = connection.total_changes()
            self._due = self._is_due(connection)

    def after_commit(self) -> None:
        """Starts the thread if something is due."""
        self.start()

    def _is_due(self, connection: apsw.Connection) -> bool:
        return any(packing.is_due(connection) for packing in self._packings)

    def _takes_due(self) -> bool:
        due, self._due = self._due, False
        return due and not self._closing.is_set()

    def _run(self) -> None:
        while True:
            # After a failure, the next commit tries again: at once, it would most likely fail again.
            failed = sum(not self._pack(packing) for packing in self._packings)
            with self._lock:
                if failed or not self._takes_due():
                    self._running = False
                    return

    def _pack(self, packing: Packing) -> bool:
        try:
            packing.pack(self._connections, self._closing.is_set)
        except StorageFailedError:
            log.warning("nothing was packed, because the records cannot be written", exc_info=True)
        except Exception:  # any error: what is not packed is read in its first form
            log.exception("the packing failed")
        else:
            return True
        return False
