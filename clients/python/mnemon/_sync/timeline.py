# Generated from _async/timeline.py by `make generate`: change that file instead.
"""The blocking client's object for the timeline."""

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Unpack

from mnemon._bulk import ANSWER_TIMEOUT_S
from mnemon._bulk_methods import RecordEvents
from mnemon._local_time import Moment, days_in
from mnemon._messages.calls import range_to_pb, window_to_pb
from mnemon._messages.convert import moment
from mnemon._messages.filters import keywords_to_pb
from mnemon._messages.records import event_to_pb
from mnemon._messages.translation import read, request
from mnemon._sync.bulk import send_all
from mnemon._sync.service import Service, Stub
from mnemon._values import documents as values
from mnemon._values import timeline
from mnemon.v1 import episodic_pb2 as pb
from mnemon.v1.episodic_pb2_grpc import EpisodicMemoryServiceStub

_LIMIT_DEFAULT = 50


class Timeline(Service):
    """Events, as `client.timeline`, ordered by when they happened."""

    _stub = Stub(EpisodicMemoryServiceStub)

    def add(
        self,
        event_type: str,
        content: str = "",
        *,
        user: str,
        event_time: Moment | None = None,
        household: str = "",
        persona: str = "",
        agent: str = "",
        project: str = "",
        origin: str = "",
        origin_name: str = "",
        context: str = "",
        importance: float | None = None,
        source: str = "",
        conversation: str = "",
        payload: str = "",
        metadata: Mapping[str, values.MetadataValue] | None = None,
        event_id: str = "",
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> timeline.EventReceipt:
        """Records an event that happened at `event_time`; None means now. Events may be recorded late.

        The time is a datetime, a date, a timedelta back from now, or a text such as "2027-01-31T09:00" or "2 weeks".
        `event_type` is "conversation", "task", "reminder", "emotion", "preference", "custom" or anything else.
        `importance` is 0 to 1. An event is a duplicate if the user has an event with its id, or if user, household,
        persona, type, time and content match a known event. A duplicate is not written; `duplicate_of` in the
        receipt is the stored event. If an event of another user has the id, raises EventExistsError. The same
        `request_id` with the same event, including its time, gets the same receipt for 24 hours.
        """
        event = timeline.EpisodicEvent(
            event_type=event_type,
            content=content,
            event_id=event_id,
            user=user,
            household=household,
            persona=persona,
            agent=agent,
            project=project,
            origin=origin,
            origin_name=origin_name,
            event_time=datetime.now(UTC) if event_time is None else moment("event_time", event_time),
            context=context,
            importance=importance,
            source=source,
            conversation=conversation,
            payload=payload,
            metadata=metadata or {},
        )
        asked = request(pb.RecordEventRequest, event=event_to_pb(event), request_id=request_id)
        response = self._call(self._stub.RecordEvent, asked, timeout)
        known = read(timeline.EpisodicEvent, response.duplicate_of) if response.HasField("duplicate_of") else None
        return read(timeline.EventReceipt, response.receipt, duplicate_of=known)

    def add_many(
        self,
        items: Iterable[timeline.EpisodicEvent],
        *,
        scope: values.Scope | None = None,
        timeout: float | None = ANSWER_TIMEOUT_S,
    ) -> Generator[timeline.RecordResult, None, None]:
        """Records many events, and yields one result for each, in order. Nothing is sent until you iterate.

        An event without an id gets one before it is sent. The client reads items lazily and sends them in batches, a
        few ahead of the results. An invalid item fails alone. If the connection breaks, the client resumes where it
        broke, and each item is stored once. It raises an error only if the server stays unavailable or does not answer
        a batch within `timeout` seconds. `scope` applies to events without a scope.
        """
        method = RecordEvents(scope=scope)
        return send_all(self._connection.target, lambda: self._stub.BulkRecordEvents, method, items, timeout)

    def search(
        self,
        query: str | None = None,
        *,
        last_days: int | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        limit: int = _LIMIT_DEFAULT,
        top_k: int | None = None,
        mode: str | None = None,
        view: str = values.View.STANDARD,
        page_token: str = "",
        timeout: float | None = None,
        **which: Unpack[timeline.EventFilters],
    ) -> timeline.WindowAnswer:
        """Returns the newest events of a window of time; with a `query`, those that match its text best, best first.

        The window is the `last_days`, or from `since` to `until`, both inclusive and both optional: a datetime, a date,
        a timedelta back from now, or a text such as "2027-01-31" or "2 weeks". The default is the last 30 days.
        `limit`, also `top_k`, is 1 to 1,000. An answer also ends at 3 MiB, or after `where` has read 100,000 events. It
        may then hold fewer events, even zero, and a `next_page_token`. A query with a text has one page, and a blank
        text finds nothing. `mode` is "hybrid", which is the default, "vector" or "keyword"; if the server computes no
        vectors of events, they are found by word. The `view` "ids" returns only ids. `which` are the keyword arguments
        of `EventFilters`, such as `user="ada"`.
        """
        asked = request(
            pb.QueryWindowRequest,
            query=query,
            **window_to_pb(last_days, since, until),
            limit=limit if top_k is None else top_k,
            mode=mode,
            view=view,
            page_token=page_token,
            filter=_filter(which),
        )
        return read(timeline.WindowAnswer, self._call(self._stub.QueryWindow, asked, timeout))

    def list(
        self,
        *,
        last_days: int | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        page_size: int = 0,
        timeout: float | None = None,
        **which: Unpack[timeline.EventFilters],
    ) -> Iterator[timeline.EpisodicEvent]:
        """Yields all events that match, newest first: of all times, or of the window that is given as in `search`.

        `timeout` applies to each page.
        """
        return self._items(
            self.list_page, last_days=last_days, since=since, until=until, page_size=page_size, timeout=timeout, **which
        )

    def list_page(
        self,
        *,
        last_days: int | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        page_size: int = 0,
        page_token: str = "",
        timeout: float | None = None,
        **which: Unpack[timeline.EventFilters],
    ) -> timeline.TimelinePage:
        """Returns one page of the newest events: 50 if `page_size` is 0, at most 1,000. See `search` for its limits.

        The other arguments must be those of the previous page. Raises InvalidPageTokenError if they differ.
        """
        if last_days is None and since is None and until is None:
            kind = pb.ListRecentEventsRequest
            asked = request(kind, filter=_filter(which), page_size=page_size, page_token=page_token)
            return read(timeline.TimelinePage, self._call(self._stub.ListRecentEvents, asked, timeout))
        answer = self.search(
            last_days=last_days,
            since=since,
            until=until,
            limit=page_size or _LIMIT_DEFAULT,
            page_token=page_token,
            timeout=timeout,
            **which,
        )
        return timeline.TimelinePage(answer.events, answer.next_page_token)

    def summarize(
        self,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        time_zone: str = "",
        timeout: float | None = None,
        **which: Unpack[timeline.EventFilters],
    ) -> timeline.EventSummary:
        """Counts the events from `since` to `until`, both inclusive and both optional, by type and by day.

        `time_zone`, such as "Europe/Berlin", is that of the days counted, by default UTC, and of those given, by
        default the machine's.
        """
        with days_in(time_zone):
            span = range_to_pb(since, until)
        asked = request(pb.SummarizeRangeRequest, range=span, filter=_filter(which), time_zone=time_zone)
        return read(timeline.EventSummary, self._call(self._stub.SummarizeRange, asked, timeout))

    def get(self, event_id: str, *, timeout: float | None = None) -> timeline.EpisodicEvent:
        """Returns one event. Raises EventNotFoundError if it does not exist."""
        response = self._call(self._stub.GetEvent, request(pb.GetEventRequest, event_id=event_id), timeout)
        return read(timeline.EpisodicEvent, response.event)

    def delete(
        self,
        event_id: str,
        *,
        allow_missing: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> timeline.PruneReceipt:
        """Permanently removes one event, as `delete_many` does.

        Raises EventNotFoundError if it does not exist; with `allow_missing`, the receipt then names no event.
        """
        return self.delete_many((event_id,), allow_missing=allow_missing, request_id=request_id, timeout=timeout)

    def delete_many(
        self,
        event_ids: Iterable[str] | None = None,
        *,
        before: Moment | None = None,
        allow_missing: bool = False,
        dry_run: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
        **which: Unpack[timeline.EventFilters],
    ) -> timeline.PruneReceipt:
        """Permanently removes events: those with these ids, or all that happened `before` a time and match.

        No answer contains them any more. The server begins at once to rewrite their segments, which removes them from
        the disk, and to remove the statements that the bridge made from them. At most 1,000 ids. If an id does not
        exist, it raises EventNotFoundError and removes nothing, unless `allow_missing`. With `dry_run`, it only counts
        and names them. Raises InvalidArgumentError without ids, time and filters, or with ids and one of the others.
        """
        asked = request(
            pb.PruneEventsRequest,
            event_ids=event_ids,
            before=before,
            filter=_filter(which),
            allow_missing=allow_missing,
            dry_run=dry_run,
            request_id=request_id,
        )
        return read(timeline.PruneReceipt, self._call(self._stub.PruneEvents, asked, timeout))

    def compact(
        self, *, request_id: str | None = None, timeout: float | None = None
    ) -> Iterator[timeline.CompactionProgress]:
        """Seals, rewrites and joins segments, returns disk space, and yields the progress.

        Nothing is sent until you iterate. The server answers all calls meanwhile. There is no deadline unless `timeout`
        sets one for the whole compaction. If you stop reading, the compaction continues. Calling it again with the same
        `request_id` follows it, or returns its end.
        """
        asked = request(pb.CompactTimelineRequest, request_id=request_id)
        with closing(self._stream(self._stub.CompactTimeline, asked, timeout)) as messages:
            for progress in messages:
                yield read(timeline.CompactionProgress, progress)

    def status(self, *, timeout: float | None = None) -> timeline.TimelineStatus:
        """Returns the state of the timeline, and which events were lost to damage."""
        answer = self._call(self._stub.GetTimelineStatus, pb.GetTimelineStatusRequest(), timeout)
        return read(timeline.TimelineStatus, answer)


def _filter(which: timeline.EventFilters) -> pb.EpisodicEventFilter | None:
    return keywords_to_pb(pb.EpisodicEventFilter, which, timeline.EventFilters)
