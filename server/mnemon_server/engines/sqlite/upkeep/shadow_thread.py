"""The thread that embeds a vault with another model while the vault is in use."""

import logging
import threading

import apsw

from mnemon_server.domain.errors import MnemonError
from mnemon_server.engines.sqlite.connections import Connections
from mnemon_server.engines.sqlite.follower import Follower
from mnemon_server.engines.sqlite.upkeep.shadow import ShadowModel, embed_missing, prepare
from mnemon_server.engines.turns import next_turn

RETRY_S = 10.0

log = logging.getLogger(__name__)


class ShadowThread(Follower):
    """Embeds missing passages after each transaction of the vault. Without a model, it does nothing."""

    def __init__(self, connections: Connections, model: ShadowModel | None) -> None:
        """Starts no thread yet."""
        self._model = model
        self._connections = connections
        self._changed, self._current = threading.Event(), threading.Event()
        self._closed = threading.Event()
        self.is_touched = model is not None
        self._thread = threading.Thread(target=self._run, name="shadow-embedding", daemon=True)

    def start(self) -> None:
        """Starts it. Call it once the vault is open."""
        if self._model is not None:
            self._thread.start()

    def close(self) -> None:
        """Stops after the current step, and waits for it."""
        self._closed.set()
        self._changed.set()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def is_current(self) -> bool:
        """Whether everything was embedded when it looked last."""
        return self._model is None or self._current.is_set()

    # With the transactions; see Follower

    def load(self, connection: apsw.Connection) -> None:
        """Makes room for the model's vectors."""
        if self._model is not None:
            prepare(connection, self._model.identity)
        self._changed.set()

    def after_commit(self) -> None:
        """Wakes the thread."""
        self._changed.set()

    def _run(self) -> None:
        assert self._model is not None  # noqa: S101 - otherwise it is not started
        while self._changed.wait() and next_turn(self._changed, self._closed):
            self._current.clear()
            try:
                embed_missing(self._connections, self._model.embed, self._closed.is_set)
                self._current.set()
            except MnemonError as error:
                log.warning("the shadow embedding model failed, and is tried again: %s", error)
                self._retry()
            except Exception:  # any error: the vault's own vectors are not affected
                log.exception("passages could not be embedded with the shadow model")
                self._retry()

    def _retry(self) -> None:
        self._changed.set()
        self._closed.wait(RETRY_S)
