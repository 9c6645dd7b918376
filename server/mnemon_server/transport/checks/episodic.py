"""Checks of the episodic memory service's requests.

What a value may be, the service checks itself. Where a message is no value yet, the service would not get to see the
rest, and only then is it asked here: a request that is fine is checked once. A request for one event is a value as it
comes.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import common_pb2
from mnemon.v1 import episodic_pb2 as pb

from mnemon_server.domain.episodic import RecordEvent
from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.domain.validation import refuse
from mnemon_server.services.timeline import checks as episodic_checks
from mnemon_server.transport.checks.filters import shape_violations
from mnemon_server.transport.convert import episodic as convert
from mnemon_server.transport.convert.shared.reading import (
    others,
    page_size_violations,
    time_violations,
    unknown,
    unset_values,
)
from mnemon_server.wire.values import SEARCH_MODES, VIEWS, checked_time_from_pb, value_from_pb

Rest = Callable[[], Iterable[FieldViolation]]
_SOME_TIME = Timestamp()
_SOME_FILTER = common_pb2.Filter(
    condition=common_pb2.Condition(
        field="user",
        comparator=common_pb2.COMPARATOR_EXISTS,
        values=[common_pb2.MetadataValue(bool_value=True)],
    )
)


def checked_record(request: pb.RecordEventRequest) -> RecordEvent:
    """The request as a value; raises InvalidArgumentError with everything that is wrong.

    Nearly all are fine, and there are many: what is wrong is only looked for where there is no value.
    """
    try:
        return convert.record_from_pb(request)
    except ValueError:
        if not request.HasField("event"):
            raise InvalidArgumentError.of("event", "is required") from None
        found = [*_event_violations(request.event)]
        raise InvalidArgumentError(others(found, _record_violations(request))) from None


def check_query_window(request: pb.QueryWindowRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    found = [
        *_times_violations(request),
        *_filter_violations(request),
        *unknown("mode", request.mode, SEARCH_MODES),
        *unknown("view", request.view, VIEWS),
    ]
    _refuse(found, lambda: _window_violations(request))


def check_list_recent_events(request: pb.ListRecentEventsRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    found = [*_filter_violations(request), *page_size_violations(request.page_size)]
    _refuse(found, lambda: _selection_violations(request))


def check_summarize_range(request: pb.SummarizeRangeRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    found = [*_times_violations(request), *_filter_violations(request)]
    _refuse(found, lambda: _selection_violations(request))


def check_prune_events(request: pb.PruneEventsRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    found = [*_filter_violations(request)]
    if request.HasField("before"):
        found += time_violations("before", request.before)
    _refuse(found, lambda: _pruning_violations(request))


def _refuse(found: list[FieldViolation], rest: Rest) -> None:
    if found:
        refuse(others(found, rest()))


# What is no value


def _event_violations(message: pb.EpisodicEvent) -> Iterator[FieldViolation]:
    if message.HasField("event_time"):
        yield from time_violations("event.event_time", message.event_time)
    else:
        yield FieldViolation("event.event_time", "must say when it happened")
    yield from unset_values("event.metadata", message.metadata)


def _times_violations(request: pb.QueryWindowRequest | pb.SummarizeRangeRequest) -> Iterator[FieldViolation]:
    if request.HasField("range"):
        if request.range.HasField("start_time"):
            yield from time_violations("range.start_time", request.range.start_time)
        if request.range.HasField("end_time"):
            yield from time_violations("range.end_time", request.range.end_time)


def _filter_violations(request: Any) -> list[FieldViolation]:
    if request.HasField("filter") and request.filter.HasField("filter"):
        return shape_violations("filter.filter", request.filter.filter)
    return []


# The rest, of the request as far as it is one


def _record_violations(request: pb.RecordEventRequest) -> Iterable[FieldViolation]:
    event = request.event
    event.event_time.CopyFrom(_SOME_TIME)
    for key in [key for key, value in event.metadata.items() if value_from_pb(value) is None]:
        del event.metadata[key]
    return episodic_checks.record_violations(convert.record_from_pb(request))


def _window_violations(request: pb.QueryWindowRequest) -> Iterable[FieldViolation]:
    readable = _readable(request)
    if readable.mode not in SEARCH_MODES:
        readable.ClearField("mode")
    return episodic_checks.window_violations(convert.window_query_from_pb(readable, None))


def _selection_violations(request: pb.ListRecentEventsRequest | pb.SummarizeRangeRequest) -> Iterable[FieldViolation]:
    return episodic_checks.selection_violations(convert.selection_from_pb(_readable(request)))


def _pruning_violations(request: pb.PruneEventsRequest) -> Iterable[FieldViolation]:
    readable = _readable(request)
    before = readable.before if readable.HasField("before") else None
    if before is not None and [*time_violations("before", before)]:
        before = _SOME_TIME
    return episodic_checks.pruning_violations(
        None if before is None else checked_time_from_pb(before),
        convert.selection_from_pb(readable),
        readable.event_ids,
        readable.request_id,
    )


def _readable(request: Any) -> Any:
    """The request, now with something in the place of times and filters that are none: nothing would mean all."""
    if _filter_violations(request):
        request.filter.filter.CopyFrom(_SOME_FILTER)
    if isinstance(request, pb.QueryWindowRequest | pb.SummarizeRangeRequest):
        for violation in list(_times_violations(request)):
            request.range.ClearField(violation.field.removeprefix("range."))  # type: ignore[arg-type]
    return request
