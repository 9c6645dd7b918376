"""Schedules tasks, with increasing delays after failures."""

import threading
from collections.abc import Callable

NEVER = float("inf")


class Schedule:
    """Times by the names of tasks. Any thread may call any method."""

    def __init__(self, first_s: float, longest_s: float, monotonic: Callable[[], float]) -> None:
        """Starts empty. The delay after a task's first failure doubles with each further one, up to the longest."""
        self._first_s = first_s
        self._longest_s = longest_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._due: dict[str, float] = {}
        self._held: dict[str, float] = {}
        self._delays: dict[str, float] = {}

    def put(self, name: str, seconds: float = 0.0) -> bool:
        """Schedules a task for this number of seconds from now, unless it is due earlier; returns whether it is now
        earlier.
        """
        at = self._monotonic() + seconds
        with self._lock:
            is_sooner = at < self._due.get(name, NEVER)
            if is_sooner:
                self._due[name] = at
        return is_sooner

    def drop(self, name: str) -> None:
        """Removes a task from the schedule."""
        with self._lock:
            self._due.pop(name, None)

    def is_due(self, name: str) -> bool:
        """Whether the task is due."""
        return self._at(name) <= self._monotonic()

    def is_held(self, name: str) -> bool:
        """Whether the task is delayed by a recent failure."""
        return self._held.get(name, 0.0) > self._monotonic()

    def failed(self, name: str) -> None:
        """Schedules the task again after a delay."""
        with self._lock:
            now = self._monotonic()
            delay = self._delays[name] = min(self._longest_s, 2 * self._delays.get(name, self._first_s / 2))
            self._held[name] = now + delay
            self._due[name] = min(now, self._due.get(name, NEVER))

    def succeeded(self, name: str) -> None:
        """Resets the delay after a success."""
        self._held.pop(name, None)
        self._delays.pop(name, None)

    def seconds_until_due(self) -> float | None:
        """Seconds until a task is due; None if none is scheduled."""
        with self._lock:
            names = list(self._due)
        at = min(map(self._at, names), default=NEVER)
        return None if at == NEVER else max(0.0, at - self._monotonic())

    def _at(self, name: str) -> float:
        return max(self._due.get(name, NEVER), self._held.get(name, 0.0))
