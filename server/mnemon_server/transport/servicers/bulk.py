"""Bulk streams: several concurrent requests, answered in order; an invalid item fails alone."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from mnemon_server.domain.errors import InvalidArgumentError, MnemonError
from mnemon_server.services.background.offload import Pause
from mnemon_server.services.writing.writes import WriteTurn
from mnemon_server.transport.incidents import report
from mnemon_server.transport.interceptors.base import Piece, piece_of_work, request_bytes
from mnemon_server.transport.status import Failure

REQUESTS_AHEAD, BYTES_AHEAD = 4, 4 << 20
"""How much of one stream is in progress at once: enough to fill the embedder's batches while answers travel."""

Request = TypeVar("Request")
Response = TypeVar("Response")
Value = TypeVar("Value")
Vault = TypeVar("Vault")
Written = TypeVar("Written")


@dataclass(frozen=True, slots=True)
class _Begun(Generic[Response]):
    task: "asyncio.Task[Response]"
    turn: WriteTurn
    keys: frozenset[str]
    weight: int


class ReadAhead(Generic[Request, Response]):
    """Works on several requests at once, so that batches stay full while answers travel.

    A request that shares a key with one in progress waits: changes of one record keep their order. New records are
    stored in the order of the stream (see `write_order`). The stream is read only as fast as the answers are taken.
    """

    def __init__(
        self,
        work: Callable[[Request], Awaitable[Response]],
        *,
        keys: Callable[[Request], Collection[str]],
        weight: Callable[[Request], int] = lambda _: request_bytes(),
        ahead: int = REQUESTS_AHEAD,
        weight_max: int = BYTES_AHEAD,
        piece: Piece = piece_of_work,
    ) -> None:
        """Starts nothing yet.

        Args:
            work: answers a request.
            keys: the records that a request changes.
            weight: how much a request is, called as soon as it is read; by default its size in bytes.
            ahead: requests in progress at once.
            weight_max: weight in progress at once; a heavier request is processed alone.
            piece: around the work for each request.
        """
        self._work, self._keys, self._weight = work, keys, weight
        self._ahead, self._weight_max, self._piece = ahead, weight_max, piece
        self._begun: deque[_Begun[Response]] = deque()
        self._changed = asyncio.Condition()
        self._read_all = False

    async def run(self, requests: AsyncIterator[Request]) -> AsyncIterator[Response]:
        """Yields the answer to each request, in order; raises what the work or the stream raised."""
        reader = asyncio.create_task(self._read(requests))
        try:
            while (oldest := await self._oldest()) is not None:
                yield await oldest
                await self._note(self._begun.popleft)
            await reader
        finally:
            await _cancel([reader, *(begun.task for begun in self._begun)])

    async def _oldest(self) -> "asyncio.Task[Response] | None":
        """The task whose answer is next; None after the last."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._begun or self._read_all)
            return self._begun[0].task if self._begun else None

    async def _read(self, requests: AsyncIterator[Request]) -> None:
        try:
            async for request in requests:
                keys, weight = frozenset(self._keys(request)), self._weight(request)
                async with self._changed:
                    await self._changed.wait_for(lambda: self._has_room(keys, weight))  # noqa: B023 - used before
                    turn = WriteTurn(begun.turn for begun in self._begun)
                    self._begun.append(_Begun(asyncio.create_task(self._do(request, turn)), turn, keys, weight))
                    self._changed.notify_all()
                del request  # See `StreamWriter`.
        finally:
            await self._note(self._end)

    def _has_room(self, keys: frozenset[str], weight: int) -> bool:
        if not self._begun:
            return True
        return (
            len(self._begun) < self._ahead
            and sum(begun.weight for begun in self._begun) + weight <= self._weight_max
            and not any(begun.keys & keys for begun in self._begun)
        )

    async def _do(self, request: Request, turn: WriteTurn) -> Response:
        turn.begin()
        try:
            async with self._piece():
                return await self._work(request)
        finally:
            turn.end()

    def _end(self) -> None:
        self._read_all = True

    async def _note(self, change: Callable[[], Any]) -> None:
        async with self._changed:
            change()
            self._changed.notify_all()


def answer_each(
    requests: AsyncIterator[Request],
    vault: Callable[[], AbstractAsyncContextManager[Vault]],
    work: Callable[[Vault, Request], Awaitable[Response]],
    *,
    keys: Callable[[Request], Collection[str]],
) -> AsyncIterator[Response]:
    """The answers to the requests of a stream, each by `work` on the open vault; `keys` as in ReadAhead."""

    async def in_vault(request: Request) -> Response:
        # An idle stream must not keep the vault open.
        async with vault() as opened:
            return await work(opened, request)

    return ReadAhead(in_vault, keys=keys).run(requests)


async def write_each(
    items: Sequence[Request],
    *,
    read: Callable[[Request], Value],
    write: Callable[[list[Value]], Awaitable[Sequence[Written | MnemonError]]],
) -> list[Written | Failure]:
    """Writes the items, and returns the outcome of each; one that cannot be read fails alone."""
    taken: list[Value | Failure] = []
    pause = Pause()
    for item in items:
        taken.append(read_item(item, read))
        await pause.where_due()
    return await write_taken(taken, write=write)


async def write_taken(
    taken: Sequence[Value | Failure], *, write: Callable[[list[Value]], Awaitable[Sequence[Written | MnemonError]]]
) -> list[Written | Failure]:
    """The same for items that have been read."""
    written = iter(await write([item for item in taken if not isinstance(item, Failure)]))
    return [item if isinstance(item, Failure) else _outcome(next(written)) for item in taken]


def read_item(item: Request, read: Callable[[Request], Value]) -> Value | Failure:
    """The item as a value, or why it cannot be read."""
    try:
        return read(item)
    except InvalidArgumentError as error:
        return Failure.of(error)


def _outcome(result: Written | MnemonError) -> Written | Failure:
    return report(result) if isinstance(result, MnemonError) else result


async def _cancel(tasks: Iterable["asyncio.Task[Any]"]) -> None:
    cancelled = [task for task in tasks if task.cancel() or not task.done()]
    # Their errors no longer matter: the stream ends with an error of its own, or without one.
    await asyncio.gather(*cancelled, return_exceptions=True)
