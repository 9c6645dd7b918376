"""Builds the request of every call about the timeline; both clients share it."""

import uuid
from collections.abc import Iterable
from dataclasses import asdict, replace
from datetime import UTC, datetime

from mnemon._messages import documents as convert
from mnemon._messages import timeline as timeline_convert
from mnemon._messages.documents import invalid
from mnemon._messages.fields import ids_to_pb, int32_to_pb, limit_to_pb
from mnemon._messages.memories import time_to_pb
from mnemon._messages.semantic_requests import request_id_to_pb
from mnemon._values import documents as values
from mnemon._values import timeline
from mnemon.v1 import common_pb2
from mnemon.v1 import episodic_pb2 as pb

LIMIT_DEFAULT = 50


def record(event: timeline.EpisodicEvent, *, request_id: str | None) -> pb.RecordEventRequest:
    """A new event; it always has a request_id, so repeating it is harmless."""
    return pb.RecordEventRequest(event=_timed(event), request_id=request_id_to_pb(request_id))


def event_like(given: object, *, scope: values.Scope | None) -> pb.EpisodicEvent:
    """One item of `add_many`; `scope` applies if the item has none."""
    if not isinstance(given, timeline.EpisodicEvent):
        raise invalid("event", "must be an EpisodicEvent")
    if scope is not None and given.scope == values.Scope():
        given = replace(given, **asdict(scope))
    return _timed(given)


def window(
    query: str | None,
    *,
    last_days: int | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    mode: str | None,
    view: str,
    page_token: str,
    which: timeline.EventFilters,
) -> pb.QueryWindowRequest:
    """A query of a window of time."""
    span = _range(since, until)
    if span is not None and last_days is not None:
        raise invalid("last_days", "says the window already; leave it out, or since and until")
    request = pb.QueryWindowRequest(
        range=span,
        filter=timeline_convert.event_filter_to_pb(which),
        limit=limit_to_pb(limit),
        view=convert.VIEWS_TO_PB[convert.choice("view", view, values.View)],
        page_token=convert.text("page_token", page_token),
        query=None if query is None else convert.text("query", query),
        mode=convert.mode_to_pb(mode),
    )
    if last_days is not None:
        request.last_days = int32_to_pb(last_days)
    return request


def recent(*, page_size: int, page_token: str, which: timeline.EventFilters) -> pb.ListRecentEventsRequest:
    """A page of the newest events."""
    return pb.ListRecentEventsRequest(
        filter=timeline_convert.event_filter_to_pb(which),
        page_size=int32_to_pb(page_size),
        page_token=convert.text("page_token", page_token),
    )


def summarize(
    *, since: datetime | None, until: datetime | None, which: timeline.EventFilters
) -> pb.SummarizeRangeRequest:
    """Counts of a range of time."""
    return pb.SummarizeRangeRequest(range=_range(since, until), filter=timeline_convert.event_filter_to_pb(which))


def get(event_id: str) -> pb.GetEventRequest:
    """A read of one event."""
    return pb.GetEventRequest(event_id=convert.text("event_id", event_id))


def prune(
    event_ids: Iterable[str] | None,
    *,
    before: datetime | None,
    which: timeline.EventFilters,
    allow_missing: bool,
    dry_run: bool,
    request_id: str | None,
) -> pb.PruneEventsRequest:
    """A removal for good."""
    return pb.PruneEventsRequest(
        before=None if before is None else time_to_pb("before", before),
        filter=timeline_convert.event_filter_to_pb(which),
        event_ids=ids_to_pb("event_ids", event_ids),
        allow_missing=allow_missing,
        dry_run=dry_run,
        request_id=request_id_to_pb(request_id),
    )


def compact(request_id: str | None) -> pb.CompactTimelineRequest:
    """A compaction."""
    return pb.CompactTimelineRequest(request_id=request_id_to_pb(request_id))


def new_id() -> str:
    """An id that no other event has."""
    return str(uuid.uuid4())


def _timed(event: timeline.EpisodicEvent) -> pb.EpisodicEvent:
    return timeline_convert.happened_to_pb(
        replace(event, event_time=datetime.now(UTC)) if event.event_time is None else event
    )


def _range(since: datetime | None, until: datetime | None) -> common_pb2.TimeRange | None:
    if since is None and until is None:
        return None
    return common_pb2.TimeRange(
        start_time=None if since is None else time_to_pb("since", since),
        end_time=None if until is None else time_to_pb("until", until),
    )
