# Generated from _async/timeline.py by `make generate`: change that file instead.
"""The blocking client's methods for the timeline."""

from collections.abc import Generator, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Unpack

import grpc

from mnemon._bulk import ANSWER_TIMEOUT_S
from mnemon._bulk_methods import RecordEvents
from mnemon._connection import Connection
from mnemon._messages import timeline as timeline_convert
from mnemon._messages import timeline_requests
from mnemon._status import error_from_call
from mnemon._sync.bulk import send_all
from mnemon._values import documents as values
from mnemon._values import timeline
from mnemon.v1 import episodic_pb2 as pb
from mnemon.v1.episodic_pb2_grpc import EpisodicMemoryServiceStub


class TimelineMethods(Connection):
    """What happened, in the order of its times: recorded, found by time and by text, counted and pruned."""

    def record_event(
        self,
        event_type: str,
        content: str = "",
        *,
        user: str,
        event_time: datetime | None = None,
        household: str = "",
        persona: str = "",
        agent: str = "",
        project: str = "",
        context: str = "",
        importance: float | None = None,
        source: str = "",
        metadata: Mapping[str, values.MetadataValue] | None = None,
        event_id: str = "",
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> timeline.EventReceipt:
        """Records that something happened, at `event_time`, None for now; events may come late.

        `event_type` is "conversation", "task", "reminder", "emotion", "preference", "custom" or anything else;
        `importance` is 0 to 1. An event with a known id, or of the same user, persona, type, time and content as a
        known one, is that one: nothing is written, and the receipt has the stored one as `duplicate_of`. The same
        `request_id` with the same event, its time included, gets the same receipt for 24 hours.
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
            event_time=event_time,
            context=context,
            importance=importance,
            source=source,
            metadata=metadata or {},
        )
        request = timeline_requests.record(event, request_id=request_id)
        return timeline_convert.recorded_from_pb(self._call(self._timeline.RecordEvent, request, timeout))

    def record_events(
        self,
        items: Iterable[timeline.EpisodicEvent],
        *,
        scope: values.Scope | None = None,
        timeout: float | None = ANSWER_TIMEOUT_S,
    ) -> Generator[timeline.RecordResult, None, None]:
        """Records many events, and yields what became of each one, in order. Nothing is sent before it is iterated.

        Events are read lazily and sent in batches, some ahead of the results. A bad one fails alone. One without an id
        gets one before it is sent, so that a broken connection is taken up again where it broke, every event being
        stored once; only when the server stays away, or answers no batch within `timeout` seconds, is an error raised.
        `scope` is for events that have none.
        """
        method = RecordEvents(scope=scope)
        return send_all(self._target, lambda: self._timeline.BulkRecordEvents, method, items, timeout)

    def query_window(
        self,
        query: str | None = None,
        *,
        last_days: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        top_k: int = timeline_requests.TOP_K_DEFAULT,
        mode: str | None = None,
        view: str = values.View.STANDARD,
        page_token: str = "",
        timeout: float | None = None,
        **which: Unpack[timeline.EventFilters],
    ) -> timeline.WindowAnswer:
        """Returns the newest events of a window of time, or with a `query` those that fit its text best, best first.

        The window is the `last_days`, or from `since` to `until`, both included; an end that is left out is open.
        Without any of them it is the last 30 days. At most `top_k` events, 1 to 1,000; an answer also ends at 3 MiB, or
        after `where` had to read 100,000 events, and then may hold fewer, or none, with a `next_page_token`. A text has
        no further pages; a blank one finds nothing; `mode` says how it finds: "hybrid", "vector" or "keyword", by word
        where events have no embeddings. With the `view` "ids", of each event its id alone. `which` are the keyword
        arguments of `EventFilters`, such as `user="ada"`.
        """
        request = timeline_requests.window(
            query,
            last_days=last_days,
            since=since,
            until=until,
            top_k=top_k,
            mode=mode,
            view=view,
            page_token=page_token,
            which=which,
        )
        return timeline_convert.window_from_pb(self._call(self._timeline.QueryWindow, request, timeout))

    def window_events(
        self,
        *,
        last_days: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int = 0,
        timeout: float | None = None,
        **which: Unpack[timeline.EventFilters],
    ) -> Iterator[timeline.EpisodicEvent]:
        """Yields all events of a window of time, newest first, page after page; the window is that of `query_window`.

        `timeout` is for each page.
        """
        token = ""
        while True:
            page = self.query_window(
                last_days=last_days,
                since=since,
                until=until,
                top_k=page_size or timeline_requests.TOP_K_DEFAULT,
                page_token=token,
                timeout=timeout,
                **which,
            )
            yield from page
            if not (token := page.next_page_token):
                return

    def recent_events(
        self,
        *,
        page_size: int = 0,
        timeout: float | None = None,
        **which: Unpack[timeline.EventFilters],
    ) -> Iterator[timeline.EpisodicEvent]:
        """Yields all events that match, newest first, page after page. `timeout` is for each page."""
        token = ""
        while True:
            page = self.recent_events_page(page_size=page_size, page_token=token, timeout=timeout, **which)
            yield from page.events
            if not (token := page.next_page_token):
                return

    def recent_events_page(
        self,
        *,
        page_size: int = 0,
        page_token: str = "",
        timeout: float | None = None,
        **which: Unpack[timeline.EventFilters],
    ) -> timeline.TimelinePage:
        """Returns one page of the newest events: 50 where `page_size` is 0, at most 1,000; it ends as `query_window`'s.

        The other arguments must be those of the page before, else InvalidPageTokenError.
        """
        request = timeline_requests.recent(page_size=page_size, page_token=page_token, which=which)
        return timeline_convert.page_from_pb(self._call(self._timeline.ListRecentEvents, request, timeout))

    def summarize_events(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        timeout: float | None = None,
        **which: Unpack[timeline.EventFilters],
    ) -> timeline.EventSummary:
        """Counts the events from `since` to `until`, both included, by type and by day; without them, of all times."""
        request = timeline_requests.summarize(since=since, until=until, which=which)
        return timeline_convert.summary_from_pb(self._call(self._timeline.SummarizeRange, request, timeout))

    def get_event(self, event_id: str, *, timeout: float | None = None) -> timeline.EpisodicEvent:
        """Returns one event; EventNotFoundError if it does not exist."""
        response = self._call(self._timeline.GetEvent, timeline_requests.get(event_id), timeout)
        return timeline_convert.happened_from_pb(response.event)

    def prune_events(
        self,
        event_ids: Iterable[str] = (),
        *,
        before: datetime | None = None,
        allow_missing: bool = False,
        dry_run: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
        **which: Unpack[timeline.EventFilters],
    ) -> timeline.PruneReceipt:
        """Removes events for good: those of the ids, or all that happened `before` a time and match.

        They are gone from every answer at once, and from the disk when their segments have been rewritten, which begins
        at once; statements that the bridge made of them are taken back. At most 1,000 ids; where one is not there,
        EventNotFoundError, and nothing is removed, unless `allow_missing`. With `dry_run` they are only counted and
        named. Without ids, time and filters, or with ids and one of the others, InvalidArgumentError.
        """
        request = timeline_requests.prune(
            event_ids,
            before=before,
            which=which,
            allow_missing=allow_missing,
            dry_run=dry_run,
            request_id=request_id,
        )
        return timeline_convert.pruned_from_pb(self._call(self._timeline.PruneEvents, request, timeout))

    def compact_timeline(
        self, *, request_id: str | None = None, timeout: float | None = None
    ) -> Iterator[timeline.CompactionProgress]:
        """Seals, rewrites and joins segments, gives bytes back to the disk, and yields how far that is.

        Everything is answered meanwhile. Nothing is sent before it is iterated. There is no deadline unless `timeout`
        gives one for the whole. To stop reading does not stop the compaction; with the same `request_id`, it is
        followed again, or its end is told.
        """
        stream = self._timeline.CompactTimeline(timeline_requests.compact(request_id), timeout=timeout)
        try:
            for progress in stream:
                yield timeline_convert.progress_from_pb(progress)
        except grpc.RpcError as error:
            raise error_from_call(error, address=self.address, timeout=timeout) from error
        finally:
            stream.cancel()

    def timeline_status(self, *, timeout: float | None = None) -> timeline.TimelineStatus:
        """Says how the timeline is, and what was lost of it."""
        request = pb.GetTimelineStatusRequest()
        return timeline_convert.status_from_pb(self._call(self._timeline.GetTimelineStatus, request, timeout))

    @property
    def _timeline(self) -> EpisodicMemoryServiceStub:
        return self._stub(EpisodicMemoryServiceStub)
