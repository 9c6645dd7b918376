"""Limits the size of each answer, and the memory of all answers together.

A request of a few bytes may ask for a thousand times more than a message can hold. So every read for a call has a
`Room`: it is asked about each record before its text is read, and refuses what the answer cannot hold. All rooms share
one `AnswerMemory`, which limits the memory of all answers in progress.
"""

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar

from mnemon_server.domain.access.quotas import UNLIMITED
from mnemon_server.domain.errors import TooManyRequestsError
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.limits.accounts import Account

T = TypeVar("T")

ANSWER_BYTES_MAX = 3 << 20
"""The most bytes of records in an answer; only a single record may exceed it."""
WEIGHT = 4
"""The memory that a record takes while it is answered, as a multiple of its size.

It exists as a text, as a message, in the serialised answer, and in the transport.
"""
VECTORS_WEIGHT = 10
"""The same for a record with vectors: as Python numbers, they take eight times their size."""
FREE_BYTES = 64 << 10
"""Smaller answers are not counted and never wait: the limit on calls in progress bounds them."""
WAIT_S = 5.0
RETRY_AFTER_S = 1.0


NOBODY = Account("nobody", UNLIMITED, now=monotonic)


class AnswerMemory:
    """Memory for answers in progress. Any thread may call `try_take`; the other methods belong to one event loop.

    Each byte is counted in the account of the caller. If memory is short, tenants get some in turns.
    """

    def __init__(self, bytes_max: int, *, wait_s: float = WAIT_S) -> None:
        """All of it is free. `take` waits for at most `wait_s` seconds."""
        self.bytes_max = bytes_max
        self._wait_s = wait_s
        self._free = bytes_max
        self._waiting: OrderedDict[Account, deque[tuple[int, asyncio.Future[None], Account]]] = OrderedDict()
        """By the account of a tenant: sizes, who waits for them, and in whose account they are counted."""
        self._lock = threading.Lock()

    @property
    def used(self) -> int:
        """The number of bytes that are taken."""
        return self.bytes_max - self._free

    def try_take(self, size: int, account: Account = NOBODY) -> bool:
        """Takes this many bytes, at most `bytes_max`; returns False if they are not free."""
        with self._lock:
            # Waiting calls come first: otherwise small answers could keep a large one waiting for ever.
            if self._waiting or size > self._free:
                return False
            self._count(size, account)
            return True

    async def take(self, size: int, account: Account = NOBODY) -> None:
        """Takes the bytes as soon as they are free: in turns of the tenants, and in the order of a tenant's calls.

        Raises:
            TooManyRequestsError: they did not become free in time.
        """
        if self.try_take(size, account):
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._waiting.setdefault(account.of_tenant, deque()).append((size, granted, account))
        self._grant()
        try:
            async with asyncio.timeout(self._wait_s):
                await asyncio.shield(granted)
        except BaseException as error:
            self._take_back(size, granted, account)
            if isinstance(error, TimeoutError):
                raise TooManyRequestsError(
                    f"answers in progress use all of their {self.bytes_max >> 20} MiB of memory", RETRY_AFTER_S
                ) from None
            raise

    def give(self, size: int, account: Account = NOBODY) -> None:
        """Gives bytes back."""
        with self._lock:
            self._count(-size, account)
        self._grant()

    def _count(self, size: int, account: Account) -> None:
        self._free -= size
        account.count_answer(size)

    def _take_back(self, size: int, granted: "asyncio.Future[None]", account: Account) -> None:
        if granted.done():
            self.give(size, account)
            return
        granted.cancel()
        with self._lock:
            self._waiting[account.of_tenant].remove((size, granted, account))
            self._drop_empty(account.of_tenant)
        self._grant()

    def _grant(self) -> None:
        with self._lock:
            while self._waiting:
                tenant, calls = next(iter(self._waiting.items()))
                size, granted, account = calls[0]
                if size > self._free:
                    break
                calls.popleft()
                self._waiting.move_to_end(tenant)
                self._drop_empty(tenant)
                self._count(size, account)
                granted.set_result(None)

    def _drop_empty(self, tenant: Account) -> None:
        if not self._waiting[tenant]:
            del self._waiting[tenant]


