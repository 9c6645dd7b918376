"""Several requests of a stream in work at once, answered in order."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from typing import Any, Generic, TypeVar

Request = TypeVar("Request")
Response = TypeVar("Response")


class ReadAhead(Generic[Request, Response]):
    """Works on up to `ahead` requests at once, so that batches stay full while answers travel.

    A request that shares a key with one in work waits for all of those: changes of one record keep their order. The
    stream is read no further than the answers are.
    """

    def __init__(
        self,
        work: Callable[[Request], Awaitable[Response]],
        keys: Callable[[Request], Collection[str]],
        *,
        ahead: int,
    ) -> None:
        self._work, self._keys = work, keys
        self._slots = asyncio.Semaphore(ahead)
        self._answers: asyncio.Queue[asyncio.Future[Response] | None] = asyncio.Queue()
        self._in_work: dict[asyncio.Future[Response], frozenset[str]] = {}

    async def run(self, requests: AsyncIterator[Request]) -> AsyncIterator[Response]:
        """Yields the answer to each request, in order; raises what the work or the stream raised."""
        reader = asyncio.create_task(self._read(requests))
        try:
            while (answer := await self._answers.get()) is not None:
                yield await answer
                self._slots.release()
            await reader
        finally:
            await _cancel((reader, *self._in_work))

    async def _read(self, requests: AsyncIterator[Request]) -> None:
        try:
            async for request in requests:
                await self._slots.acquire()
                keys = frozenset(self._keys(request))
                if any(keys & others for others in self._in_work.values()):
                    await asyncio.wait(self._in_work)
                self._begin(request, keys)
        finally:
            self._answers.put_nowait(None)

    def _begin(self, request: Request, keys: frozenset[str]) -> None:
        task = asyncio.ensure_future(self._work(request))
        self._in_work[task] = keys
        task.add_done_callback(self._in_work.pop)
        self._answers.put_nowait(task)


async def _cancel(tasks: Iterable["asyncio.Future[Any]"]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        # Whatever it raises, the stream's own error is the one that counts.
        with suppress(asyncio.CancelledError, Exception):
            await task
