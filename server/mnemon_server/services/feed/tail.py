"""The newest changes of a log, read once for all watchers that keep up with it."""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime

from mnemon_server.domain.changes import Change, ChangeLogState
from mnemon_server.domain.errors import NotServingError
from mnemon_server.domain.feed import EVERYTHING
from mnemon_server.engines.promises.change_log import ChangeLog
from mnemon_server.services.background.offload import Offload

CHANGES_MAX = 4_096
PAUSE_PER_FOLLOWER_S, PAUSE_MAX_S = 0.000_2, 0.05

log = logging.getLogger(__name__)


class ChangeTail:
    """Reads the log while it has followers, and keeps the newest changes. Belongs to one event loop.

    A commit costs one read of the log, whatever the number of followers. Between two reads there is a pause that grows
    with the number of followers: the changes committed during the pause reach each follower in one message.
    """

    def __init__(
        self, changes: ChangeLog, subscribe: Callable[[Callable[[], None]], Callable[[], None]], offload: Offload
    ) -> None:
        """Reads nothing yet. For `subscribe`, see Vault."""
        self._log = changes
        self._subscribe = subscribe
        self._offload = offload
        self._committed = asyncio.Event()
        self._signalled = False
        self.news = asyncio.Event()
        """Set when the next changes come. Get it before reading, so that no change is missed."""
        self._followers = 0
        self._pump: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self.version = 0
        """Grows whenever new changes come."""
        self._changes: list[Change] = []
        self._floor: int | None = None
        self._head: int | None = None
        self.head_time: datetime | None = None
        """The commit time of the newest change that was read."""

    def covers(self, position: int) -> bool:
        """Whether the tail has all changes after the position; otherwise they must be read from the log.

        Raises:
            MnemonError: the log could not be read, or the tail was closed.
        """
        if self._failure is not None:
            raise self._failure
        return self._floor is not None and position >= self._floor

    def after(self, position: int) -> list[Change]:
        """The changes after a position that is covered, in order; their commits are whole."""
        first = bisect_right(self._changes, position, key=_sequence)
        return self._changes[first:]

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Keeps the tail up to date for as long as the block lasts."""
        self._followers += 1
        try:
            if self._pump is None:
                self._start()
            yield
        finally:
            self._followers -= 1
            if not self._followers:
                self._stop()

    def close(self) -> None:
        """Stops reading; followers get NotServingError. Calling it again does nothing."""
        self._stop()
        self._failure = NotServingError("the vault was closed")
        self._notify()

    def _start(self) -> None:
        if isinstance(self._failure, NotServingError):
            raise self._failure
        self._failure = None
        loop = asyncio.get_running_loop()

        def on_commit() -> None:
            # `_follow` clears the flag before it reads the log, so it sees this commit, too.
            if not self._signalled:
                self._signalled = True
                # After the loop has ended, a commit has no watchers to wake.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._committed.set)

        self._unsubscribe = self._subscribe(on_commit)
        self._committed.set()
        self._pump = asyncio.create_task(self._follow())

    def _stop(self) -> None:
        if self._pump is not None:
            self._unsubscribe()
            self._pump.cancel()
            self._pump = None
            self._reset(None)

    async def _follow(self) -> None:
        try:
            while True:
                await self._committed.wait()
                self._committed.clear()
                self._signalled = False
                await self._advance()
                await asyncio.sleep(min(PAUSE_PER_FOLLOWER_S * self._followers, PAUSE_MAX_S))
        except Exception as error:
            # `covers` raises the error to the followers.
            log.warning("the change log cannot be followed", exc_info=error)
            self._failure = error
            self._pump = None
            self._unsubscribe()
            self._notify()

    async def _advance(self) -> None:
        if self._head is None:
            self._reset(await self._offload(self._log.state))
            # A change committed after a watcher read the log may be before this head: watchers must look once more.
            self._notify()
            return
        news = await self._offload(self._log.read, self._head, limit=CHANGES_MAX, where=EVERYTHING)
        if not news.caught_up or news.floor > self._head:
            # Followers read this many changes from the log themselves, page by page: this part may end within a commit.
            # And if changes were dropped before they were read, followers must learn of that from the log.
            self._reset(await self._offload(self._log.state))
        elif news.changes:
            self._changes += news.changes
            self._head, self.head_time = news.position, news.changes[-1].time
            self._drop_oldest()
        else:
            return
        self._notify()

    def _drop_oldest(self) -> None:
        if (excess := len(self._changes) - CHANGES_MAX) > 0:
            self._floor = self._changes[excess - 1].sequence
            del self._changes[:excess]

    def _reset(self, state: ChangeLogState | None) -> None:
        self._changes = []
        self._floor = self._head = state.head if state else None
        self.head_time = state.head_time if state else None

    def _notify(self) -> None:
        self.version += 1
        news, self.news = self.news, asyncio.Event()
        news.set()


def _sequence(change: Change) -> int:
    return change.sequence
