"""Reads by id, gathered: what comes while a read is under way is read together, in one hop to a thread."""

import asyncio
from collections.abc import Sequence
from contextvars import Context
from typing import Generic, NamedTuple, Protocol, TypeVar

from mnemon_server.engines.promises.values import Fits
from mnemon_server.services.shared.answers import Room
from mnemon_server.services.shared.offload import Offload

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

TOGETHER_MAX = 64


class ReadMany(Protocol[T_co]):
    """Blocks, and gives one result for each id, in their order."""

    def __call__(self, record_ids: Sequence[str], /, *, fits: Fits) -> Sequence[T_co]: ...


class _Wanted(NamedTuple, Generic[T]):
    record_id: str
    fits: Fits
    waiter: "asyncio.Future[T]"


class ReadBatcher(Generic[T]):
    """As commits are gathered: nobody waits for company, and the busier it is, the more goes together.

    A hop to a thread and back costs several times what a small read does. Belongs to one event loop.
    """

    def __init__(self, read_many: ReadMany[T], offload: Offload) -> None:
        """Reads nothing yet."""
        self._read_many = read_many
        self._offload = offload
        self._waiting: list[_Wanted[T]] = []
        self._reading: asyncio.Task[None] | None = None

    async def get(self, record_id: str, room: Room | None = None) -> T:
        """What `read_many` gives for this id; raises what it raises for this id alone.

        TooManyRequestsError where there is no memory for the answer for too long.
        """
        result = await self._get(record_id, room.fits if room else _everything)
        while room and room.is_short:
            await room.wait()
            room.left.clear()
            result = await self._get(record_id, room.fits)
        return result

    async def _get(self, record_id: str, fits: Fits) -> T:
        waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Wanted(record_id, fits, waiter))
        if self._reading is None:
            # In a context of its own: the read is no more the first caller's than the others'.
            self._reading = asyncio.create_task(self._read_all(), context=Context())
        return await waiter

    async def _read_all(self) -> None:
        together: list[_Wanted[T]] = []
        try:
            while self._waiting:
                together, self._waiting = self._waiting[:TOGETHER_MAX], self._waiting[TOGETHER_MAX:]
                await self._read([wanted for wanted in together if not wanted.waiter.done()])
        finally:
            self._reading = None
            # Some are left only where the threads have been closed.
            for wanted in (*together, *self._waiting):
                wanted.waiter.cancel()
            self._waiting = []

    async def _read(self, wanted: "list[_Wanted[T]]") -> None:
        if not wanted:
            return
        try:
            results = await self._offload(self._read_many, [one.record_id for one in wanted], fits=_any_of(wanted))
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            if len(wanted) > 1:
                # One of them may be at fault, and that is no other's business.
                for one in wanted:
                    await self._read([one])
            elif not wanted[0].waiter.done():
                wanted[0].waiter.set_exception(error)
            return
        for one, result in zip(wanted, results, strict=True):
            if not one.waiter.done():
                one.waiter.set_result(result)


def _everything(record_id: str, size: int) -> bool:
    return True


def _any_of(wanted: "Sequence[_Wanted[T]]") -> Fits:
    """Reads what fits for one of those who want it, and asks each of them."""

    asked: dict[str, list[Fits]] = {}
    for one in wanted:
        asked.setdefault(one.record_id, []).append(one.fits)

    def fits(record_id: str, size: int) -> bool:
        # Each of them is asked: it notes what it is told.
        return any([each(record_id, size) for each in asked[record_id]])  # noqa: C419

    return fits
