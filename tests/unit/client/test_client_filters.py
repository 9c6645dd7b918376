"""Filters written as Python expressions are sent with their meaning, and impossible ones are refused."""

from datetime import UTC, datetime
from typing import Any

import mnemon
import pytest
from google.protobuf import json_format
from mnemon import F
from mnemon._messages.filters import filter_to_pb, keywords_to_pb
from mnemon._values.filters import as_filter
from mnemon.v1 import memory_pb2

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def memory_filter(which: mnemon.MemoryFilters, **more: float) -> memory_pb2.MemoryFilter | None:
    return keywords_to_pb(memory_pb2.MemoryFilter, which, mnemon.MemoryFilters, **more)


def wire(given: mnemon.FilterLike) -> Any:
    """The filter as it is sent, with short names."""
    return _short(json_format.MessageToDict(filter_to_pb(as_filter(given))))


def _short(message: dict[str, Any]) -> Any:
    [(kind, value)] = message.items()
    match kind:
        case "condition":
            values = [next(iter(each.items())) for each in value["values"]]
            return (value["field"], value["comparator"].removeprefix("COMPARATOR_"), values)
    return (kind, [_short(part) for part in value["filters"]])


A, B, C = F("type") == "a", F("type") == "b", F("type") == "c"
WIRE_A, WIRE_B, WIRE_C = (("type", "EQ", [("stringValue", text)]) for text in "abc")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (F("type") == "a", ("type", "EQ", [("stringValue", "a")])),
        (F("type") != "a", ("type", "NE", [("stringValue", "a")])),
        (F("metadata.n") > 3, ("metadata.n", "GT", [("intValue", "3")])),
        (F("metadata.n") >= 3.0, ("metadata.n", "GTE", [("doubleValue", 3.0)])),
        (F("metadata.n") < 3, ("metadata.n", "LT", [("intValue", "3")])),
        (F("create_time") <= NOON, ("create_time", "LTE", [("timestampValue", "2026-05-01T12:00:00Z")])),
        (F("is_global") == True, ("is_global", "EQ", [("boolValue", True)])),  # noqa: E712
        (F("agent").isin(["x", "y"]), ("agent", "IN", [("stringValue", "x"), ("stringValue", "y")])),
        (F("content").contains("x"), ("content", "CONTAINS", [("stringValue", "x")])),
        (F("agent").exists(), ("agent", "EXISTS", [("boolValue", True)])),
        (~F("agent").exists(), ("noneOf", [("agent", "EXISTS", [("boolValue", True)])])),
    ],
)
def test_each_comparison_is_sent_with_its_operator_and_typed_value(expression: mnemon.Filter, expected: Any) -> None:
    assert wire(expression) == expected


def test_joined_filters_keep_their_structure() -> None:
    assert wire((A | B) & ~C) == ("allOf", [("anyOf", [WIRE_A, WIRE_B]), ("noneOf", [WIRE_C])])
    assert wire(~(A & B)) == ("noneOf", [("allOf", [WIRE_A, WIRE_B])])


def test_a_long_chain_adds_one_level_and_a_double_negation_none() -> None:
    assert wire(A & B & C) == wire(A & (B & C)) == ("allOf", [WIRE_A, WIRE_B, WIRE_C])
    assert wire(A | B | C) == ("anyOf", [WIRE_A, WIRE_B, WIRE_C])
    assert wire(~~A) == WIRE_A


def test_expressions_that_python_would_misread_are_errors() -> None:
    with pytest.raises(TypeError, match="join filters with &"):
        _ = A and B
    with pytest.raises(TypeError, match="join filters with &"):
        _ = not A
    with pytest.raises(TypeError, match="two comparisons"):
        _ = 1 < F("metadata.n") < 5
    with pytest.raises(TypeError):
        _ = A & "b"  # type: ignore[operator]


def test_a_mapping_means_that_every_entry_must_hold() -> None:
    assert wire({"type": "a"}) == WIRE_A
    assert wire({"type": "a", "metadata.n": {"gte": 3, "lt": 8}, "agent": {"in": ["x", "y"]}}) == (
        "allOf",
        [
            WIRE_A,
            ("metadata.n", "GTE", [("intValue", "3")]),
            ("metadata.n", "LT", [("intValue", "8")]),
            ("agent", "IN", [("stringValue", "x"), ("stringValue", "y")]),
        ],
    )


def test_names_and_values_are_data_whatever_they_hold() -> None:
    hostile = "$where'; DROP TABLE memories; --%_*"
    assert wire(F(f"metadata.{hostile}") == hostile) == (f"metadata.{hostile}", "EQ", [("stringValue", hostile)])


@pytest.mark.parametrize(
    ("where", "field", "right"),
    [
        ({}, "where", "a mapping of fields to values"),
        ("type = a", "where", r'F\("type"\) == "preference"'),
        ({"type": {"like": "a"}}, "where.type", "'contains'"),
        ({"type": {}}, "where.type", '"gte": 3'),
        ({"type": {"in": "abc"}}, "where.type", "several values"),
        ({"type": None}, "where.type", "null is not a value"),
        (F("type") == None, "where.type", "null is not a value"),  # noqa: E711
        (F("create_time") > datetime(2026, 5, 1), "where.create_time", "time zone"),
        (F("type") == 2**63, "where.type", "64 bits"),
    ],
)
def test_a_filter_that_cannot_be_sent_names_the_field_and_the_valid_values(where: Any, field: str, right: str) -> None:
    with pytest.raises(mnemon.InvalidArgumentError, match=right) as raised:
        memory_filter({"where": where})

    assert raised.value.violations[0].field == field


def test_a_single_text_is_not_a_list_of_values() -> None:
    with pytest.raises(mnemon.InvalidArgumentError, match=r"\['claude'\]"):
        F("agent").isin("claude")


def test_the_shortcuts_and_windows_set_their_fields() -> None:
    sent = memory_filter(
        {
            "type": "preference",
            "agent": "claude",
            "user": "ada",
            "personality": "engineer",
            "is_global": False,
            "metadata": {"n": 5},
            "created_from": NOON,
            "reinforced_to": NOON,
            "where": A,
        },
        min_confidence=0.5,
    )

    assert sent is not None
    assert (sent.scope.agent, sent.scope.user, sent.scope.project) == ("claude", "ada", "")
    assert (sent.type, sent.personality, sent.min_confidence) == ("preference", "engineer", 0.5)
    assert (sent.HasField("is_global"), sent.is_global) == (True, False)
    assert sent.metadata["n"].int_value == 5
    assert sent.created.start_time.ToDatetime(UTC) == sent.reinforced.end_time.ToDatetime(UTC) == NOON
    assert not sent.created.HasField("end_time")
    assert sent.filter == filter_to_pb(A)


def test_no_filter_is_sent_as_unset() -> None:
    assert memory_filter({}) is None


@pytest.mark.parametrize("name", ["type", "agent", "user", "project", "household", "persona", "personality"])
def test_an_empty_text_is_refused_because_it_would_mean_every_memory(name: str) -> None:
    for empty in ("", None):
        with pytest.raises(mnemon.InvalidArgumentError, match=name) as raised:
            memory_filter({"metadata": {"n": 1}, name: empty})  # type: ignore[misc]
        assert raised.value.violations[0].field == name


def test_a_misspelt_argument_is_an_error() -> None:
    with mnemon.Client("127.0.0.1:1") as client, pytest.raises(TypeError, match="'agnet'"):
        client.memories.purge(agnet="claude", type="x")  # type: ignore[call-arg]
