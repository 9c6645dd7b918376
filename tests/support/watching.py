"""A watch of the feed, read in tests as a client would read it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, nullcontext

from mnemon_server.domain.changes import Change, ChangeFilter
from mnemon_server.domain.feed import Batch, Edge, FeedMessage, Progress, Start, Started, WatchQuery
from mnemon_server.services.feed.feed import ChangeFeed, Watcher

WAIT_S = 60.0


class Watching:
    """One watch, read as a client would; `started` is its first message."""

    def __init__(self, messages: AsyncIterator[FeedMessage], started: Started) -> None:
        self._messages = messages
        self.started = started

    async def message(self) -> FeedMessage:
        async with asyncio.timeout(WAIT_S):
            return await anext(self._messages)

    async def batches(self, count: int) -> list[Batch]:
        """The next batches, until they hold `count` changes."""
        found: list[Batch] = []
        while sum(len(batch.changes) for batch in found) < count:
            if isinstance(message := await self.message(), Batch):
                found.append(message)
        return found

    async def changes(self, count: int) -> list[Change]:
        return [change for batch in await self.batches(count) for change in batch.changes]

    async def changes_until(self, error: type[Exception]) -> list[Change]:
        """The changes that come before the watch ends with this error."""
        found: list[Change] = []
        try:
            while True:
                found += await self.changes(1)
        except error:
            return found

    async def progress(self) -> Progress:
        message = await self.message()
        assert isinstance(message, Progress), message
        return message


class Open:
    """The hold on a vault that stays open."""

    is_lost = False
    resting = staticmethod(nullcontext)


def messages_of(feed: ChangeFeed, query: WatchQuery) -> AsyncGenerator[FeedMessage]:
    """Yields the messages of a new watcher, with the changes as they are."""
    return feed.watch(query, _same, Watcher(Open()))


def _same(batch: Batch) -> Batch:
    return batch


@asynccontextmanager
async def watching(
    feed: ChangeFeed,
    start: Start = Edge.NOW,
    *,
    where: ChangeFilter | None = None,
    heartbeat_s: float | None = None,
    batch_max: int = 500,
    full: bool = False,
) -> AsyncIterator[Watching]:
    """A watch that has started."""
    query = WatchQuery(
        start=start, where=where or ChangeFilter(), heartbeat_s=heartbeat_s, batch_max=batch_max, full=full
    )
    async with aclosing(messages_of(feed, query)) as messages:
        started = await anext(messages)
        assert isinstance(started, Started)
        yield Watching(messages, started)
