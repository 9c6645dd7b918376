"""The parts of a call that is traced: what it waits for, and how long.

Few calls are traced. All others look up one variable for each part.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar


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
