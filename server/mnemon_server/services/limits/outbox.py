"""Limits the memory of what was sent and not read yet.

The runtime copies each message, and keeps the copy until the client has taken it or has left. A client that reads takes
milliseconds, one that does not read may take for ever.
"""

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass

from mnemon_server.domain.errors import ErrorReason, MnemonError, TooManyRequestsError
from mnemon_server.services.limits.accounts import Account, SharedBudget
from mnemon_server.services.limits.fair_line import FairLine

BYTES_MAX = 24 << 20
FREE_BYTES = 16 << 10
"""Smaller messages are not counted: the limits of calls and streams bound them."""
LARGEST_SHARE = 6
"""A message counts for at most a sixth of all, since the largest one must fit beside those of others."""
RETRY_AFTER_S = 1.0

Holder = tuple[Hashable, ...]
"""The groups of a caller, the outermost first, and the caller."""


class SlowReaderError(MnemonError):
    """The client of a stream left a message unread for too long."""

    reason = ErrorReason.SLOW_READER


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    cost: int
    holder: Holder
    granted: "asyncio.Future[None]"


class Outbox:
    """The memory for all messages on their way, shared fairly by callers. Belongs to one event loop."""

    def __init__(self, *, wait_s: float, bytes_max: int = BYTES_MAX) -> None:
        """All of it is free. A stream waits for at most `wait_s` seconds."""
        self._bytes_max = bytes_max
        self._wait_s = wait_s
        self._budget = SharedBudget(bytes_max, "bytes")
        self._line: FairLine[_Waiting] = FairLine()

    @property
    def used(self) -> int:
        """The number of bytes that are on their way."""
        return self._budget.used

    def cost(self, size: int) -> int:
        """The bytes that a message of this size counts as."""
        return 0 if size <= FREE_BYTES else min(size, self._bytes_max // LARGEST_SHARE)

    def try_take(self, cost: int, holder: Holder) -> bool:
        """Takes memory; returns False if it is not free, or the holder has its share."""
        # Hundreds may wait, and to compute a share takes longer.
        if cost > self._bytes_max - self._budget.used or cost > self._budget.room(*holder):
            return False
        self._budget.take(*holder, count=cost)
        return True

    async def take(self, cost: int, holder: Holder) -> None:
        """Takes memory as soon as it is free; raises SlowReaderError if that takes too long."""
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(cost, holder, granted)
        self._line.add(waiting, *holder)
        self._grant(holder)
        try:
            async with asyncio.timeout(self._wait_s):
                await granted
        except BaseException as error:
            if granted.cancelled():
                self._line.discard(waiting, *holder)
                self._grant(holder)
            else:
                self.give(cost, holder)
            if isinstance(error, TimeoutError):
                raise SlowReaderError(
                    f"messages that are left unread took all of their memory for {self._wait_s:g} s; read faster"
                ) from None
            raise

    def give(self, cost: int, holder: Holder) -> None:
        """Gives memory back."""
        self._budget.give_back(*holder, count=cost)
        self._grant()

    def _grant(self, holder: Holder = ()) -> None:
        """Lets those go on that may. While no memory is given back, only the `holder` whose line has changed may."""
        while (next_ := self._line.pop(self._may_go, holder)) is not None:
            if not next_.granted.cancelled():
                next_.granted.set_result(None)

    def _may_go(self, waiting: _Waiting) -> bool:
        """Whether it need not wait any longer; if it still does, takes its memory."""
        return waiting.granted.cancelled() or self.try_take(waiting.cost, waiting.holder)


class Sending:
    """The messages of one call that its client has not taken yet."""

    __slots__ = ("_account", "_held", "_holder", "_outbox")

    def __init__(self, outbox: Outbox, holder: Holder, account: Account) -> None:
        """Holds nothing yet. What it takes also counts in the account of the caller."""
        self._outbox, self._holder, self._account, self._held = outbox, holder, account, 0

    def fits(self, size: int) -> bool:
        """Whether a message of this size may be sent now; if so, takes memory for it."""
        missing = self._outbox.cost(size) - self._held
        if missing <= 0:
            return True
        if not self._outbox.try_take(missing, self._holder):
            return False
        self._hold(missing)
        return True

    def require(self, size: int) -> None:
        """Takes memory for the only message of a call; raises TooManyRequestsError if it does not fit."""
        if not self.fits(size):
            raise TooManyRequestsError("answers that were not read take all of their memory", RETRY_AFTER_S)

    async def wait(self, size: int) -> None:
        """Waits until a message of this size may be sent; raises SlowReaderError if that takes too long.

        Holds nothing meanwhile. A caller that can make the message anew should not keep it either.
        """
        self.clear()
        cost = self._outbox.cost(size)
        await self._outbox.take(cost, self._holder)
        self._hold(cost)

    def clear(self) -> None:
        """The client has taken everything, or has left."""
        if held := self._held:
            self._hold(-held)
            self._outbox.give(held, self._holder)

    def _hold(self, cost: int) -> None:
        self._held += cost
        self._account.count_unread(cost)
