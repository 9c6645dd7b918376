"""A lock that is given in the order in which it was asked for."""

import threading
from collections import deque
from types import TracebackType


class FairLock:
    """A mutual exclusion lock, first come, first served; not reentrant.

    With `threading.Lock`, a thread that gives the lock back and asks for it at once mostly gets it again, and those
    that wait may wait for as long as it goes on.
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
                # Stays held: it is handed over.
                self._waiting.popleft().release()
            else:
                self._held = False
