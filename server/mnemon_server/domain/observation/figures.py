"""Figures of this process, counted where things happen and read when they are shown.

The figures belong to the process, not to a vault: a counter must not fall when a vault is closed.
"""

import threading
from bisect import bisect_left
from collections.abc import Sequence

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
