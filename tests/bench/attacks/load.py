"""Processor time without any call: what an attacker takes from others by being on the same machine."""

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from time import monotonic, process_time, sleep, thread_time
from typing import TypeVar

T = TypeVar("T")
_BLOCK = bytes(1 << 16)
"""Hashed in some 50 µs, during which other threads run."""
_PAUSE_S = 0.001


def with_load(call: Callable[[], T]) -> tuple[T, float]:
    """What the call returns, and how many processors this process used meanwhile."""
    began, used = monotonic(), process_time()
    result = call()
    return result, (process_time() - used) / (monotonic() - began)


def burn(seconds: float, processors: float) -> None:
    """Uses that many processors for that long, and does nothing else."""
    threads = max(1, ceil(processors))
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda _: _burn_one(seconds, processors / threads), range(threads)))


def _burn_one(seconds: float, share: float) -> None:
    began, used = monotonic(), thread_time()
    while (passed := monotonic() - began) < seconds:
        if thread_time() - used < share * passed:
            hashlib.sha256(_BLOCK).digest()
        else:
            sleep(_PAUSE_S)
