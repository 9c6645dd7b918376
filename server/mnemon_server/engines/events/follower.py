"""Tells who waits for them of committed events and removals."""

from collections.abc import Callable, Collection

import apsw

from mnemon_server.engines.sqlite.follower import Follower


class EventFollower(Follower):
    """Follows the timeline's transactions; see Follower. Everything but `listen` is for the writer's thread."""

    def __init__(self) -> None:
        self._on_append: Callable[[], None] = lambda: None
        self._on_remove: Callable[[Collection[int]], None] = lambda sequences: None
        self._has_appended = False
        self._removed: list[int] = []

    def listen(self, on_append: Callable[[], None], on_remove: Callable[[Collection[int]], None]) -> None:
        """Sets the callbacks: after a commit with events, and after one with removals, with the removed sequences.

        The callbacks must not block. Call this before the first write.
        """
        self._on_append, self._on_remove = on_append, on_remove

    def appended(self) -> None:
        """Stages events that were stored."""
        self._has_appended = True

    def removed(self, sequences: Collection[int]) -> None:
        """Stages events that were removed."""
        self._removed += sequences

    # With the transactions; see Follower

    def load(self, connection: apsw.Connection) -> None:
        """Tells of events: after a failure, the outcome of commits is unknown."""
        self.after_rollback()
        self._on_append()

    def after_commit(self) -> None:
        """Calls the listeners."""
        has_appended, removed = self._has_appended, self._removed
        self.after_rollback()
        if has_appended:
            self._on_append()
        if removed:
            self._on_remove(removed)

    def after_rollback(self) -> None:
        """Discards what was staged."""
        self._has_appended, self._removed = False, []
