"""Regular probes of a vector index, so that callers never wait for a hanging one."""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic

from mnemon_server.domain.errors import BackendConnectionError
from mnemon_server.engines.promises.vector_index import VectorIndex

INTERVAL_S = 1.0
SILENCE_S = 2.5
"""Without an answer for this long, the index counts as unreachable. A busy index answers sooner."""
PATIENCE_S = 0.7
"""Maximum time that a caller waits for the current state."""

log = logging.getLogger(__name__)


class Pulse:
    """Whether an index answers. Any thread may ask.

    A thread of its own asks the index every second. A question to an index that hangs holds up this thread alone.
    """

    def __init__(self, index: VectorIndex, heard: Callable[[str], None]) -> None:
        """Starts to probe. The thread calls `heard` with `problem` after each probe."""
        self._index, self._heard = index, heard
        self._wanted = threading.Event()
        self._lock = threading.Lock()
        self._current, self._next = Future[None](), Future[None]()
        self._problem = ""
        self._began: float | None = None
        self._closed = False
        self.latency_s: float | None = None
        """The duration of the last answer, in seconds."""
        threading.Thread(target=self._run, name="index-pulse", daemon=True).start()

    @property
    def problem(self) -> str:
        """The reason why the index does not answer, as a sentence for clients; empty if it is believed to answer."""
        began = self._began
        is_silent = began is not None and monotonic() - began >= SILENCE_S
        return self._problem or (self._silence if is_silent else "")

    async def problem_now(self) -> str:
        """Like `problem`, after waiting up to PATIENCE_S for a new answer."""
        if problem := self.problem:
            return problem
        done, _ = await asyncio.wait([asyncio.wrap_future(self.ask())], timeout=PATIENCE_S)
        return self._problem if done else self._silence

    def problem_within(self, patience_s: float) -> str:
        """Like `problem_now`, but blocks, and also probes an index that did not answer before."""
        try:
            self.ask().result(patience_s)
        except TimeoutError:
            return self._silence
        return self._problem

    def ask(self) -> "Future[None]":
        """A future that completes after a probe that starts after this call, or on close."""
        with self._lock:
            if not self._closed:
                self._wanted.set()
            return self._next

    def doubt(self, problem: str) -> None:
        """Records a problem of a caller with the index, until the index answers."""
        self._problem = problem
        self.ask()

    def close(self) -> None:
        """Stops asking, and releases all callers that wait for an answer."""
        with self._lock:
            self._closed, self._problem = True, "the server is shutting down"
            for future in (self._current, self._next):
                if not future.done():
                    future.set_result(None)
        self._wanted.set()

    @property
    def _silence(self) -> str:
        return f"the vector database at {self._index.host} does not answer"

    def _run(self) -> None:
        while self._begin():
            began = self._began = monotonic()
            problem = self._ask_index()
            self.latency_s, self._began = monotonic() - began, None
            self._end(problem)
            self._wanted.wait(INTERVAL_S)

    def _ask_index(self) -> str:
        try:
            self._index.ping()
        except BackendConnectionError as error:
            return str(error)
        except Exception:
            log.exception("the vector index cannot be asked")
            return "the vector database failed; the log says why"
        return ""

    def _begin(self) -> bool:
        with self._lock:
            if not self._closed:
                self._wanted.clear()
                self._current, self._next = self._next, Future()
            return not self._closed

    def _end(self, problem: str) -> None:
        with self._lock:
            if self._closed:
                return
            self._problem = problem
            self._current.set_result(None)
        self._heard(problem)
