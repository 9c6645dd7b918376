"""A lock that serves its waiters in order."""

import threading
from collections import deque
from types import TracebackType


class FairLock:
    """A mutual exclusion lock, first come, first served; not reentrant.

    With `threading.Lock`, a thread that releases the lock and requests it again at once usually gets it, and can starve
    the waiting threads.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._held = False

    def __enter__(self) -> None:
        with self._guard:
            if not self._held:
                self._held = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        turn.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._guard:
            if self._waiting:
                # The lock stays held: ownership passes to the next waiter.
                self._waiting.popleft().release()
            else:
                self._held = False
