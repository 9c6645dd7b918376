"""Checks of the event service's requests."""

from collections.abc import Iterator

from google.protobuf.duration_pb2 import Duration
from mnemon.v1 import events_pb2 as pb

from mnemon_server.domain.changes import RECORD_IDS_MAX
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.feed import HEARTBEAT_MAX_S, HEARTBEAT_MIN_S, TYPES_MAX
from mnemon_server.domain.validation import refuse, scope_violations
from mnemon_server.transport.convert.changes import EVENT_TYPES, EVENT_VIEWS
from mnemon_server.transport.convert.shared.reading import page_size_violations, time_violations, unknown
from mnemon_server.wire.values import scope_from_pb


def check_watch_events(request: pb.WatchEventsRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    refuse(_watch_violations(request))


def check_list_events(request: pb.ListEventsRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    refuse([*_query_violations(request), *page_size_violations(request.page_size)])


def _watch_violations(request: pb.WatchEventsRequest) -> Iterator[FieldViolation]:
    if request.WhichOneof("start") == "earliest" and not request.earliest:
        yield FieldViolation("earliest", "must be true; to start now, leave it out")
    yield from _query_violations(request)
    if request.HasField("heartbeat_interval"):
        yield from _heartbeat_violations(request.heartbeat_interval)
    if request.max_batch_size < 0:
        yield FieldViolation("max_batch_size", "must not be negative; 0 is the default")


def _query_violations(request: pb.WatchEventsRequest | pb.ListEventsRequest) -> Iterator[FieldViolation]:
    if request.HasField("start_time"):
        yield from time_violations("start_time", request.start_time)
    if request.HasField("filter"):
        yield from _filter_violations(request.filter)
    yield from unknown("view", request.view, EVENT_VIEWS)


def _filter_violations(message: pb.EventFilter) -> Iterator[FieldViolation]:
    if len(message.types) > TYPES_MAX:
        yield FieldViolation("filter.types", f"must be at most {TYPES_MAX}")
    else:
        for index, number in enumerate(message.types):
            yield from unknown(f"filter.types[{index}]", number, EVENT_TYPES)
    yield from scope_violations(scope_from_pb(message.scope), "filter.scope")
    if len(message.record_ids) > RECORD_IDS_MAX:
        yield FieldViolation("filter.record_ids", f"must be at most {RECORD_IDS_MAX}")


def _heartbeat_violations(message: Duration) -> Iterator[FieldViolation]:
    if not HEARTBEAT_MIN_S <= message.seconds + message.nanos / 1e9 <= HEARTBEAT_MAX_S:
        yield FieldViolation(
            "heartbeat_interval", f"must be {HEARTBEAT_MIN_S:g} s to {HEARTBEAT_MAX_S:g} s; unset is the default"
        )
