"""When writes take longer than they should, and how many may be under way then."""

import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

from mnemon_server.domain.errors import ThrottledError

WINDOW_S = 10.0
SAMPLES_MIN = 20
"""Fewer say too little to hold anything back."""

SAMPLES_MAX = 1_024
RECOVERED_SHARE = 0.8
"""Writes are let go again at this share of the target, so that they are not held back and let go in turns."""

LOOK_EVERY_S = 0.05
RETRY_AFTER_MAX_S = 30.0


@dataclass(frozen=True, slots=True)
class WriteLatency:
    """What the time of a write should not exceed."""

    target_s: float
    """Of the median, in seconds for each record."""
    window_s: float = WINDOW_S
    """For how long a write counts."""


class _Sample(NamedTuple):
    end: float
    seconds: float
    """What one of its records took."""
    records: int


class WritePressure:
    """Watches how long writes take, as the median of a sliding window, and holds them back above a target.

    Held back, only so many calls may be under way as make the target at the present pace: by Little's law, that is the
    pace times the target. Belongs to one event loop.
    """

    def __init__(self, latency: WriteLatency, *, monotonic: Callable[[], float] = monotonic) -> None:
        """Begins with nothing known.

        Args:
            latency: what writes should not exceed.
            monotonic: the time, in seconds.
        """
        self._target_s = latency.target_s
        self._window_s = latency.window_s
        self._monotonic = monotonic
        self._ended: deque[_Sample] = deque(maxlen=SAMPLES_MAX)
        # In the order of their starts.
        self._under_way: dict[object, tuple[float, int]] = {}
        self._holds_back = False
        self._median_s = 0.0
        self._next_look = -math.inf

    @property
    def target_s(self) -> float:
        """What the median should not exceed."""
        return self._target_s

    @property
    def holds_back(self) -> bool:
        """Whether writes take longer than they should, and are held back."""
        self._look()
        return self._holds_back

    @property
    def median_s(self) -> float:
        """The median time of recent writes, for each record; 0 where there were none."""
        self._look(now=True)
        return self._median_s

    @property
    def under_way(self) -> int:
        """Records that are being written."""
        return sum(records for _, records in self._under_way.values())

    @contextmanager
    def write(self, records: int = 1) -> Iterator[None]:
        """The time of a call that writes so many records; one that raises tells nothing of how long writes take.

        Raises:
            ThrottledError: writes are held back, and as many are under way as may be.
        """
        if self.holds_back and len(self._under_way) >= self._calls_max():
            raise ThrottledError(
                f"writes take {self._median_s:.3g} s, more than the target of {self._target_s:.3g} s,"
                " and are held back",
                self._retry_after_s(),
            )
        with self.measure(records):
            yield

    @contextmanager
    def measure(self, records: int = 1) -> Iterator[None]:
        """As `write`, but holds nothing back."""
        key, start = object(), self._monotonic()
        self._under_way[key] = (start, records)
        try:
            yield
        except BaseException:
            del self._under_way[key]
            raise
        del self._under_way[key]
        end = self._monotonic()
        self._ended.append(_Sample(end, (end - start) / records, records))

    def _calls_max(self) -> int:
        """Calls that may be under way: a call writes its records one after the other, as far as can be told."""
        return max(1, math.floor(self._pace() * self._target_s))

    def _pace(self) -> float:
        """Records written in a second, lately."""
        # What is full holds less than the window.
        is_full = len(self._ended) == SAMPLES_MAX
        span = min(self._monotonic() - self._ended[0].end, self._window_s) if is_full else self._window_s
        return sum(sample.records for sample in self._ended) / max(span, 1e-9)

    def _retry_after_s(self) -> float:
        return min(max(self._target_s, self._median_s), RETRY_AFTER_MAX_S)

    def _look(self, *, now: bool = False) -> None:
        """Decides anew, though not at every call: that would cost more than many a write."""
        time = self._monotonic()
        if time < self._next_look and not now:
            return
        self._next_look = time + LOOK_EVERY_S
        while self._ended and self._ended[0].end < time - self._window_s:
            self._ended.popleft()
        samples = [(sample.seconds, sample.records) for sample in self._ended]
        samples += self._overdue(time)
        self._median_s = _weighted_median(samples)
        if not self._holds_back:
            enough = sum(records for _, records in samples) >= SAMPLES_MIN
            self._holds_back = enough and self._median_s > self._target_s
        elif self._median_s <= RECOVERED_SHARE * self._target_s:
            self._holds_back = False

    def _overdue(self, time: float) -> Iterator[tuple[float, int]]:
        """Writes under way that have taken longer than they should already, with what they took so far."""
        for start, records in self._under_way.values():
            if time - start <= self._target_s:
                return
            if (seconds := (time - start) / records) > self._target_s:
                yield seconds, records


def _weighted_median(samples: list[tuple[float, int]]) -> float:
    samples.sort()
    half, seen = sum(weight for _, weight in samples) / 2, 0
    for value, weight in samples:
        seen += weight
        if seen >= half:
            return value
    return 0.0
