"""Runs short work on the event loop, as long as it is quick."""

import math
from collections.abc import Callable
from time import monotonic
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

QUICK_S, THREADS_S, THREADS_SHARE = 0.01, 1.0, 30
"""Work that takes longer than `QUICK_S` twice in a row, or once longer than `VERY_SLOW_S`, is left to threads for a
while: a second, and at least thirty times as long.
"""
VERY_SLOW_S = 0.1


class AtOnce:
    """Decides whether work runs on the event loop. Belongs to that loop.

    A hop to a thread and back costs several times as much as a small read. If the disk is slow, or there is more to
    look through than expected, threads read for a while. On a busy machine, another program may take the core in any
    work, so that one slow read alone says little.
    """

    def __init__(self, *, monotonic: Callable[[], float] = monotonic) -> None:
        """`monotonic` gives the time, in seconds."""
        self._monotonic = monotonic
        self._threads_until = -math.inf
        self._was_slow = False

    def __call__(self, function: Callable[P, T | None], /, *args: P.args, **kwargs: P.kwargs) -> T | None:
        """The result of the function; None if a thread is to do the work."""
        if (began := self._monotonic()) < self._threads_until:
            return None
        result = function(*args, **kwargs)
        took = self._monotonic() - began
        was_slow, self._was_slow = self._was_slow, took > QUICK_S
        if took > VERY_SLOW_S or (was_slow and self._was_slow):
            self._threads_until, self._was_slow = began + took + max(THREADS_S, THREADS_SHARE * took), False
        return result
