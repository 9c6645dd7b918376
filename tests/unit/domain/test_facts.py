"""Facts: valid values, and what the filters of tools select."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.facts import (
    Fact,
    filter_expression,
    filterable,
    key_violations,
    value_violations,
)
from mnemon_server.domain.filters import METADATA_PREFIX, matches
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.records import MetadataValue

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SCALARS = st.one_of(
    st.integers(-3, 3), st.sampled_from([-1.0, 0.5, 1.0, 2.5]), st.booleans(), st.text("ab", max_size=2)
)


def fact(value: dict[str, Any], metadata: dict[str, MetadataValue] | None = None) -> Fact:
    return Fact(Namespace(("user", "u")), "k", value, NOON, NOON, metadata or {})


def selects(where: object, chosen: Fact) -> bool:
    expression, read = filter_expression(where), filterable(chosen.value, chosen.metadata)
    return expression is None or matches(expression, lambda name: read.get(name.removeprefix(METADATA_PREFIX)))


COFFEE = fact(
    {
        "content": "likes coffee",
        "category": "preference",
        "cups": 3,
        "strength": 0.5,
        "hot": True,
        "tags": ["drink", "morning"],
        "note": None,
        "source": {"page": 1},
        "scores": [1, 2],
    },
    {"category": "overridden", "learnt": NOON, "channel": "chat", "note": "hidden by the value's null"},
)


@pytest.mark.parametrize(
    ("where", "selected"),
    [
        (None, True),
        ({}, True),
        ({"category": "preference"}, True),
        ({"category": "Preference"}, False),
        ({"category": "overridden"}, False),  # the value's key takes precedence over the metadata's
        ({"channel": "chat"}, True),
        ({"channel": "chat", "category": "fact"}, False),
        ({"missing": "x"}, False),
        ({"cups": 3}, True),
        ({"cups": 3.0}, True),
        ({"cups": "3"}, False),
        ({"hot": True}, True),
        ({"hot": 1}, False),
        ({"tags": ["drink", "morning"]}, True),
        ({"tags": ["morning", "drink"]}, False),
        ({"tags": "drink"}, False),
        ({"cups": {"$eq": 3}}, True),
        ({"cups": {"$ne": 3}}, False),
        ({"cups": {"$ne": 4}}, True),
        ({"missing": {"$ne": "x"}}, True),
        ({"note": {"$ne": "x"}}, True),
        ({"note": "hidden by the value's null"}, False),
        ({"cups": {"$gt": 3}}, False),
        ({"cups": {"$gte": 3}}, True),
        ({"cups": {"$lt": 3.5}}, True),
        ({"cups": {"$lte": 2}}, False),
        ({"cups": {"$gt": 1, "$lt": 3}}, False),
        ({"cups": {"$gt": 1, "$lte": 3}}, True),
        ({"missing": {"$gt": 0}}, False),
        ({"content": {"$gte": "likes", "$lt": "liket"}}, True),
        ({"category": {"$in": ["fact", "preference"]}}, True),
        ({"category": {"$in": ["fact"]}}, False),
        ({"category": {"$nin": ["fact"]}}, True),
        ({"category": {"$nin": ["fact", "preference"]}}, False),
        ({"missing": {"$nin": ["fact"]}}, True),
        ({"tags": {"$in": [["drink", "morning"], "other"]}}, True),
        ({"learnt": {"$lt": NOON + timedelta(microseconds=1)}}, True),
        ({"learnt": {"$lt": NOON}}, False),
        ({"scores": {"$ne": "x"}}, True),
        ({"source": {"$gt": 0}}, False),
    ],
)
def test_a_filter_reads_the_values_top_level_keys_and_then_the_metadata(where: object, *, selected: bool) -> None:
    assert selects(where, COFFEE) is selected


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"cups": {"$near": 3}}, "filter.cups: '$near' is not an operator; the operators are "),
        ({"cups": {"gt": 3}}, "filter.cups: 'gt' is not an operator"),
        ({"cups": {"$gt": 1, "$GT": 2}}, "filter.cups: '$GT' is not an operator"),
        ({"cups": {}}, "filter.cups: must be a value, or an object of one or more operators"),
        ({"source": {"page": 1}}, "filter.source: 'page' is not an operator"),
        ({"$or": [{"cups": 3}]}, "filter.$or: the key must be"),
        ({"two words": 1}, "filter.two words: the key must be"),
        ({"": 1}, "filter.: the key must be"),
        ({7: 1}, "filter.7: a key must be text"),
        ({"note": None}, "filter.note: must be text"),
        ({"scores": [1, 2]}, "filter.scores: must contain only texts"),
        ({"cups": {"$eq": {"a": 1}}}, "filter.cups: must be text"),
        ({"cups": {"$in": 3}}, "filter.cups: $in takes a list"),
        ({"cups": {"$nin": "abc"}}, "filter.cups: $nin takes a list"),
        ({"cups": {"$in": []}}, "filter.cups: in takes 1 to 256 values"),
        ({"cups": {"$in": [1, None]}}, "filter.cups: must be text"),
        ({"hot": {"$gt": False}}, "filter.hot: gt takes text, a number or a time"),
        ({"cups": math.nan}, "filter.cups: must be a finite number"),
        ({"cups": 2**63}, "filter.cups: must fit into 64 bits"),
        ({f"k{number}": 1 for number in range(128)}, "filter: must have at most 128 parts"),
        ([], "filter: must be an object"),
        ("category", "filter: must be an object"),
    ],
)
def test_an_impossible_filter_is_a_value_error(where: object, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        filter_expression(where)
    assert isinstance(caught.value, InvalidArgumentError)
    assert str(caught.value).startswith(message)


@given(SCALARS, SCALARS)
def test_eq_and_in_are_the_opposites_of_ne_and_nin(stored: object, wanted: object) -> None:
    chosen = fact({"content": "x", "k": stored})
    assert (
        selects({"k": {"$eq": wanted}}, chosen)
        is selects({"k": wanted}, chosen)
        is not selects({"k": {"$ne": wanted}}, chosen)
    )
    assert selects({"k": {"$in": [wanted, "z"]}}, chosen) is not selects({"k": {"$nin": [wanted, "z"]}}, chosen)


@given(SCALARS, SCALARS)
def test_only_numbers_and_texts_are_ordered_each_among_themselves(stored: Any, wanted: Any) -> None:
    chosen = fact({"k": stored})
    if isinstance(wanted, bool):
        return
    comparable = not isinstance(stored, bool) and isinstance(stored, str) is isinstance(wanted, str)
    assert selects({"k": {"$lt": wanted}}, chosen) is (comparable and stored < wanted)
    assert selects({"k": {"$gte": wanted}}, chosen) is (comparable and stored >= wanted)


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"k": value}
    return value


WHOLE = "must be within 2^53, either way; write a larger whole number as text"


@pytest.mark.parametrize(
    ("value", "field", "problem"),
    [
        ({}, "", None),
        ({"content": "x", "n": [1, 0.5, None, True, {"a": []}], "whole": [2**53, -(2**53), 1e300]}, "", None),
        (nested(32), "", None),
        (nested(33), "value", "must be at most 32 levels deep"),
        (nested(100_000), "value", "must be at most 32 levels deep"),
        ("text", "value", "must be a JSON object"),
        ({"a": {0: "x"}}, "value.a", "must have keys that are valid text, not '0'"),
        ({"a": {1}}, "value.a", "must be a JSON value, not set"),
        ({"a": math.inf}, "value.a", "must be a finite number"),
        ({"a": math.nan}, "value.a", "must be a finite number"),
        ({"a": [1, {"id": 1234567890123456789}]}, "value.a[1].id", WHOLE),
        ({"a": -(2**53) - 1}, "value.a", WHOLE),
        ({"a": 10**400}, "value.a", WHOLE),
        ({"a": "\0"}, "value.a", "must be valid Unicode without U+0000"),
        ({"\ud800": 1}, "value", "must have keys that are valid text, not '\\ud800'"),
        ({"a": "é" * 524_284}, "", None),
        ({"a": "é" * 524_285}, "value", "must be at most 1,048,576 bytes as JSON in UTF-8"),
        ({"a": "é" * 524_289}, "value.a", "must be at most 1048576 bytes of UTF-8"),
    ],
)
def test_a_value_is_a_json_object_that_comes_back_unchanged(value: object, field: str, problem: str | None) -> None:
    found = [(violation.field, violation.description) for violation in value_violations(value)]
    assert found == ([(field, problem)] if problem else [])


@pytest.mark.parametrize(
    ("key", "valid"), [("k", True), ("é.{}" * 102, True), ("", False), ("\0", False), ("\udc00", False)]
)
def test_a_key_is_any_short_text(key: str, *, valid: bool) -> None:
    assert (not list(key_violations(key))) is valid
    assert list(key_violations("k" * 513))
