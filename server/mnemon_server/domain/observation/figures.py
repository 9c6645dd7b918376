"""Figures and spans of this process, recorded where things happen.

The figures belong to the process, not to a vault: a counter must not fall when a vault is closed.
"""

import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Tally:
    """How many values fell below each bound, and their sum. Any thread may note values."""

    __slots__ = ("_counts", "_lock", "_sum", "bounds")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds` ascend; a value that equals a bound falls below it."""
        self.bounds = tuple(bounds)
        self._counts = [0] * (len(self.bounds) + 1)
        self._sum = 0.0
        self._lock = threading.Lock()

    def note(self, value: float) -> None:
        """Counts a value."""
        place = bisect_left(self.bounds, value)
        with self._lock:
            self._counts[place] += 1
            self._sum += value

    def read(self) -> tuple[list[int], float]:
        """The number of values up to each bound and after the last one, not added up; and the sum of all values."""
        with self._lock:
            return self._counts.copy(), self._sum


COMMIT_WRITES = Tally(SIZES)
"""Writes that shared a transaction of a vault."""
COMMIT_SECONDS = Tally(SECONDS)
"""How long each transaction of a vault took, with its sync."""
BATCH_TEXTS = Tally(SIZES)
"""Texts in each run of the embedding model."""
BATCH_SECONDS = Tally(SECONDS)
"""How long each run of the embedding model took."""
WATCH_LAG_SECONDS = Tally(SECONDS)
"""How old the newest change of a batch was when it was handed to a watcher that had seen all before."""


class AnyFuture(Protocol):
    """A future, of asyncio or of a thread."""

    def add_done_callback(self, callback: Callable[[Any], Any], /) -> Any:
        """Calls `callback` with this once it is done."""


class Trace(Protocol):
    """The trace of a call."""

    def begin(self, name: str) -> Callable[[Any], None]:
        """Begins a part; the returned function ends it. Any thread may call that; its argument does not matter."""

    def end(self, code: str) -> None:
        """Ends the trace with the name of the call's status."""


F = TypeVar("F", bound=AnyFuture)

current_trace: ContextVar[Trace | None] = ContextVar("current_trace", default=None)
"""The trace of the call in progress; None if it is not traced."""


def traced(name: str, future: F) -> F:
    """The same future. If the call is traced, it is a part of it from now until it is done."""
    if (trace := current_trace.get()) is not None:
        future.add_done_callback(trace.begin(name))
    return future
