"""Filters from clients: each invalid part is named by its path, and hostile filters are refused quickly."""

from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import common_pb2 as pb
from mnemon_server.domain.filters import AllOf, AnyOf, Condition, Expression, NoneOf, Operator
from mnemon_server.transport.convert.shared.reader import Reader, read_filter

from tests.support.python_calls import python_calls


def condition(field: str = "agent", operator: int = pb.COMPARATOR_EQ, *values: Any) -> pb.Filter:
    """One comparison, by default with a text."""
    found = values or (pb.MetadataValue(string_value="claude"),)
    return pb.Filter(condition=pb.Condition(field=field, comparator=operator, values=found))


def joined(*parts: pb.Filter) -> pb.Filter:
    """All parts must hold."""
    return pb.Filter(all_of=pb.FilterList(filters=parts))


def none_of(*parts: pb.Filter) -> pb.Filter:
    """No part may hold."""
    return pb.Filter(none_of=pb.FilterList(filters=parts))


def nested(levels: int) -> pb.Filter:
    """A filter of this depth, as it is received."""
    message = condition()
    for _ in range(levels - 1):
        message = none_of(message)
    return message


def read(message: pb.Filter) -> Expression:
    """The expression of a valid filter."""
    reader = Reader()
    expression = read_filter(reader, "filter", message)
    reader.finish()
    return expression


def wrong(message: pb.Filter) -> dict[str, str]:
    """The errors, by path."""
    reader = Reader()
    read_filter(reader, "filter", message)
    return {violation.field: violation.description for violation in reader.violations}


def test_a_filter_becomes_an_expression_with_typed_values() -> None:
    message = joined(
        condition(),
        pb.Filter(any_of=pb.FilterList(filters=[condition("metadata.n", pb.COMPARATOR_GT, value(int_value=5))])),
        none_of(condition("type", pb.COMPARATOR_IN, value(string_value="a"), value(double_value=5.0)), condition()),
    )
    assert wrong(message) == {}
    assert read(message) == AllOf(
        (
            Condition("agent", Operator.EQ, ("claude",)),
            AnyOf((Condition("metadata.n", Operator.GT, (5,)),)),
            NoneOf((Condition("type", Operator.IN, ("a", 5.0)), Condition("agent", Operator.EQ, ("claude",)))),
        )
    )


@pytest.mark.parametrize("operator", list(Operator))
def test_every_operator_has_a_number(operator: Operator) -> None:
    number = pb.Comparator.Value(f"COMPARATOR_{operator.name}")
    assert read(condition("agent", number)) == Condition("agent", operator, ("claude",))


def test_every_invalid_part_is_named_by_its_path_at_once() -> None:
    message = joined(
        pb.Filter(),
        condition("agent", pb.COMPARATOR_UNSPECIFIED),
        condition("agent", 99),
        joined(),
        none_of(pb.Filter(any_of=pb.FilterList())),
        none_of(),
        condition("agent", pb.COMPARATOR_IN, value(int_value=1), pb.MetadataValue()),
        condition("create_time", pb.COMPARATOR_GT, value(timestamp_value=Timestamp(seconds=10**13))),
    )
    assert list(wrong(message)) == [
        "filter.all_of.filters[0]",
        "filter.all_of.filters[1].condition.comparator",
        "filter.all_of.filters[2].condition.comparator",
        "filter.all_of.filters[3].all_of.filters",
        "filter.all_of.filters[4].none_of.filters[0].any_of.filters",
        "filter.all_of.filters[5].none_of.filters",
        "filter.all_of.filters[6].condition.values[1]",
        "filter.all_of.filters[7].condition.values[0]",
    ]


@pytest.mark.parametrize(("levels", "refused"), [(8, False), (9, True), (45, True)])
def test_a_filter_has_at_most_eight_levels(levels: int, *, refused: bool) -> None:
    assert wrong(nested(levels)) == ({"filter": "must be at most 8 levels deep"} if refused else {})


@pytest.mark.parametrize(("parts", "refused"), [(127, False), (128, True), (100_000, True)])
def test_a_filter_has_at_most_128_parts_including_itself(parts: int, *, refused: bool) -> None:
    message = pb.Filter(all_of=pb.FilterList(filters=[condition()] * parts))
    assert wrong(message) == ({"filter": "must have at most 128 parts"} if refused else {})


def test_a_condition_has_at_most_256_values() -> None:
    values = [value(int_value=number) for number in range(257)]
    assert wrong(condition("agent", pb.COMPARATOR_IN, *values[:256])) == {}
    assert wrong(condition("agent", pb.COMPARATOR_IN, *values)) == {"filter.condition.values": "must be at most 256"}


@pytest.mark.parametrize(
    "message", [nested(9), pb.Filter(), joined(condition(), joined())], ids=["deep", "unset", "part"]
)
def test_an_invalid_filter_is_read_as_an_empty_expression(message: pb.Filter) -> None:
    assert read_filter(Reader(), "filter", message) == AllOf(())


def test_an_empty_filter_is_refused() -> None:
    assert wrong(pb.Filter()) == {"filter": "must be set: all_of, any_of, none_of or condition"}


def test_a_hostile_filter_is_refused_before_its_parts_are_read() -> None:
    wide = pb.Filter(any_of=pb.FilterList(filters=[pb.Filter()] * 50_000))
    assert list(wrong(wide)) == ["filter"]
    assert python_calls(lambda: wrong(wide)) < 10_000


def value(**kind: Any) -> pb.MetadataValue:
    """A value to compare with."""
    return pb.MetadataValue(**kind)
