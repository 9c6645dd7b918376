"""Checks of the episodic memory service's requests.

What a value may be, the service checks itself. Where a message is no value yet, the service would not get to see the
rest, and only then is it asked here: a request that is fine is checked once.
"""

from collections.abc import Iterator
from typing import Any

from mnemon.v1 import episodic_pb2 as pb

from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.domain.validation import refuse
from mnemon_server.transport.checks.common import (
    page_size_violations,
    time_violations,
    unknown,
    unset_values,
)
from mnemon_server.transport.checks.filters import shape_violations
from mnemon_server.transport.convert import episodic as convert
from mnemon_server.transport.convert.records import SEARCH_MODES


def check_record_event(request: pb.RecordEventRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    if not request.HasField("event"):
        raise InvalidArgumentError.of("event", "is required")
    refuse(_event_violations(request.event))


def event_refusal(message: pb.EpisodicEvent) -> InvalidArgumentError:
    """Everything that is wrong with an event of a stream that is no value."""
    return InvalidArgumentError([*_event_violations(message)])


def check_query_window(request: pb.QueryWindowRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    found = [
        *_range_violations(request),
        *_filter_violations(request),
        *unknown("mode", request.mode, SEARCH_MODES),
    ]
    if request.page_token and request.HasField("query"):
        found.append(FieldViolation("page_token", "must be empty where there is a query: its answer has one page"))
    refuse(found)


def check_list_recent_events(request: pb.ListRecentEventsRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    refuse([*_filter_violations(request), *page_size_violations(request.page_size)])


def check_summarize_range(request: pb.SummarizeRangeRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    refuse([*_range_violations(request), *_filter_violations(request)])


def check_prune_events(request: pb.PruneEventsRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    found = [*_filter_violations(request)]
    if request.HasField("before"):
        found += time_violations("before", request.before)
    refuse(found)


def _event_violations(message: pb.EpisodicEvent) -> Iterator[FieldViolation]:
    yield from unset_values("event.metadata", message.metadata)
    if message.HasField("event_time"):
        yield from time_violations("event.event_time", message.event_time)
    else:
        yield FieldViolation("event.event_time", "is required")


def _range_violations(request: pb.QueryWindowRequest | pb.SummarizeRangeRequest) -> Iterator[FieldViolation]:
    if request.HasField("range"):
        if request.range.HasField("from"):
            yield from time_violations("range.from", convert.start_of(request.range))
        if request.range.HasField("to"):
            yield from time_violations("range.to", request.range.to)


def _filter_violations(request: Any) -> list[FieldViolation]:
    if request.HasField("filter") and request.filter.HasField("filter"):
        return shape_violations("filter.filter", request.filter.filter)
    return []
