"""Errors in a merge rule are reported by field, with the valid values."""

from typing import Any

import pytest
from mnemon_server.domain.errors import InvalidArgumentError

from tests.support.rules import Registry


def violations_of(rule: object) -> dict[str, str]:
    """The errors of registering a rule, by field."""
    registry = Registry()
    with pytest.raises(InvalidArgumentError) as caught:
        registry.register(rule)
    assert registry == Registry()
    return {violation.field: violation.description for violation in caught.value.violations}


@pytest.mark.parametrize(
    ("part", "field", "expected"),
    [
        ({"name": " "}, "name", "not blank"),
        ({"name": "a\nb"}, "name", "control characters"),
        ({"name": "a\u202eb"}, "name", "direction of text"),
        ({"name": "n" * 129}, "name", "1 to 128 bytes"),
        ({"name": 5}, "name", "1 to 128 bytes"),
        ({"description": "d" * 4097}, "description", "at most 4,096 bytes"),
        ({"extends": ""}, "extends", "1 to 128 bytes"),
        ({"extends": None}, "extends", "leave it out"),
        ({"priority": 1.5}, "priority", "whole number"),
        ({"priority": True}, "priority", "whole number"),
        ({"priority": 2**31}, "priority", "32 bits"),
        ({"enabled": "yes"}, "enabled", "true or false"),
        ({"conditions": []}, "conditions", "users, personas, sources, origins, importance_min, importance_max"),
        ({"conditions": {"users": "ada"}}, "conditions.users", "a list of 1 to 256 texts"),
        ({"conditions": {"users": []}}, "conditions.users", "leave it out for any"),
        ({"conditions": {"personas": [""]}}, "conditions.personas", "1 to 256 bytes"),
        ({"conditions": {"sources": ["\ud800"]}}, "conditions.sources", "1 to 256 bytes"),
        ({"conditions": {"users": ["u"] * 257}}, "conditions.users", "1 to 256 texts"),
        ({"conditions": {"importance_min": -0.1}}, "conditions.importance_min", "from 0 to 1"),
        ({"conditions": {"importance_min": 0.6, "importance_max": 0.5}}, "conditions.importance_min", "importance_max"),
        ({"detection": {"semantic_threshold": 1.1}}, "detection.semantic_threshold", "from 0 to 1"),
        ({"detection": {"keyword_threshold": "0.5"}}, "detection.keyword_threshold", "a number"),
        ({"detection": {"keyword_threshold": float("nan")}}, "detection.keyword_threshold", "a number"),
        ({"detection": {"time_window_s": 0}}, "detection.time_window_s", "at least 0.000001"),
        ({"detection": {"time_window_s": float("inf")}}, "detection.time_window_s", "at least 0.000001"),
        ({"detection": {"time_window_s": 10**400}}, "detection.time_window_s", "at least 0.000001"),
        ({"detection": {"importance_delta": 1}}, "detection.importance_delta", "less than 1"),
        ({"detection": {"signals": []}}, "detection.signals", "semantic, keyword, time, importance"),
        ({"detection": {"signals": ["smell"]}}, "detection.signals", "semantic, keyword, time, importance"),
        ({"arbitration": {"merge_threshold": 1.01}}, "arbitration.merge_threshold", "from 0 to 1"),
        ({"arbitration": {"allow_merge": 1}}, "arbitration.allow_merge", "true or false"),
        ({"arbitration": {"default_strategy": "KEEP"}}, "arbitration.default_strategy", "keep-candidate"),
        ({"arbitration": {"weights": {"recency": -1}}}, "arbitration.weights.recency", "from 0"),
        ({"arbitration": {"weights": {"luck": 1}}}, "arbitration.weights.luck", "importance, recency, source"),
        ({"arbitration": {"source_priority": {"user": 11}}}, "arbitration.source_priority.user", "from 0 to 10"),
        ({"arbitration": {"source_priority": {"": 1}}}, "arbitration.source_priority.", "1 to 256 bytes"),
        ({"merge": {"content_strategy": "both"}}, "merge.content_strategy", "concatenate, replace, summarize, smart"),
        ({"merge": {"importance_boost": 2}}, "merge.importance_boost", "from 0 to 1"),
        ({"merge": {"keep_histroy": True}}, "merge.keep_histroy", "keep_history"),
        ({"color": "red"}, "color", "name, description, extends"),
        ({7: "red"}, "7", "name, description, extends"),
    ],
)
def test_an_invalid_value_is_named_with_the_valid_ones(part: dict[Any, Any], field: str, expected: str) -> None:
    violations = violations_of({"name": "mine"} | part)
    assert [*violations] == [f"rule.{field}"]
    assert expected in violations[f"rule.{field}"]


def test_all_errors_are_named_at_once() -> None:
    violations = violations_of({"priority": "high", "arbitration": {"merge_threshold": 2, "allow_merge": None}})
    assert {*violations} == {
        "rule.name",
        "rule.priority",
        "rule.arbitration.merge_threshold",
        "rule.arbitration.allow_merge",
    }


@pytest.mark.parametrize("rule", [None, "strict", ["strict"]])
def test_a_rule_is_an_object(rule: object) -> None:
    assert [*violations_of(rule)] == ["rule"]


def test_a_rule_has_a_maximum_size() -> None:
    assert violations_of({"name": "mine", "conditions": {"users": ["u" * 256] * 256}})["rule"].startswith(
        "must be at most 65,536 bytes"
    )


def test_an_update_is_checked_by_its_result() -> None:
    registry = Registry()
    registry.register({"name": "mine", "conditions": {"importance_max": 0.5}})
    with pytest.raises(InvalidArgumentError, match="importance_max"):
        registry.update("mine", {"conditions": {"importance_min": 0.6}})
    assert registry.get("mine")["conditions"] == {"importance_max": 0.5}


@pytest.mark.parametrize(
    "path",
    [
        *("name", "", "merge.", "merge.everything", "priority.x", "conditions.users.ada"),
        *("arbitration.source_priority.user", "arbitration.weights.luck"),
    ],
)
def test_a_mask_names_only_fields_of_a_rule(path: str) -> None:
    registry = Registry()
    with pytest.raises(InvalidArgumentError) as caught:
        registry.update("default", {}, ["merge", path])
    [violation] = caught.value.violations
    assert violation.field == "update_mask"
    assert repr(path) in violation.description


def test_numbers_and_empty_objects_are_stored_in_one_form() -> None:
    registry = Registry()
    registry.register({"name": "mine", "merge": {}, "arbitration": {"weights": {}}, "detection": {"time_window_s": 60}})
    assert registry.get("mine") == {"name": "mine", "detection": {"time_window_s": 60.0}}
    assert isinstance(registry.get("mine")["detection"]["time_window_s"], float)
