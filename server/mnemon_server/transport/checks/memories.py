"""Checks of the memory service's requests.

What a value may be, the service checks itself (`services/memories/checks.py`). Where a message is no value yet, the
service would not get to see the rest, and only then is it asked here: a request that is fine is checked once. Requests
to get, reinforce and undelete are values as they come.
"""

from collections.abc import Callable, Iterable, Iterator

from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import memory_pb2 as pb

from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.domain.memories import MemoryQuery
from mnemon_server.domain.validation import doc_id_violations, refuse, request_id_violations, revision_violations
from mnemon_server.services.memories import checks as memory_checks
from mnemon_server.services.memories import field_masks as memory_masks
from mnemon_server.services.memories import filters as memory_filters
from mnemon_server.transport.checks.filters import shape_violations
from mnemon_server.transport.convert import memories as convert
from mnemon_server.transport.convert.shared.reading import (
    others,
    page_size_violations,
    time_violations,
    unknown,
    unset_values,
)
from mnemon_server.wire.values import ACK_LEVELS, SEARCH_MODES

Rest = Callable[[], Iterable[FieldViolation]]


def check_create_memory(request: pb.CreateMemoryRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    if not request.HasField("memory"):
        raise InvalidArgumentError.of("memory", "is required")
    found = [*_memory_violations(request.memory), *unknown("ack", request.ack, ACK_LEVELS)]
    _refuse(found, lambda: memory_checks.create_violations(convert.create_from_pb(request), len(request.embedding)))


def check_update_memory(request: pb.UpdateMemoryRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong; of the memory, only what the mask names counts."""
    if not request.HasField("memory"):
        raise InvalidArgumentError.of("memory", "is required")
    found = [
        violation
        for violation in _memory_violations(request.memory)
        if any(memory_masks.covers(path, violation.field.removeprefix("memory.")) for path in request.update_mask.paths)
    ]
    found += unknown("ack", request.ack, ACK_LEVELS)
    _refuse(found, lambda: memory_checks.update_violations(convert.update_from_pb(request), len(request.embedding)))


def check_delete_memory(request: pb.DeleteMemoryRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    _refuse([*unknown("ack", request.ack, ACK_LEVELS)], lambda: _deletion_violations(request))


def check_search_memories(request: pb.SearchMemoriesRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    found = [*_filter_violations(request.filter), *unknown("mode", request.mode, SEARCH_MODES)]
    _refuse(found, lambda: memory_checks.query_violations(_query(request), len(request.vector)))


def check_list_memories(request: pb.ListMemoriesRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    _refuse_filtered(request.filter, page_size_violations(request.page_size))


def check_purge_memories(request: pb.PurgeMemoriesRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    found = [*_filter_violations(request.filter)]
    _refuse(found, lambda: [*_other_filter_violations(request.filter), *request_id_violations(request.request_id)])


def check_count_memories(request: pb.CountMemoriesRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    _refuse_filtered(request.filter, ())


def check_forecast_memories(request: pb.ForecastMemoriesRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    _refuse_filtered(request.filter, _forecast_violations(request))


def _forecast_violations(request: pb.ForecastMemoriesRequest) -> Iterator[FieldViolation]:
    if request.HasField("by_time"):
        yield from time_violations("by_time", request.by_time)
    else:
        yield FieldViolation("by_time", "is required")
    # Also wrong where it is not a number.
    if request.HasField("min_confidence") and not 0 < request.min_confidence <= 1:
        yield FieldViolation("min_confidence", "must be more than 0 and at most 1")
    yield from page_size_violations(request.page_size)


def _memory_violations(message: pb.Memory) -> Iterator[FieldViolation]:
    yield from unset_values("memory.metadata", message.metadata)
    yield from unknown("memory.decay_policy", message.decay_policy, convert.DECAY_POLICIES)


def _deletion_violations(request: pb.DeleteMemoryRequest) -> Iterator[FieldViolation]:
    yield from doc_id_violations(request.memory_id, "memory_id")
    yield from request_id_violations(request.request_id)
    yield from revision_violations(convert.expected_revision(request))


def _filter_violations(message: pb.MemoryFilter) -> Iterator[FieldViolation]:
    for field, time in _times(message):
        yield from time_violations(f"filter.{field}", time)
    if message.HasField("filter"):
        yield from shape_violations("filter.filter", message.filter)


def _times(message: pb.MemoryFilter) -> Iterator[tuple[str, Timestamp]]:
    if message.HasField("created_from"):
        yield "created_from", message.created_from
    if message.HasField("created_to"):
        yield "created_to", message.created_to
    if message.HasField("reinforced_from"):
        yield "reinforced_from", message.reinforced_from
    if message.HasField("reinforced_to"):
        yield "reinforced_to", message.reinforced_to


def _refuse(found: list[FieldViolation], rest: Rest) -> None:
    if found:
        refuse(others(found, rest()))


def _refuse_filtered(message: pb.MemoryFilter, further: Iterable[FieldViolation]) -> None:
    _refuse([*_filter_violations(message), *further], lambda: _other_filter_violations(message))


def _other_filter_violations(message: pb.MemoryFilter) -> Iterable[FieldViolation]:
    return memory_filters.filter_violations(convert.filter_from_pb(_readable(message)))


def _query(request: pb.SearchMemoriesRequest) -> MemoryQuery:
    """The search as far as it is one."""
    readable = pb.SearchMemoriesRequest()
    readable.CopyFrom(request)
    readable.ClearField("mode")
    readable.filter.CopyFrom(_readable(request.filter))
    return convert.query_from_pb(readable)


def _readable(message: pb.MemoryFilter) -> pb.MemoryFilter:
    """The filter without the fields that are none."""
    readable = pb.MemoryFilter()
    readable.CopyFrom(message)
    for violation in _filter_violations(message):
        readable.ClearField(violation.field.split(".")[1])  # type: ignore[arg-type]
    return readable
