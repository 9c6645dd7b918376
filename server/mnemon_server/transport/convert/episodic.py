"""Conversion of the episodic memory service's requests; its answers are in `episodic_answers.py`."""

from datetime import timedelta
from functools import lru_cache
from typing import Any

from mnemon.v1 import episodic_pb2 as pb

from mnemon_server.domain.clock import EPOCH
from mnemon_server.domain.episodic import (
    LIMIT_DEFAULT,
    EpisodicEvent,
    EventPosition,
    EventSelection,
    RecordEvent,
    WindowQuery,
)
from mnemon_server.domain.records import Scope
from mnemon_server.transport.convert.shared.filters import expression_from_pb
from mnemon_server.wire.values import (
    SEARCH_MODES,
    checked_metadata_from_pb,
    checked_time_from_pb,
    scope_from_pb,
)

_NO_SCOPE = Scope()
_EVERYTHING = EventSelection()
# Events of a stream share few scopes; finding one takes a seventh of the time that making one does.
_scope = lru_cache(maxsize=1024)(Scope)


def event_from_pb(message: pb.EpisodicEvent) -> EpisodicEvent:
    """The event as a caller gives it. This runs for every event that is stored.

    Raises:
        ValueError: it has no time, its time is none, or one of its metadata is none; `checks.episodic` says which.
    """
    scope, time, metadata = message.scope, message.event_time, message.metadata
    if not 0 <= time.nanos < 1_000_000_000 or not message.HasField("event_time"):
        raise ValueError("there is no time")
    try:
        event_time = EPOCH + timedelta(0, time.seconds, time.nanos // 1000)
    except OverflowError:
        raise ValueError("the time is none") from None
    return EpisodicEvent(
        message.event_id,
        message.event_type,
        event_time,
        message.content,
        message.context,
        _scope(scope.user, scope.household, scope.persona, scope.agent, scope.project),
        message.importance if message.HasField("importance") else None,
        message.source,
        checked_metadata_from_pb(metadata) if metadata else {},
    )


def record_from_pb(message: pb.RecordEventRequest) -> RecordEvent:
    """The request to store an event; raises as `event_from_pb`."""
    return RecordEvent(event_from_pb(message.event), message.request_id)


def window_query_from_pb(message: pb.QueryWindowRequest, after: EventPosition | None) -> WindowQuery:
    """What a window is asked for."""
    window = message.WhichOneof("window")
    return WindowQuery(
        where=selection_from_pb(message),
        last_days=message.last_days if window == "last_days" else None,
        has_range=window == "range",
        limit=message.limit or LIMIT_DEFAULT,
        after=after,
        text=message.query if message.HasField("query") else None,
        mode=SEARCH_MODES[message.mode],
    )


def selection_from_pb(request: Any) -> EventSelection:
    """Which events a request means: those of its `filter`, within its `range` where it has one."""
    times = request.range if "range" in request.DESCRIPTOR.fields_by_name and request.HasField("range") else None
    if times is None and not request.HasField("filter"):
        return _EVERYTHING
    message: pb.EpisodicEventFilter = request.filter
    return EventSelection(
        scope=scope_from_pb(message.scope) if message.HasField("scope") else _NO_SCOPE,
        event_types=frozenset(message.event_types),
        min_importance=message.min_importance if message.HasField("min_importance") else None,
        start=checked_time_from_pb(times.start_time) if times is not None and times.HasField("start_time") else None,
        end=checked_time_from_pb(times.end_time) if times is not None and times.HasField("end_time") else None,
        expression=expression_from_pb(message.filter) if message.HasField("filter") else None,
    )
