"""When each chore is due: at its time, and after a failure not before a while, which is longer after each."""

import threading
from collections.abc import Callable

NEVER = float("inf")


class Agenda:
    """Times by the names of chores. Any thread may call any method."""

    def __init__(self, first_s: float, longest_s: float, monotonic: Callable[[], float]) -> None:
        """Nothing is due.

        Args:
            first_s: how long a chore waits after its first failure; after the next one twice as long, and so on.
            longest_s: the longest that it waits.
            monotonic: seconds that never go back.
        """
        self._first_s = first_s
        self._longest_s = longest_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._due: dict[str, float] = {}
        self._held: dict[str, float] = {}
        self._delays: dict[str, float] = {}

    def put(self, name: str, seconds: float = 0.0) -> bool:
        """A chore is due in so many seconds, or sooner where it is already; says whether this made it sooner."""
        at = self._monotonic() + seconds
        with self._lock:
            is_sooner = at < self._due.get(name, NEVER)
            if is_sooner:
                self._due[name] = at
        return is_sooner

    def put_off(self, name: str, seconds: float) -> None:
        """A chore is due in so many seconds, and no sooner."""
        self.drop(name)
        self.put(name, seconds)

    def drop(self, name: str) -> None:
        """It is not due any more."""
        with self._lock:
            self._due.pop(name, None)

    def is_due(self, name: str) -> bool:
        """Whether it is to be done now."""
        return self._at(name) <= self._monotonic()

    def is_held(self, name: str) -> bool:
        """Whether it failed a moment ago."""
        return self._held.get(name, 0.0) > self._monotonic()

    def failed(self, name: str) -> None:
        """It is due again after a while."""
        with self._lock:
            now = self._monotonic()
            delay = self._delays[name] = min(self._longest_s, 2 * self._delays.get(name, self._first_s / 2))
            self._held[name] = now + delay
            self._due[name] = min(now, self._due.get(name, NEVER))

    def succeeded(self, name: str) -> None:
        """The next failure is the first again."""
        self._held.pop(name, None)
        self._delays.pop(name, None)

    def seconds_until_due(self) -> float | None:
        """How long nothing is due; None where nothing will be."""
        with self._lock:
            names = list(self._due)
        at = min(map(self._at, names), default=NEVER)
        return None if at == NEVER else max(0.0, at - self._monotonic())

    def _at(self, name: str) -> float:
        return max(self._due.get(name, NEVER), self._held.get(name, 0.0))
