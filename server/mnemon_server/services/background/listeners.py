"""Listeners that are called after each change."""

from collections.abc import Callable


class Listeners(list[Callable[[], None]]):
    """Functions that are called after each change, in the order in which they were added."""

    def tell(self) -> None:
        """Calls them."""
        for listener in self:
            listener()
