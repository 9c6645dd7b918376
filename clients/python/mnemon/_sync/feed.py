# Generated from _async/feed.py by `make generate`: change that file instead.
"""The blocking client's methods for changes."""

from collections.abc import Iterable, Iterator

from mnemon._connection import Connection
from mnemon._messages import feed as change_convert
from mnemon._messages.feed import Since
from mnemon._sync.watch import Watch
from mnemon._values import documents as values
from mnemon._values.feed import EARLIEST, NOW, Change, ChangePage
from mnemon.v1.changes_pb2_grpc import ChangeServiceStub


class ChangeMethods(Connection):
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
    ) -> Watch:
        """Watches changes as they are committed: an iterator that resumes by itself, each one once.

        `since` is "now", "earliest", a cursor, or a time with its zone; the other arguments say which changes: of these
        `types` (see ChangeType), about records of this `scope`, with these `ids`. With `full`, changes carry the record
        as it is then. `heartbeat` is the longest silence of the server in seconds, 5 to 60; it is given up after two
        and a half of them. At most `batch_size` changes come in a message: 500 where it is 0, at most 1,000.
        """
        request = change_convert.watch_request(
            since, types=types, scope=scope, ids=ids, full=full, heartbeat=heartbeat, batch_size=batch_size
        )
        self._open_channel()
        watch = Watch(self._target, request)
        self._watches.add(watch)
        return watch

    def changes(
        self,
        since: Since = EARLIEST,
        *,
        types: Iterable[str] = (),
        scope: values.Scope | None = None,
        ids: Iterable[str] = (),
        full: bool = False,
        page_size: int = 0,
        timeout: float | None = None,
    ) -> Iterator[Change]:
        """Yields the changes that are in the log, in order, page after page; the arguments are those of `watch`.

        `timeout` is for each page.
        """
        kinds, record_ids = list(types), list(ids)
        caught_up = False
        while not caught_up:
            page = self.changes_page(
                since, types=kinds, scope=scope, ids=record_ids, full=full, page_size=page_size, timeout=timeout
            )
            yield from page.changes
            since, caught_up = page.cursor, page.caught_up

    def changes_page(
        self,
        since: Since = EARLIEST,
        *,
        types: Iterable[str] = (),
        scope: values.Scope | None = None,
        ids: Iterable[str] = (),
        full: bool = False,
        page_size: int = 0,
        timeout: float | None = None,
    ) -> ChangePage:
        """Returns one page of the log: 100 changes where `page_size` is 0, at most 1,000.

        Its cursor is for the next page, and for `watch`. A page may be empty though there is more: `caught_up` tells.
        """
        request = change_convert.list_request(since, types=types, scope=scope, ids=ids, full=full, page_size=page_size)
        stub = self._stub(ChangeServiceStub)
        return change_convert.page_from_pb(self._call(stub.ListChanges, request, timeout))
