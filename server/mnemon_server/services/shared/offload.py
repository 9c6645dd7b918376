"""Runs blocking work outside of the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from mnemon_server.services.shared.engine_futures import completion

P = ParamSpec("P")
T = TypeVar("T")


class Offload:
    """Runs blocking calls on a bounded number of threads; they start in the order of the calls."""

    def __init__(self, threads: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Returns or raises what `function` does. Cancelling the caller does not stop a call that has begun."""
        future = self._executor.submit(function, *args, **kwargs)
        try:
            return await completion(future)
        except asyncio.CancelledError:
            future.cancel()
            raise

    def close(self) -> None:
        """Waits for the calls that have begun, and drops those that have not."""
        self._executor.shutdown(wait=True, cancel_futures=True)
