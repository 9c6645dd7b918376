"""The asyncio client's methods for events."""
# ruff: noqa: ASYNC109 -- a deadline goes to the server with the call, which asyncio.timeout would not do

from collections.abc import AsyncIterator, Iterable

from mnemon._async.watch import AsyncWatch
from mnemon._connection import AsyncConnection
from mnemon._messages import feed as event_convert
from mnemon._messages.feed import Since
from mnemon._values import documents as values
from mnemon._values.feed import EARLIEST, NOW, Event, EventPage
from mnemon.v1.events_pb2_grpc import EventServiceStub


class AsyncEventMethods(AsyncConnection):
    """What happened, in order: watched as it happens, or read page by page."""

    def watch(
        self,
        since: Since = NOW,
        *,
        types: Iterable[str] = (),
        scope: values.Scope | None = None,
        ids: Iterable[str] = (),
        full: bool = False,
        heartbeat: float | None = None,
        batch_size: int = 0,
    ) -> AsyncWatch:
        """Watches events as they are committed: an async iterator that resumes by itself, each one once.

        `since` is "now", "earliest", a cursor, or a time with its zone; the other arguments say which events: of these
        `types` (see EventType), about records of this `scope`, with these `ids`. With `full`, events carry the record
        as it is then. `heartbeat` is the longest silence of the server in seconds, 5 to 60; it is given up after two
        and a half of them. At most `batch_size` events come in a message: 500 where it is 0, at most 1,000.
        """
        request = event_convert.watch_request(
            since, types=types, scope=scope, ids=ids, full=full, heartbeat=heartbeat, batch_size=batch_size
        )
        self._open_channel()
        watch = AsyncWatch(self._target, request)
        self._watches.add(watch)
        return watch

    async def events(
        self,
        since: Since = EARLIEST,
        *,
        types: Iterable[str] = (),
        scope: values.Scope | None = None,
        ids: Iterable[str] = (),
        full: bool = False,
        page_size: int = 0,
        timeout: float | None = None,
    ) -> AsyncIterator[Event]:
        """Yields the events that are in the log, in order, page after page; the arguments are those of `watch`.

        `timeout` is for each page.
        """
        kinds, record_ids = list(types), list(ids)
        caught_up = False
        while not caught_up:
            page = await self.events_page(
                since, types=kinds, scope=scope, ids=record_ids, full=full, page_size=page_size, timeout=timeout
            )
            for event in page.events:
                yield event
            since, caught_up = page.cursor, page.caught_up

    async def events_page(
        self,
        since: Since = EARLIEST,
        *,
        types: Iterable[str] = (),
        scope: values.Scope | None = None,
        ids: Iterable[str] = (),
        full: bool = False,
        page_size: int = 0,
        timeout: float | None = None,
    ) -> EventPage:
        """Returns one page of the log: 100 events where `page_size` is 0, at most 1,000.

        Its cursor is for the next page, and for `watch`. A page may be empty though there is more: `caught_up` tells.
        """
        request = event_convert.list_request(since, types=types, scope=scope, ids=ids, full=full, page_size=page_size)
        stub = self._stub(EventServiceStub)
        return event_convert.page_from_pb(await self._call(stub.ListEvents, request, timeout))
