"""Budgets of slots: a call that gets no slot is refused at once rather than queued."""

from collections.abc import Callable, Hashable
from types import TracebackType

from mnemon_server.domain.errors import TooManyRequestsError

RETRY_AFTER_S = 0.5
HELD_PER_FREE = 7
"""A holder may have at most seven times as many slots as are free: one alone 7/8 of all, two 7/15 each, and so on."""


class Budget:
    """A number of slots; as a context manager, takes one for the length of the block. Belongs to one event loop."""

    def __init__(self, size: int, what: str) -> None:
        """`size` is the number of slots; `what` says what they are for, in the plural, for error messages."""
        self.size, self._what = size, what
        self.used = 0

    def take(self, count: int = 1) -> None:
        """Takes slots until they are released; raises TooManyRequestsError if too few are free."""
        if self.used + count > self.size:
            raise TooManyRequestsError(f"{self.size} {self._what} are already in progress", RETRY_AFTER_S)
        self.used += count

    def give_back(self, count: int = 1) -> None:
        """Gives back slots that were taken."""
        self.used -= count

    def __enter__(self) -> None:
        self.take()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_back()


class SharedBudget:
    """Slots that are shared fairly among several holders, so that one of them cannot take all.

    The fewer slots are free, the fewer a single holder may have. So some slots are left for the next holder, and
    holders that all want more end up with equally many. A slot that was taken is never revoked.

    Holders may be in groups, such as the callers of a tenant: groups share the slots, and holders that of their group.
    """

    def __init__(self, size: int, what: str) -> None:
        """`size` is the number of slots; `what` says what they are for, in the plural, for error messages."""
        self._slots, self._what = Budget(size, what), what
        self._held: dict[Hashable, int] = {}
        self.listeners: list[Callable[[], None]] = []
        """Called after slots were given back."""

    @property
    def used(self) -> int:
        """The number of slots that are taken."""
        return self._slots.used

    def room(self, *holder: Hashable) -> int:
        """How many slots the holder may take now; see `take`."""
        least = room = self._slots.size - self._slots.used
        for each in holder:
            room = HELD_PER_FREE * room - self._held.get(each, 0)
            least = min(least, room)
        return max(0, least)

    def take(self, *holder: Hashable, count: int = 1) -> None:
        """Takes slots until they are released.

        Args:
            holder: who takes them, after the groups that it belongs to, the outermost first.
            count: how many.

        Raises:
            TooManyRequestsError: too few are free, or the holder or a group has its share.
        """
        # While half of the slots are free, every share has room.
        used, size = self._slots.used, self._slots.size
        if size < 2 * used < 2 * size and self.room(*holder) < count:
            raise TooManyRequestsError(
                f"this caller already has its share of the {self._slots.size} {self._what} allowed at once",
                RETRY_AFTER_S,
            )
        self._slots.take(count)
        for each in holder:
            self._held[each] = self._held.get(each, 0) + count

    def give_back(self, *holder: Hashable, count: int = 1) -> None:
        """Gives back slots that were taken."""
        self._slots.give_back(count)
        for each in holder:
            if held := self._held[each] - count:
                self._held[each] = held
            else:
                del self._held[each]
        for changed in self.listeners:
            changed()
