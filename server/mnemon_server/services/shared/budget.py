"""Slots that are refused rather than waited for, and shared by those who want some."""

from collections import Counter
from collections.abc import Hashable
from types import TracebackType

from mnemon_server.domain.errors import TooManyRequestsError

RETRY_AFTER_S = 0.5
HELD_PER_FREE = 7
"""What one holder may have is at most seven times what is free: alone 7/8 of all, two of them 7/15 each, and so on."""


class Budget:
    """A number of slots; as a context manager, one for the length of the block. Belongs to one event loop."""

    def __init__(self, size: int, what: str) -> None:
        """Takes the number, and what the slots are for, in the plural: errors name it."""
        self.size, self._what = size, what
        self.used = 0

    def take(self) -> None:
        """Takes a slot until it is given back; raises TooManyRequestsError where none is free."""
        if self.used >= self.size:
            raise TooManyRequestsError(f"{self.size} {self._what} are already in work", RETRY_AFTER_S)
        self.used += 1

    def give_back(self) -> None:
        """Gives back a slot that was taken."""
        self.used -= 1

    def __enter__(self) -> None:
        self.take()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_back()


class SharedBudget:
    """Slots that several holders want, none of whom can take them from all the others.

    What a holder may have shrinks with what is free: there is room for whoever comes next, and holders who all want
    more end up with the same. Nothing is ever taken away again.
    """

    def __init__(self, size: int, what: str) -> None:
        """Takes the number, and what the slots are for, in the plural: errors name it."""
        self._slots, self._what = Budget(size, what), what
        self._held: Counter[Hashable] = Counter()

    @property
    def used(self) -> int:
        """Slots that are taken."""
        return self._slots.used

    def take(self, holder: Hashable) -> None:
        """Takes a slot until it is given back.

        Raises:
            TooManyRequestsError: none is free, or the holder has its share.
        """
        free = self._slots.size - self._slots.used
        if free and self._held[holder] >= HELD_PER_FREE * free:
            raise TooManyRequestsError(
                f"this caller has its share of the {self._slots.size} {self._what} that may be in work", RETRY_AFTER_S
            )
        self._slots.take()
        self._held[holder] += 1

    def give_back(self, holder: Hashable) -> None:
        """Gives back a slot that was taken."""
        self._slots.give_back()
        self._held[holder] -= 1
        if not self._held[holder]:
            del self._held[holder]