class Room:
    """The space that is left in one answer. Several reads may share it, one after the other.

    Call `fits` before reading a record, in the order of the answer. The first record always fits, whatever its size.
    After one did not fit, no other does, so that an answer has no gaps.
    """

    def __init__(
        self,
        memory: AnswerMemory,
        *,
        bytes_max: int = ANSWER_BYTES_MAX,
        weight: int = WEIGHT,
        copies: int = 1,
        account: Account = NOBODY,
    ) -> None:
        """All of it is free. It takes only as much memory as it needs, and none for small answers.

        `bytes_max` limits the bytes of records, `weight` is the memory that a record takes, as a multiple of its size,
        and the answer contains each record `copies` times.
        """
        self._memory = memory
        self._account = account
        self._bytes_max = bytes_max
        self._copies = copies
        self._weight = weight
        self._taken = 0
        self._held = 0
        self._closed = False
        self._lock = threading.Lock()
        """Guards what is held: a read that outlives its caller may ask for more while it is given back."""
        self._missing = 0
        """Bytes of memory that were not free when they were needed."""
        self._parts: list[Room] = []
        self.left: list[str] = []
        """Ids of the records that did not fit."""

    @property
    def is_full(self) -> bool:
        """Whether something did not fit."""
        return bool(self.left)

    @property
    def is_short(self) -> bool:
        """Whether a record did not fit because memory was short; the caller should `wait`, and ask again."""
        return self._missing > 0

    def part(self) -> "Room":
        """A room of the same size for one of several reads that go on at once; it is closed together with this one."""
        part = Room(self._memory, bytes_max=self._bytes_max, weight=self._weight, account=self._account)
        self._parts.append(part)
        return part

    def fits(self, record_id: str, size: int) -> bool:
        """Whether a record of `size` bytes may be read; if so, takes the space for it. For one thread at a time."""
        total = self._taken + size * self._copies
        if self.left or (self._taken and total > self._bytes_max) or not self._hold(total):
            self.left.append(record_id)
            return False
        self._taken = total
        return True

    @property
    def taken(self) -> int:
        """The bytes that are taken."""
        return self._taken

    def count_as(self, size: int, since: int) -> None:
        """Charges `size` bytes instead of everything read since `since`, which frees the difference."""
        self._taken = since + size
        self.left.clear()

    async def read(self, offload: Offload, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Calls `function` on a thread, with `fits` as one more argument, and returns its result.

        If the memory of all answers is used up, waits for some, and calls `function` again.

        Raises:
            TooManyRequestsError: the memory did not become free in time.
        """
        taken, left = self._taken, len(self.left)
        result = await offload(function, *args, fits=self.fits, **kwargs)
        while self.is_short:
            await self.wait()
            self._taken = taken
            del self.left[left:]
            result = await offload(function, *args, fits=self.fits, **kwargs)
        return result

    async def take(self, size: int) -> bool:
        """Whether something that is already in memory fits; if so, waits for memory, and takes the space.

        Unlike in `fits`, smaller things may still fit after one did not. Raises TooManyRequestsError like `read`.
        """
        if self._taken and self._taken + size > self._bytes_max:
            return False
        while not self._hold(self._taken + size):
            if self._closed:
                return False
            await self.wait()
        self._taken += size
        return True

    async def wait(self) -> None:
        """Waits for as much memory as the answer can need. Raises TooManyRequestsError if that takes too long."""
        missing = max(self._missing, self._cost(self._bytes_max) - self._held)
        self._missing = 0
        await self._memory.take(missing, self._account)
        with self._lock:
            self._held += missing

    def close(self) -> None:
        """Gives its memory back; nothing fits from then on. Calling it again does nothing."""
        with self._lock:
            held, self._held, self._closed = self._held, 0, True
        if held:
            self._memory.give(held, self._account)
        for part in self._parts:
            part.close()

    def _hold(self, size: int) -> bool:
        with self._lock:
            missing = self._cost(size) - self._held
            if self._closed:
                return False
            if missing <= 0 or self._cost(size) <= FREE_BYTES:
                return True
            if not self._memory.try_take(missing, self._account):
                self._missing = missing
                return False
            self._held += missing
            return True

    def _cost(self, size: int) -> int:
        """The memory that records of this size take; at most all memory, which must do even for the largest answer."""
        return min(self._weight * size, self._memory.bytes_max)


async def read_within(
    room: Room | None, offload: Offload, function: Callable[..., T], /, *args: Any, **kwargs: Any
) -> T:
    """Calls `function` on a thread, limited to what fits into the room, and returns its result; None means no limit."""
    if room is None:
        return await offload(function, *args, fits=None, **kwargs)
    return await room.read(offload, function, *args, **kwargs)
