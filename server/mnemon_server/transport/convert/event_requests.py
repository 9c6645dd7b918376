"""Requests to the episodic memory service as values.

Each function raises InvalidArgumentError if a field cannot be read as a value, and then with everything that is wrong;
see `Reader`. Requests for one event, for the status and for a compaction need no conversion.
"""

from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from mnemon.v1 import common_pb2
from mnemon.v1 import episodic_pb2 as pb

from mnemon_server.domain.clock import EPOCH
from mnemon_server.domain.events import LIMIT_DEFAULT, Event, EventSelection, RecordEvent, WindowQuery
from mnemon_server.domain.records import Scope, View
from mnemon_server.services.events.checks import (
    pruning_violations,
    record_violations,
    selection_violations,
    window_violations,
)
from mnemon_server.transport.convert.shared.filters import read_filter
from mnemon_server.transport.convert.shared.reader import Reader, require
from mnemon_server.wire.values import SEARCH_MODES, VIEWS, scope_of, time_from_pb

_EVERYTHING = EventSelection()

Filtered = pb.QueryWindowRequest | pb.ListRecentEventsRequest | pb.SummarizeRangeRequest | pb.PruneEventsRequest
Span = tuple[datetime | None, datetime | None]
_ANY_TIME: Span = None, None


class Page(NamedTuple):
    """Which events a page is of, and how many it has at most."""

    where: EventSelection
    limit: int


class PruneTarget(NamedTuple):
    """Which events to remove if they are not named by their ids: those before a time that match."""

    before: datetime | None
    where: EventSelection


def read_record(request: pb.RecordEventRequest) -> RecordEvent:
    """The event to store. This and `read_event` run for every event that is stored."""
    reader = Reader()
    record = RecordEvent(read_event(reader, "event", request.event), request.request_id)
    if reader.violations:
        require(request, "event")
        reader.finish(record_violations(record))
    return record


def read_event(reader: Reader, field: str, message: pb.EpisodicEvent) -> Event:
    """The event as a caller gives it; what only the server sets is left out."""
    metadata = message.metadata
    event_time = time_from_pb(message.event_time) if message.HasField("event_time") else None
    if event_time is None:
        _note_event_time(reader, f"{field}.event_time", message)
        event_time = EPOCH
    return Event(
        message.event_id,
        message.event_type,
        event_time,
        message.content,
        message.context,
        _scope(message.scope.SerializeToString()),
        message.importance if message.HasField("importance") else None,
        message.source,
        reader.metadata(f"{field}.metadata", metadata) if metadata else {},
    )


def read_window(request: pb.QueryWindowRequest) -> tuple[WindowQuery, View]:
    """The query of a window, and the view of its events."""
    reader = Reader()
    window = request.WhichOneof("window")
    query = WindowQuery(
        where=_selection(reader, request, reader.span("range", request.range) if window == "range" else _ANY_TIME),
        last_days=request.last_days if window == "last_days" else None,
        has_range=window == "range",
        limit=request.limit or LIMIT_DEFAULT,
        text=request.query if request.HasField("query") else None,
        mode=reader.enum("mode", request.mode, SEARCH_MODES),
    )
    view = reader.enum("view", request.view, VIEWS)
    reader.finish(window_violations(query))
    return query, view


def read_recent(request: pb.ListRecentEventsRequest) -> Page:
    """The page."""
    reader = Reader()
    page = Page(_selection(reader, request), reader.page_size(request.page_size, LIMIT_DEFAULT))
    reader.finish(selection_violations(page.where))
    return page


def read_summary(request: pb.SummarizeRangeRequest) -> EventSelection:
    """The request for a summary."""
    reader = Reader()
    span = reader.span("range", request.range) if request.HasField("range") else _ANY_TIME
    where = _selection(reader, request, span)
    reader.finish(selection_violations(where))
    return where


def read_pruning(request: pb.PruneEventsRequest) -> PruneTarget:
    """Which events are to be removed, if they are not named by their ids."""
    reader = Reader()
    # A time that is not one still limits what goes: without it, the rest would mean more events.
    before = (reader.time("before", request, "before") or EPOCH) if request.HasField("before") else None
    target = PruneTarget(before, _selection(reader, request))
    reader.finish(pruning_violations(before, target.where, request.event_ids, request.request_id))
    return target


@lru_cache(maxsize=4_096)
def _scope(message: bytes) -> Scope:
    """The scope in a serialised message. Events of a stream share few, and its bytes take less time than its texts."""
    scope = common_pb2.Scope.FromString(message)
    return Scope(scope.user, scope.household, scope.persona, scope.agent, scope.project)


def _note_event_time(reader: Reader, field: str, message: pb.EpisodicEvent) -> None:
    if message.HasField("event_time"):
        reader.time(field, message, "event_time")
    else:
        reader.note(field, "must be set: it says when the event happened")


def _selection(reader: Reader, request: Filtered, span: Span = _ANY_TIME) -> EventSelection:
    """The filter of events, within a span of time."""
    if span == _ANY_TIME and not request.HasField("filter"):
        return _EVERYTHING
    message: pb.EpisodicEventFilter = request.filter
    start, end = span
    return EventSelection(
        scope=scope_of(message),
        event_types=frozenset(message.event_types),
        min_importance=message.min_importance if message.HasField("min_importance") else None,
        start=start,
        end=end,
        expression=read_filter(reader, "filter.filter", message.filter) if message.HasField("filter") else None,
    )
