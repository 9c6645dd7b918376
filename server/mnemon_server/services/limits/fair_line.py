"""A line in which callers wait in turns, rather than in the order in which they came."""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class FairLine(Generic[T]):
    """A line of waiting callers. Groups have turns, such as tenants; then the members of a group, such as its callers.

    One that waits for a thousand things thus delays another's single one by one of its own. What a member waits for
    keeps its order.
    """

    def __init__(self) -> None:
        """Holds nothing yet."""
        self._members: OrderedDict[Hashable, FairLine[T]] = OrderedDict()
        self._own: deque[T] = deque()

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._own or self._members)

    def add(self, item: T, *holder: Hashable) -> None:
        """Adds what a holder waits for, named after the groups that it belongs to, the outermost first."""
        if holder:
            self._members.setdefault(holder[0], FairLine()).add(item, *holder[1:])
        else:
            self._own.append(item)

    def discard(self, item: T, *holder: Hashable) -> None:
        """Removes what a holder no longer waits for, if it is there."""
        if not holder:
            with suppress(ValueError):
                self._own.remove(item)
        elif (member := self._members.get(holder[0])) is not None:
            member.discard(item, *holder[1:])
            if not member:
                del self._members[holder[0]]

    def pop(self, may: Callable[[T], bool] = lambda _: True, holder: Sequence[Hashable] = ()) -> T | None:
        """Removes and returns the next item that may go; None if there is no such item.

        Of each member only the first item is asked for: a later one does not overtake it.

        Args:
            may: whether an item may go.
            holder: whose items are asked for, named as for `add`; by default everybody's.
        """
        if self._own:
            return self._own.popleft() if may(self._own[0]) else None
        for key in holder[:1] or self._members:
            member = self._members.get(key)
            if member is not None and (item := member.pop(may, holder[1:])) is not None:
                if member:
                    self._members.move_to_end(key)
                else:
                    del self._members[key]
                return item
        return None
