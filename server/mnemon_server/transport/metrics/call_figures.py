"""Counts the calls of each method, and the messages of its streams."""

from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from time import perf_counter

from mnemon_server.domain.observation.figures import SECONDS, Tally
from mnemon_server.transport.interceptors.base import Call, Method

UNKNOWN = "unknown"


@dataclass(slots=True)
class Traffic:
    """Messages of streams in one direction."""

    messages: int = 0
    bytes: int = 0

    def note(self, size: int) -> None:
        """Counts a message of so many bytes."""
        self.messages += 1
        self.bytes += size


@dataclass(frozen=True, slots=True)
class MethodFigures:
    """The calls of one method."""

    service: str
    method: str
    seconds: dict[str, Tally] = field(default_factory=dict)
    """How long calls took, by the name of their status."""
    received: Traffic = field(default_factory=Traffic)
    """Requests in streams."""
    sent: Traffic = field(default_factory=Traffic)
    """Answers in streams."""

    def note(self, call: Call, code: str) -> None:
        """Counts a call that has ended with this code."""
        seconds = perf_counter() - call.started
        tally = self.seconds.get(code)
        if tally is None:
            tally = self.seconds[code] = Tally(SECONDS)
        tally.note(seconds)


class CallFigures:
    """The calls of all methods. Belongs to the event loop."""

    def __init__(self, paths: Set[str]) -> None:
        """`paths` are the methods that exist. All others share their figures: clients could invent any number."""
        self._paths = paths
        self._methods: dict[str, MethodFigures] = {}

    def of(self, method: Method) -> MethodFigures | None:
        """The figures of a method; None for health and reflection, whose calls say nothing about the work."""
        if method.exempt:
            return None
        known = method.path if method.path in self._paths else UNKNOWN
        if (figures := self._methods.get(known)) is None:
            service, _, name = known.strip("/").rpartition("/")
            figures = self._methods[known] = MethodFigures(service or UNKNOWN, name)
        return figures

    def __iter__(self) -> Iterator[MethodFigures]:
        return iter(self._methods.values())
