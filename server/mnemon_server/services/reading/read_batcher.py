"""Batches reads by id: requests that come while a read is under way are read together, in one hop to a thread."""

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context
from time import monotonic
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from mnemon_server.engines.promises.values import Fits
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.reading.answers import Room
from mnemon_server.services.reading.at_once import AtOnce

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

TOGETHER_MAX = 64


class ReadMany(Protocol[T_co]):
    """Returns one result for each id, in their order. Blocks."""

    def __call__(self, record_ids: Sequence[str], /, *, fits: Fits) -> Sequence[T_co]: ...


ReadSmall: TypeAlias = Callable[[str], T | None]
"""Returns the result for an id; None if `read_many` is to find it out. Does not wait for other reads.

It is not asked whether its result fits: small records take no memory of the answers.
"""


class _Wanted(NamedTuple, Generic[T]):
    record_id: str
    fits: Fits
    waiter: "asyncio.Future[T]"


class ReadBatcher(Generic[T]):
    """Batches reads by id. Belongs to one event loop.

    Small records are read on the event loop, as long as that is quick, and others on threads. The batches of threads
    begin at once if no other is being read; the more requests come during a read, the larger the next batch.
    """

    def __init__(
        self,
        read_many: ReadMany[T],
        offload: Offload,
        read_small: ReadSmall[T] | None = None,
        *,
        monotonic: Callable[[], float] = monotonic,
    ) -> None:
        """Reads nothing yet. Without `read_small`, all is left to threads. `monotonic` gives the time, in seconds."""
        self._read_many = read_many
        self._read_small = read_small
        self._at_once = AtOnce(monotonic=monotonic)
        self._offload = offload
        self._waiting: list[_Wanted[T]] = []
        self._reading: asyncio.Task[None] | None = None

    async def get(self, record_id: str, room: Room | None = None) -> T:
        """The result of `read_many` for this id; raises only the errors that this id causes.

        TooManyRequestsError if no memory for the answer becomes free in time.
        """
        if self._read_small and (small := self._at_once(self._read_small, record_id)) is not None:
            return small
        fits = room.fits if room else _everything
        result = await self._with_others(record_id, fits)
        while room and room.is_short:
            await room.wait()
            room.left.clear()
            result = await self._with_others(record_id, fits)
        return result

    async def _with_others(self, record_id: str, fits: Fits) -> T:
        waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Wanted(record_id, fits, waiter))
        if self._reading is None:
            # In a context of its own, since the read belongs to all callers, and not only to the first.
            self._reading = asyncio.create_task(self._read_all(), context=Context())
        return await waiter

    async def _read_all(self) -> None:
        together: list[_Wanted[T]] = []
        try:
            while self._waiting:
                together, self._waiting = self._waiting[:TOGETHER_MAX], self._waiting[TOGETHER_MAX:]
                await self._read([wanted for wanted in together if not wanted.waiter.done()])
                # Calls that have arrived meanwhile join the next batch.
                await asyncio.sleep(0)
        finally:
            self._reading = None
            # Some are left only if the threads were closed.
            for wanted in (*together, *self._waiting):
                wanted.waiter.cancel()
            self._waiting = []

    async def _read(self, wanted: "list[_Wanted[T]]") -> None:
        if not wanted:
            return
        try:
            results = await self._offload(self._read_many, [one.record_id for one in wanted], fits=_any_of(wanted))
        except Exception as error:  # noqa: BLE001 - it is raised to the caller
            if len(wanted) > 1:
                # Perhaps only one of them causes the error: read each alone, so that the others still succeed.
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
    """A `Fits` that accepts a record if at least one of the requests for it does."""

    asked: dict[str, list[Fits]] = {}
    for one in wanted:
        asked.setdefault(one.record_id, []).append(one.fits)

    def fits(record_id: str, size: int) -> bool:
        # A list, so that every request is asked: its room must count the record.
        return any([each(record_id, size) for each in asked[record_id]])  # noqa: C419

    return fits
