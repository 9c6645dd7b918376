"""Checks of the fact service's requests.

What a value may be, the service checks itself. A request is turned into a value first, since nearly all are fine; only
where there is none it is looked at for everything that is wrong.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from google.protobuf.struct_pb2 import Struct
from mnemon.v1 import facts_pb2 as pb

from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.domain.facts import FactFilter, FactQuery, PutFact, filter_expression, key_violations
from mnemon_server.domain.namespaces import Namespace, namespace_violations
from mnemon_server.domain.records import AckLevel
from mnemon_server.domain.validation import refuse, request_id_violations, revision_violations
from mnemon_server.services.facts import checks as facts_checks
from mnemon_server.transport.convert import facts as convert
from mnemon_server.transport.convert.shared.json_values import object_from_pb
from mnemon_server.transport.convert.shared.reading import (
    others,
    page_size_violations,
    time_violations,
    unknown,
    unset_values,
)
from mnemon_server.wire.values import ACK_LEVELS, SEARCH_MODES

NAMES_MAX = 1_000
TTL_RANGE = "must be a length of time within 10,000 years, its seconds and nanoseconds of the same sign"

_SOME_NAMESPACE = ("some",)
_EVERYTHING = pb.FactFilter(subtree=True)

Request = TypeVar("Request")
Result = TypeVar("Result")
Filtered = pb.SearchFactsRequest | pb.ListFactsRequest | pb.DeleteFactsRequest


def checked_put(request: pb.PutFactRequest) -> PutFact:
    """The request as a value; raises InvalidArgumentError with everything that is wrong."""
    return _checked(request, convert.put_from_pb, _put_violations)


def checked_query(request: pb.SearchFactsRequest) -> FactQuery:
    """Likewise."""
    return _checked(request, convert.query_from_pb, _query_violations)


def checked_list(request: pb.ListFactsRequest) -> FactFilter:
    """Which facts are wanted; likewise."""
    if wrong := [*page_size_violations(request.page_size)]:
        refuse([*_filter_violations(request), *wrong])
    return _checked(request, _filter, _filter_violations)


def check_list_namespaces(request: pb.ListNamespacesRequest) -> None:
    """Raises InvalidArgumentError where the size of the page is wrong."""
    refuse(page_size_violations(request.page_size))


def checked_names(request: pb.GetFactsRequest) -> list[tuple[Namespace, str]]:
    """Namespace and key of each fact that is wanted; likewise."""
    if not 1 <= len(request.names) <= NAMES_MAX:
        raise InvalidArgumentError.of("names", f"must be 1 to {NAMES_MAX:,}; send several requests")
    return _checked(request, convert.names_from_pb, _names_violations)


def checked_name(request: pb.GetFactRequest) -> Namespace:
    """The namespace of the fact that is wanted; likewise."""
    return _checked(request, lambda request: convert.namespace_from_pb(request.namespace), _name_violations)


def checked_deletion(request: pb.DeleteFactRequest) -> tuple[Namespace, AckLevel]:
    """The namespace of the fact that is to go, and when to answer; likewise."""
    return _checked(request, convert.deletion_from_pb, _deletion_violations)


def checked_deletions(request: pb.DeleteFactsRequest) -> FactFilter:
    """Which facts are to go; likewise."""
    return _checked(
        request, _filter, lambda request: [*_filter_violations(request), *request_id_violations(request.request_id)]
    )


def json_violations(field: str, message: Struct) -> Iterator[FieldViolation]:
    """Why a JSON object is none."""
    try:
        object_from_pb(message)
    except ValueError as error:
        yield FieldViolation(field, str(error))


def _checked(
    request: Request, value_of: Callable[[Request], Result], violations: Callable[[Request], Iterable[FieldViolation]]
) -> Result:
    try:
        return value_of(request)
    except ValueError:
        refuse(violations(request))
        raise


def _put_violations(request: pb.PutFactRequest) -> list[FieldViolation]:
    if not request.HasField("fact"):
        return [FieldViolation("fact", "is required")]
    found = [
        *namespace_violations(tuple(request.fact.namespace), "fact.namespace"),
        *_fact_violations(request.fact),
        *unknown("mode", request.mode, convert.PUT_MODES),
        *unknown("ack", request.ack, ACK_LEVELS),
    ]
    rest = facts_checks.put_violations(convert.put_from_pb(_readable(request)), len(request.embedding))
    return others(found, rest)


def _fact_violations(message: pb.Fact) -> Iterator[FieldViolation]:
    """What is no value of a fact."""
    if message.HasField("value"):
        yield from json_violations("fact.value", message.value)
    else:
        yield FieldViolation("fact.value", "is required")
    yield from unset_values("fact.metadata", message.metadata)
    if message.HasField("create_time"):
        yield from time_violations("fact.create_time", message.create_time)
    if message.HasField("update_time"):
        yield from time_violations("fact.update_time", message.update_time)
    if message.HasField("ttl"):
        yield from _ttl_violations(message)


def _ttl_violations(message: pb.Fact) -> Iterator[FieldViolation]:
    try:
        convert.ttl_from_pb(message)
    except ValueError:
        yield FieldViolation("fact.ttl", TTL_RANGE)


def _readable(request: pb.PutFactRequest) -> pb.PutFactRequest:
    """The request with something in the place of what is no value."""
    readable = pb.PutFactRequest()
    readable.CopyFrom(request)
    readable.ClearField("mode")
    readable.ClearField("ack")
    fact = readable.fact
    if [*namespace_violations(tuple(fact.namespace))]:
        fact.namespace[:] = _SOME_NAMESPACE
    for violation in _fact_violations(request.fact):
        name, _, key = violation.field.removeprefix("fact.").partition(".")
        if key:
            del fact.metadata[key]
        else:
            fact.ClearField(name)  # type: ignore[arg-type]
    fact.value.SetInParent()
    return readable


def _query_violations(request: pb.SearchFactsRequest) -> list[FieldViolation]:
    found = [*_filter_violations(request), *unknown("mode", request.mode, SEARCH_MODES)]
    readable = pb.SearchFactsRequest()
    readable.CopyFrom(request)
    readable.filter.CopyFrom(_EVERYTHING)
    readable.ClearField("mode")
    return others(found, facts_checks.query_violations(convert.query_from_pb(readable), len(request.vector)))


def _filter_violations(request: Filtered) -> Iterator[FieldViolation]:
    if not request.HasField("filter"):
        yield FieldViolation("filter", "is required; with `subtree` and no namespace, it means all facts")
        return
    message = request.filter
    if message.namespace:
        yield from namespace_violations(tuple(message.namespace), "filter.namespace")
    elif not message.subtree:
        yield FieldViolation("filter.namespace", "must not be empty unless subtree is set: it would mean every fact")
    if message.HasField("where"):
        yield from _where_violations(message.where)


def _where_violations(message: Struct) -> Iterator[FieldViolation]:
    try:
        filter_expression(object_from_pb(message), convert.WHERE)
    except InvalidArgumentError as error:
        yield from error.violations
    except ValueError as error:
        yield FieldViolation(convert.WHERE, str(error))


def _names_violations(request: pb.GetFactsRequest) -> Iterator[FieldViolation]:
    for index, name in enumerate(request.names):
        yield from _name_violations(name, f"names[{index}].")


def _name_violations(
    message: pb.FactName | pb.GetFactRequest | pb.DeleteFactRequest, prefix: str = ""
) -> Iterator[FieldViolation]:
    yield from namespace_violations(tuple(message.namespace), f"{prefix}namespace")
    yield from key_violations(message.key, f"{prefix}key")


def _deletion_violations(request: pb.DeleteFactRequest) -> Iterator[FieldViolation]:
    yield from _name_violations(request)
    yield from revision_violations(convert.expected_revision(request))
    yield from request_id_violations(request.request_id)
    yield from unknown("ack", request.ack, ACK_LEVELS)


def _filter(request: pb.ListFactsRequest | pb.DeleteFactsRequest) -> FactFilter:
    return convert.filter_from_pb(request.filter)
