"""How much an answer may hold, and all answers together.

What a caller may ask for in a few bytes can be a thousand times larger than a message. So every read on behalf of a
call has a `Room`: it is asked about each record before any text of it is read, and turns down what the answer cannot
hold. Behind all rooms stands one `AnswerMemory`, the memory that answers in work may take together.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from mnemon_server.domain.errors import TooManyRequestsError
from mnemon_server.services.shared.offload import Offload

T = TypeVar("T")

ANSWER_BYTES_MAX = 3 << 20
"""An answer ends before the record with which it would be larger, but for its first."""
WEIGHT = 4
"""Times its size that a record takes while it is answered: as a text, as a message, in the answer, and on its way."""
VECTORS_WEIGHT = 10
"""The same of one with vectors, whose numbers take eight times their size in between."""
FREE_BYTES = 64 << 10
"""Answers that take no more than this are not counted, and wait for nobody: calls in work are, and that bounds them."""
WAIT_S = 5.0
RETRY_AFTER_S = 1.0


class AnswerMemory:
    """Memory for answers in work. `try_take` may be called by any thread, the others on one event loop."""

    def __init__(self, bytes_max: int, *, wait_s: float = WAIT_S) -> None:
        """All of it is free; who finds no room waits for `wait_s` seconds at most."""
        self.bytes_max = bytes_max
        self._wait_s = wait_s
        self._free = bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._lock = threading.Lock()

    @property
    def used(self) -> int:
        """How many bytes are taken."""
        return self.bytes_max - self._free

    def try_take(self, size: int) -> bool:
        """Takes that many bytes, `bytes_max` at most; False where they are not free."""
        with self._lock:
            # Those who wait come first, or large answers would wait until there are no others.
            if self._waiting or size > self._free:
                return False
            self._free -= size
            return True

    async def take(self, size: int) -> None:
        """The same once they are free, in the order of the calls.

        Raises:
            TooManyRequestsError: they were not for too long.
        """
        if self.try_take(size):
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._waiting.append((size, granted))
        self._grant()
        try:
            await asyncio.wait_for(asyncio.shield(granted), self._wait_s)
        except BaseException as error:
            self._take_back(size, granted)
            if isinstance(error, TimeoutError):
                raise TooManyRequestsError(
                    f"answers in work take all of the {self.bytes_max >> 20} MiB that are for them", RETRY_AFTER_S
                ) from None
            raise

    def give(self, size: int) -> None:
        """Gives bytes back."""
        with self._lock:
            self._free += size
        self._grant()

    def _take_back(self, size: int, granted: "asyncio.Future[None]") -> None:
        if granted.done():
            self.give(size)
            return
        granted.cancel()
        with self._lock:
            self._waiting.remove((size, granted))
        self._grant()

    def _grant(self) -> None:
        with self._lock:
            while self._waiting and self._waiting[0][0] <= self._free:
                size, granted = self._waiting.popleft()
                self._free -= size
                granted.set_result(None)


class Room:
    """What one answer may still hold. Several reads may share it, one after the other.

    Ask `fits` before reading a record, in the order of the answer. The first record always fits, whatever its size is;
    once one did not, none does, so that an answer has no holes.
    """

    def __init__(
        self, memory: AnswerMemory, *, bytes_max: int = ANSWER_BYTES_MAX, weight: int = WEIGHT, copies: int = 1
    ) -> None:
        """All of it is free; takes of the memory only what it needs, and nothing for small answers.

        Args:
            memory: that of all answers.
            bytes_max: most bytes of records.
            weight: times its size that a record takes of the memory.
            copies: how often the answer says what a record says.
        """
        self._memory = memory
        self._bytes_max = bytes_max
        self._copies = copies
        self._weight = weight
        self._taken = 0
        self._held = 0
        self._missing = 0
        """Bytes of memory that were not free when they were needed."""
        self.left: list[str] = []
        """Ids of the records that did not fit."""

    @property
    def is_full(self) -> bool:
        """Whether something did not fit."""
        return bool(self.left)

    @property
    def is_short(self) -> bool:
        """Whether something did not fit for want of memory; whoever asked is to `wait`, and to ask again."""
        return self._missing > 0

    def fits(self, record_id: str, size: int) -> bool:
        """Whether a record of `size` bytes is to be read; takes the room for it. For one thread at a time."""
        total = self._taken + size * self._copies
        if self.left or (self._taken and total > self._bytes_max) or not self._hold(total):
            self.left.append(record_id)
            return False
        self._taken = total
        return True

    async def read(self, offload: Offload, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """What `function` returns, called on a thread with `fits` as one more argument.

        Where the memory of all answers is taken, it waits for some, and calls `function` anew.

        Raises:
            TooManyRequestsError: that took too long.
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
        """Whether there is room for something that is there already; takes it, once there is memory for it.

        What has none leaves the rest to what is smaller. Raises TooManyRequestsError as `read`.
        """
        if self._taken and self._taken + size > self._bytes_max:
            return False
        while not self._hold(self._taken + size):
            await self.wait()
        self._taken += size
        return True

    async def wait(self) -> None:
        """Waits for as much memory as the answer can need. Raises TooManyRequestsError where that takes too long."""
        missing = max(self._missing, self._cost(self._bytes_max) - self._held)
        self._missing = 0
        await self._memory.take(missing)
        self._held += missing

    def close(self) -> None:
        """Gives back what it holds. Calling it again does nothing."""
        held, self._held = self._held, 0
        if held:
            self._memory.give(held)

    def _hold(self, size: int) -> bool:
        missing = self._cost(size) - self._held
        if missing <= 0 or self._cost(size) <= FREE_BYTES:
            return True
        if not self._memory.try_take(missing):
            self._missing = missing
            return False
        self._held += missing
        return True

    def _cost(self, size: int) -> int:
        """What records of that size take of the memory: of the largest, all that there is has to do."""
        return min(self._weight * size, self._memory.bytes_max)


async def read_within(
    room: Room | None, offload: Offload, function: Callable[..., T], /, *args: Any, **kwargs: Any
) -> T:
    """What `function` returns, called on a thread with what fits into the room; None is without bound."""
    if room is None:
        return await offload(function, *args, fits=None, **kwargs)
    return await room.read(offload, function, *args, **kwargs)
