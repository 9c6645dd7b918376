"""Holds writes back while they take longer than a target."""

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
"""Fewer samples are not enough to hold writes back."""

SAMPLES_MAX = 1_024
RECOVERED_SHARE = 0.8
"""Writes are released at this share of the target, so that they are not held back and released in quick succession."""

LOOK_EVERY_S = 0.05
RETRY_AFTER_MAX_S = 30.0


@dataclass(frozen=True, slots=True)
class WriteLatency:
    """The time that a write should not exceed."""

    target_s: float
    """The target for the median, in seconds per record."""
    window_s: float = WINDOW_S
    """For how long a write counts, in seconds."""


class _Sample(NamedTuple):
    end: float
    seconds: float
    """The time per record."""
    records: int


class WritePressure:
    """Measures how long writes take, as the median of a sliding window, and holds them back above a target.

    While writes are held back, the number of calls under way is limited so that the target can be met at the present
    rate: by Little's law, the limit is the rate times the target. Belongs to one event loop.
    """

    def __init__(self, latency: WriteLatency, *, monotonic: Callable[[], float] = monotonic) -> None:
        """Starts without any samples. `monotonic` gives the time, in seconds."""
        self._target_s = latency.target_s
        self._window_s = latency.window_s
        self._monotonic = monotonic
        self._ended: deque[_Sample] = deque(maxlen=SAMPLES_MAX)
        # In the order in which they started.
        self._under_way: dict[object, tuple[float, int]] = {}
        self._holds_back = False
        self._median_s = 0.0
        self._next_look = -math.inf

    @property
    def target_s(self) -> float:
        """The time that the median should not exceed."""
        return self._target_s

    @property
    def holds_back(self) -> bool:
        """Whether writes are held back, because they take longer than the target."""
        self._look()
        return self._holds_back

    @property
    def median_s(self) -> float:
        """The median time of recent writes, per record; 0 if there were none."""
        self._look(now=True)
        return self._median_s

    @contextmanager
    def write(self, records: int = 1) -> Iterator[None]:
        """Measures a call that writes this many records; does not count it if the block raises.

        Raises:
            ThrottledError: writes are held back, and the limit of calls under way is reached.
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
        """Like `write`, but never raises ThrottledError."""
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
        """The limit of calls under way; it assumes that a call writes its records one after the other."""
        return max(1, math.floor(self._rate() * self._target_s))

    def _rate(self) -> float:
        """Records written per second, recently."""
        # A full deque covers less time than the window.
        is_full = len(self._ended) == SAMPLES_MAX
        span = min(self._monotonic() - self._ended[0].end, self._window_s) if is_full else self._window_s
        return sum(sample.records for sample in self._ended) / max(span, 1e-9)

    def _retry_after_s(self) -> float:
        return min(max(self._target_s, self._median_s), RETRY_AFTER_MAX_S)

    def _look(self, *, now: bool = False) -> None:
        """Decides whether to hold writes back. Not at every call, since that would cost more than a small write."""
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
        """Yields the writes under way that already exceed the target, with the time that they took so far."""
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
