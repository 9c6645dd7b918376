"""JSON objects are converted to messages and back without loss, whole numbers as integers."""

import json
import math
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Struct, Value
from hypothesis import given, settings
from hypothesis import strategies as st
from mnemon.v1 import facts_pb2, tools_pb2
from mnemon_server.domain.facts import VALUE_BYTES_MAX, VALUE_DEPTH_MAX
from mnemon_server.domain.tool_calls import JSON_DEPTH_MAX
from mnemon_server.transport.convert.shared.json_values import OBJECT_BYTES_MAX, VALUES_MAX, fill_object, object_from_pb

# No surrogates, which no message can carry. Whole numbers have a single zero.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False).filter(
    lambda number: not number.is_integer()
)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=10,
)


def sent(value: dict[str, Any]) -> Struct:
    """The object as it is received."""
    message = Struct()
    fill_object(message, value)
    return Struct.FromString(message.SerializeToString())


def nested(depth: int, kind: type[dict[str, Any]] | type[list[Any]] = dict) -> dict[str, Any]:
    """An object of this depth."""
    value: Any = {} if kind is dict else []
    for _ in range(depth - 2):
        value = {"a": value} if kind is dict else [value]
    return {"a": value}


@settings(max_examples=50)
@given(st.dictionaries(TEXTS, JSON, max_size=5))
def test_an_object_comes_back_unchanged(value: dict[str, Any]) -> None:
    back = object_from_pb(sent(value))
    assert back == value
    # In Python, 1, 1.0 and True are equal.
    assert json.dumps(back, sort_keys=True) == json.dumps(value, sort_keys=True)


@settings(max_examples=50)
@given(st.dictionaries(TEXTS, JSON, max_size=5))
def test_the_reference_implementation_reads_the_same_json(value: dict[str, Any]) -> None:
    assert MessageToDict(sent(value)) == value
    assert object_from_pb(ParseDict(value, Struct())) == value


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (5.0, 5), (-0.0, 0), (0.5, 0.5), (2.0**53, 2**53), (-(2.0**53), -(2**53)),
        (2.0**53 + 2, 2.0**53 + 2), (1e300, 1e300), (math.inf, math.inf),
    ],
)  # fmt: skip
def test_whole_numbers_are_integers_as_far_as_a_double_is_exact(number: float, expected: float) -> None:
    [back] = object_from_pb(Struct(fields={"n": Value(number_value=number)})).values()
    assert (back, type(back)) == (expected, type(expected))


def test_keys_have_the_same_order_everywhere() -> None:
    keys = [f"key {number * 7 % 50:02d}" for number in range(50)]
    back = object_from_pb(sent({"inner": dict.fromkeys(keys)}))
    assert [*back["inner"]] == sorted(keys)


@pytest.mark.parametrize("value", [{}, {"a": {}}, {"a": []}, {"a": None}, {"a": ""}, {"a": [[], {}, None]}])
def test_empty_values_are_kept(value: dict[str, Any]) -> None:
    message = facts_pb2.Fact()
    fill_object(message.value, value)
    back = facts_pb2.Fact.FromString(message.SerializeToString())
    assert back.HasField("value")
    assert object_from_pb(back.value) == value


@pytest.mark.parametrize(
    "place", [Value(), Value(list_value={"values": [Value()]}), Value(struct_value={"fields": {"b": Value()}})]
)
def test_an_unset_value_is_refused(place: Value) -> None:
    with pytest.raises(ValueError, match="must not contain an unset value"):
        object_from_pb(Struct(fields={"a": place}))


def test_objects_over_the_size_limit_are_refused_before_they_are_read() -> None:
    message = Struct(fields={"a": Value(string_value="x" * OBJECT_BYTES_MAX)})
    with pytest.raises(ValueError, match="at most 3,145,728 bytes"):
        object_from_pb(message)


def test_every_object_of_the_maximum_size_fits_into_a_message() -> None:
    numbers = {"n": [0.25] * (VALUE_BYTES_MAX // len("0.25"))}
    for value in (numbers, {"t": "é" * (VALUE_BYTES_MAX // 2 - 10)}):
        message = Struct()
        fill_object(message, value)
        assert message.ByteSize() <= OBJECT_BYTES_MAX


@pytest.mark.parametrize("kind", [dict, list])
def test_the_deepest_objects_can_be_read_in_every_request(kind: type[dict[str, Any]] | type[list[Any]]) -> None:
    deepest = nested(VALUE_DEPTH_MAX, kind)
    executed = tools_pb2.ExecuteTextResponse()
    fill_object(executed.results.add().output.artifact.add().fact.value, deepest)
    parsed = tools_pb2.ParseToolCallsResponse()
    fill_object(parsed.parsed.calls.add().parameters, nested(JSON_DEPTH_MAX, kind))
    listed = facts_pb2.ListFactsResponse()
    fill_object(listed.facts.add().versions.add().value, deepest)
    for message in (executed, parsed, listed):
        assert type(message).FromString(message.SerializeToString()) == message


@pytest.mark.parametrize("value", [{"a": [None] * VALUES_MAX}, {"a": [[]] * VALUES_MAX}, {"a": [[0] * 1_000] * 100}])
def test_an_object_of_too_many_values_is_refused_and_one_of_fewer_is_read(value: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^must contain at most {VALUES_MAX:,} values$"):
        object_from_pb(sent(value))
    value["a"] = value["a"][: len(value["a"]) * 99 // 100]
    assert object_from_pb(sent(value)) == value


def test_values_are_counted_before_they_are_read() -> None:
    # The first value would be refused for being unset, if it were read.
    message = Struct(fields={"a": Value()})
    message.fields["b"].list_value.values.extend([Value()] * 10)
    with pytest.raises(ValueError, match=r"^must contain at most 1 values$"):
        object_from_pb(message, 1)
    with pytest.raises(ValueError, match=r"^must not contain an unset value"):
        object_from_pb(message, 2)
