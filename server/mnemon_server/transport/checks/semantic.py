"""Checks of the semantic memory service's requests.

What a value may be, the service checks itself. Where a message is no value yet, the service would not get to see the
rest, and only then is it asked here: a request that is fine is checked once. Requests for one statement are values as
they come.
"""

from collections.abc import Callable, Iterable, Iterator

from mnemon.v1 import semantic_pb2 as pb

from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.domain.semantic import SemanticFilter, SimilarQuery
from mnemon_server.domain.validation import refuse
from mnemon_server.services.semantic import checks as semantic_checks
from mnemon_server.services.semantic.filters import filter_violations
from mnemon_server.transport.checks.filters import shape_violations
from mnemon_server.transport.convert import semantic as convert
from mnemon_server.transport.convert.shared.reading import (
    others,
    page_size_violations,
    time_violations,
    unknown,
    unset_values,
)

Rest = Callable[[], Iterable[FieldViolation]]


def check_save_semantic_memory(request: pb.SaveSemanticMemoryRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    if not request.HasField("memory"):
        raise InvalidArgumentError.of("memory", "is required")
    found = [
        *memory_violations(request.memory, "memory"),
        *unknown("conflict_policy", request.conflict_policy, convert.CONFLICT_POLICIES),
    ]
    _refuse(found, lambda: semantic_checks.save_violations(convert.save_from_pb(request), len(request.embedding)))


def check_search_similar(request: pb.SearchSimilarRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    found = [*_filter_violations(request.filter)]
    _refuse(found, lambda: semantic_checks.query_violations(_query(request), len(request.vector)))


def check_list_semantic_memories(request: pb.ListSemanticMemoriesRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    found = [*_filter_violations(request.filter), *page_size_violations(request.page_size)]
    _refuse(found, lambda: filter_violations(_readable_filter(request.filter)))


def check_delete_semantic_memories(request: pb.DeleteSemanticMemoriesRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    found = [*_filter_violations(request.filter)]
    _refuse(found, lambda: _deletion_violations(request))


def memory_violations(message: pb.SemanticMemory, field: str) -> Iterator[FieldViolation]:
    """Why a statement that is given is no value."""
    yield from unset_values(f"{field}.metadata", message.metadata)
    if message.HasField("create_time"):
        yield from time_violations(f"{field}.create_time", message.create_time)


def _filter_violations(message: pb.SemanticMemoryFilter) -> Iterator[FieldViolation]:
    if message.HasField("created_from"):
        yield from time_violations("filter.created_from", message.created_from)
    if message.HasField("created_to"):
        yield from time_violations("filter.created_to", message.created_to)
    if message.HasField("filter"):
        yield from shape_violations("filter.filter", message.filter)


def _refuse(found: list[FieldViolation], rest: Rest) -> None:
    if found:
        refuse(others(found, rest()))


def _deletion_violations(request: pb.DeleteSemanticMemoriesRequest) -> Iterable[FieldViolation]:
    where = _readable_filter(request.filter)
    return semantic_checks.deletion_violations(request.memory_ids, where, request.request_id)


def _query(request: pb.SearchSimilarRequest) -> SimilarQuery:
    """The search as far as it is one."""
    readable = pb.SearchSimilarRequest()
    readable.CopyFrom(request)
    readable.filter.CopyFrom(_readable(request.filter))
    return convert.query_from_pb(readable)


def _readable_filter(message: pb.SemanticMemoryFilter) -> SemanticFilter:
    return convert.filter_from_pb(_readable(message))


def _readable(message: pb.SemanticMemoryFilter) -> pb.SemanticMemoryFilter:
    """The filter without the fields that are none."""
    readable = pb.SemanticMemoryFilter()
    readable.CopyFrom(message)
    for violation in _filter_violations(message):
        readable.ClearField(violation.field.split(".")[1])  # type: ignore[arg-type]
    return readable
