"""When something that failed is tried again: after a while, then after twice as long, and so on up to a limit."""

from collections.abc import Callable


class Backoff:
    """Delays by the names of what failed."""

    def __init__(self, first_s: float, longest_s: float, monotonic: Callable[[], float]) -> None:
        """Nothing has failed yet."""
        self._first_s = first_s
        self._longest_s = longest_s
        self._monotonic = monotonic
        self._delays: dict[str, float] = {}
        self._due: dict[str, float] = {}

    def is_due(self, name: str) -> bool:
        """Whether it may be tried."""
        return self._monotonic() >= self._due.get(name, 0.0)

    def failed(self, name: str) -> None:
        """It is tried again later."""
        delay = self._delays[name] = min(self._longest_s, 2 * self._delays.get(name, self._first_s / 2))
        self._due[name] = self._monotonic() + delay

    def succeeded(self, name: str) -> None:
        """The next failure is the first again."""
        self._delays.pop(name, None)
        self._due.pop(name, None)

    @property
    def next_due(self) -> float:
        """When the next thing is tried again; infinite where nothing failed."""
        return min(self._due.values(), default=float("inf"))
