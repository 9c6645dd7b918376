"""A value that a field of a record cannot have is refused, and a text that names a time is one."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from mnemon_server.domain import documents, events, facts, memories, semantic
from mnemon_server.domain.clock import time_of
from mnemon_server.domain.collections import FieldType
from mnemon_server.domain.filters import AllOf, AnyOf, Condition, FilterFields, NoneOf, Operator, expression_violations

NOON = datetime(2027, 1, 31, 12, tzinfo=UTC)
KINDS: dict[str, FilterFields] = {
    module.__name__.rpartition(".")[2]: module.FILTER_FIELDS
    for module in (documents, memories, semantic, events, facts)
}
FITTING: dict[Any, tuple[Any, ...]] = {
    FieldType.TEXT: ("yes",),
    FieldType.TEXTS: (("tea",),),
    FieldType.BOOLEAN: (True,),
    FieldType.NUMBER: (5, 0.5),
    FieldType.TIME: (NOON, "2027-01-31T12:00:00Z"),
    memories.DecayPolicy: ("stable",),
}
ALL_VALUES = ("yes", ("tea",), True, 5, 0.5, NOON, "2027-01-31T12:00:00Z", "stable")


def told(known: FilterFields, field: str, operator: Operator, *values: Any) -> dict[str, str]:
    expression = NoneOf((Condition(field, operator, values),))
    return {each.field: each.description for each in expression_violations(expression, known, "where")}


@pytest.mark.parametrize("kind", KINDS)
def test_each_field_takes_the_values_of_its_type_and_no_others(kind: str) -> None:
    for field in KINDS[kind].types:
        check_field(KINDS[kind], field)


def check_field(known: FilterFields, field: str) -> None:
    texts = known.types[field] is FieldType.TEXT
    for value in ALL_VALUES:
        fits = value in FITTING[known.types[field]] or (texts and isinstance(value, str))
        # True equals 1.
        fits = fits and (value is not True or known.types[field] is FieldType.BOOLEAN)
        for operator in (Operator.EQ, Operator.NE, Operator.IN, Operator.NIN):
            found = told(known, field, operator, value)
            refused = [] if fits else ["where.none_of.filters[0].condition.values[0]"]
            assert list(found) == refused, (field, operator, value)
            assert all(description.startswith(f'"{field}": ') for description in found.values())


@pytest.mark.parametrize(
    ("field", "operator", "value", "reason"),
    [
        ("create_time", Operator.GTE, 5, "takes a time, such as 2027-01-31T12:00:00Z, not the number 5"),
        ("create_time", Operator.GTE, "yesterday", 'with a zone, not the text "yesterday"'),
        ("create_time", Operator.LT, "2027-01-31T12:00:00", "with a zone"),
        ("create_time", Operator.LTE, "2027-01-31", "by lte, the date 2027-01-31 may mean its start or its end"),
        ("create_time", Operator.EQ, "2027-01-31", "may mean its start or its end"),
        ("create_time", Operator.CONTAINS, "2027", "is not compared by contains"),
        ("is_global", Operator.EQ, "true", 'takes true or false, not the text "true"'),
        ("is_global", Operator.EQ, 1, "takes true or false, not the number 1"),
        ("is_global", Operator.GT, 0, "is not compared by gt"),
        ("type", Operator.EQ, 5, "takes text, not the number 5"),
        ("type", Operator.GT, 5, "takes text, not the number 5"),
        ("type", Operator.EQ, ("a",), "takes text, not a list"),
        ("decay_policy", Operator.EQ, "permanent", "is one of stable, reinforceable, contextual"),
        ("decay_policy", Operator.GT, 5, "takes text"),
        ("is_global", Operator.EXISTS, "yes", "takes true or false"),
    ],
)
def test_the_reason_says_what_would_be_right(field: str, operator: Operator, value: Any, reason: str) -> None:
    [said] = told(memories.FILTER_FIELDS, field, operator, value).values()
    assert reason in said


@pytest.mark.parametrize(
    ("field", "operator", "value"),
    [
        ("create_time", Operator.GTE, "2027-01-31"),
        ("create_time", Operator.LT, "2027-01-31"),
        ("create_time", Operator.EXISTS, True),
        ("decay_policy", Operator.CONTAINS, "st"),
        ("type", Operator.GT, ""),
        ("metadata.any", Operator.GTE, "2027"),
        ("metadata.any", Operator.EQ, ("a",)),
    ],
)
def test_what_is_right_is_not_refused(field: str, operator: Operator, value: Any) -> None:
    assert told(memories.FILTER_FIELDS, field, operator, value) == {}


def test_lists_and_numbers_are_compared_as_such() -> None:
    known = semantic.FILTER_FIELDS
    assert told(known, "keywords", Operator.CONTAINS, "tea") == {}
    assert "contains takes one of them" in str(told(known, "keywords", Operator.EQ, "tea"))
    assert "is not compared by gt" in str(told(known, "keywords", Operator.GT, "tea"))
    assert "takes a number" in str(told(known, "importance", Operator.GTE, "0.1"))
    assert "takes a number" in str(told(known, "importance", Operator.GTE, True))


def test_each_value_is_named_by_its_path() -> None:
    wrong = AllOf((Condition("type", Operator.EQ, ("a",)), AnyOf((Condition("type", Operator.IN, ("a", 5, True)),))))
    place = "where.all_of.filters[1].any_of.filters[0].condition"
    found = [each.field for each in expression_violations(wrong, memories.FILTER_FIELDS, "where")]
    assert found == [f"{place}.values[1]", f"{place}.values[2]"]


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2027-01-31T12:00:00Z", NOON),
        ("2027-01-31t12:00:00z", NOON),
        ("2027-01-31 12:00:00+00:00", NOON),
        ("2027-01-31T17:30:00+05:30", NOON),
        ("2027-01-31T12:00Z", NOON),
        ("2027-01-31T12:00:00.123456789Z", NOON + timedelta(microseconds=123_456)),
        ("2027-01-31", NOON.replace(hour=0)),
        ("2027-01-31T12:00:00", None),
        ("2027-02-31", None),
        ("2027-01-31T25:00:00Z", None),
        ("0001-01-01T00:00:00+05:00", None),
        ("20270131", None),
        ("2027-W05", None),
        ("2027-01-31Z", None),
        ("٢٠٢٧-01-31", None),
        ("2027", None),
        ("", None),
    ],
)
def test_a_text_is_read_as_the_time_that_it_names(text: str, time: datetime | None) -> None:
    assert time_of(text) == time
