# Generated from _async/changes.py by `make generate`: change that file instead.
"""The blocking client's object for changes."""

from collections.abc import Iterable, Iterator

from mnemon._messages.changes import Since, list_request, page_from_pb, watch_request
from mnemon._sync.service import Service, Stub
from mnemon._sync.watch import Watch
from mnemon._values import documents as values
from mnemon._values.feed import EARLIEST, NOW, Change, ChangePage
from mnemon.v1.changes_pb2_grpc import ChangeServiceStub


class Changes(Service):
    """Changes in order, as `client.changes`: watch them as they happen, or read them page by page."""

    _stub = Stub(ChangeServiceStub)

    def watch(
        self,
        since: Since = NOW,
        *,
        types: Iterable[str] = (),
        scope: values.Scope | None = None,
        ids: Iterable[str] = (),
        conversation: str = "",
        full: bool = False,
        heartbeat: float | None = None,
        batch_size: int = 0,
    ) -> Watch:
        """Watches changes as they are committed: an iterator that yields each once and reconnects by itself.

        `since` is "now", "earliest", a cursor, or a time: a datetime with a zone, a date, a timedelta back from now, or
        a text such as "2027-01-31", "yesterday" or "2 weeks".
        `types` (see ChangeType), `scope` and `ids` select changes; `conversation` selects the events that are saved in
        it, such as its messages. With `full`, a change carries the record as it is when it is read. `heartbeat` is the
        longest silence of the server in seconds, 5 to 60; after two and a half times as long, the client reconnects. A
        message holds at most `batch_size` changes, 1,000 at most; 0 means 500.
        """
        request = watch_request(
            since,
            types=types,
            scope=scope,
            ids=ids,
            conversation=conversation,
            full=full,
            heartbeat=heartbeat,
            batch_size=batch_size,
        )
        self._connection.open_channel()
        watch = Watch(self._connection.target, request)
        self._connection.watches.add(watch)
        return watch

    def list(
        self,
        since: Since = EARLIEST,
        *,
        types: Iterable[str] = (),
        scope: values.Scope | None = None,
        ids: Iterable[str] = (),
        conversation: str = "",
        full: bool = False,
        page_size: int = 0,
        timeout: float | None = None,
    ) -> Iterator[Change]:
        """Yields the changes in the log, in order. The arguments are those of `watch`.

        `timeout` applies to each page.
        """
        kinds, record_ids = list(types), list(ids)
        caught_up = False
        while not caught_up:
            page = self.list_page(
                since,
                types=kinds,
                scope=scope,
                ids=record_ids,
                conversation=conversation,
                full=full,
                page_size=page_size,
                timeout=timeout,
            )
            yield from page.changes
            since, caught_up = page.cursor, page.caught_up

    def list_page(
        self,
        since: Since = EARLIEST,
        *,
        types: Iterable[str] = (),
        scope: values.Scope | None = None,
        ids: Iterable[str] = (),
        conversation: str = "",
        full: bool = False,
        page_size: int = 0,
        timeout: float | None = None,
    ) -> ChangePage:
        """Returns one page of the log: 100 changes if `page_size` is 0, at most 1,000.

        Its cursor is for the next page and for `watch`. A page may be empty although there are more; see `caught_up`.
        """
        request = list_request(
            since, types=types, scope=scope, ids=ids, conversation=conversation, full=full, page_size=page_size
        )
        return page_from_pb(self._call(self._stub.ListChanges, request, timeout))
