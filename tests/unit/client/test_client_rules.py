"""Merge rules keep their values, and an invalid rule is refused with the key and the valid values."""

from typing import Any

import mnemon
import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from mnemon import Client
from mnemon._messages import rules as rule_convert
from mnemon._values.rules import MergeRule
from mnemon.v1 import conflicts_pb2
from mnemon.v1 import rules_pb2 as pb

from tests.support.full_rule import FULL
from tests.unit.client.scripted_server import scripted_server


def _keys(values: dict[str, Any]) -> set[str]:
    parts = {key: value for key, value in values.items() if isinstance(value, dict)}
    return {*values, *(f"{key}.{inner}" for key, part in parts.items() for inner in _keys(part))}


def _fields(message: type[Message]) -> set[str]:
    """The fields of a message and of its parts, without the entries of maps."""
    found = set()
    for field in message.DESCRIPTOR.fields:
        inner = field.message_type
        is_part = inner is not None and inner.full_name.startswith("mnemon.") and not inner.GetOptions().map_entry
        found.add(field.name)
        if inner is not None and is_part:
            found |= {f"{field.name}.{each.name}" for each in inner.fields}
    return found


def test_a_rule_with_every_key_comes_back_unchanged() -> None:
    sent = rule_convert.rule_to_pb(FULL)

    assert rule_convert.rule_from_pb(pb.MergeRuleConfig.FromString(sent.SerializeToString())) == FULL
    keys = _keys(FULL) - {"arbitration.weights"}
    without_maps = {key for key in keys if not key.startswith(("arbitration.weights.", "arbitration.source_"))}
    fields = {"detection.time_window_s" if field == "detection.time_window" else field for field in _fields(type(sent))}
    assert without_maps == fields - {"revision", "arbitration.source_priority", "arbitration.weights"}


@given(st.floats(1e-6, 3e11, allow_nan=False))
def test_a_duration_comes_back_as_the_same_number_to_the_nanosecond(seconds: float) -> None:
    back = rule_convert.rule_from_pb(rule_convert.rule_to_pb({"name": "a", "detection": {"time_window_s": seconds}}))

    assert back["detection"]["time_window_s"] == pytest.approx(seconds, rel=1e-15, abs=5e-10)


def test_unset_fields_are_not_sent() -> None:
    assert rule_convert.rule_to_pb({"name": "a"}) == pb.MergeRuleConfig(name="a")
    assert rule_convert.rule_from_pb(pb.MergeRuleConfig(name="a")) == {"name": "a"}


@pytest.mark.parametrize(
    ("rule", "field", "right"),
    [
        ({"title": "a"}, "rule.title", "the keys are name, description, extends"),
        ({"detection": {"time_window": 5}}, "rule.detection.time_window", "time_window_s"),
        ({"detection": {"time_window_s": "5m"}}, "rule.detection.time_window_s", 'a number of seconds, not "5m"'),
        ({"detection": {"time_window_s": float("inf")}}, "rule.detection.time_window_s", "10,000 years"),
        ({"detection": {"signals": ["smell"]}}, "rule.detection.signals", "semantic, keyword, time, importance"),
        ({"detection": {"signals": []}}, "rule.detection.signals", "leave it out to inherit it"),
        ({"conditions": {"users": "ada"}}, "rule.conditions.users", "a list of one or more texts"),
        ({"conditions": {"users": ["\ud800"]}}, "rule.conditions.users", "text"),
        ({"conditions": ["ada"]}, "rule.conditions", "an object with keys: users, personas"),
        ({"merge": {"content_strategy": "clever"}}, "rule.merge.content_strategy", "replace, summarize, smart"),
        ({"merge": {"content_strategy": "unspecified"}}, "rule.merge.content_strategy", "one of concatenate"),
        ({"merge": {"deduplicate": 1}}, "rule.merge.deduplicate", "true or false"),
        ({"merge": {"importance_boost": True}}, "rule.merge.importance_boost", "a number, not true"),
        ({"revision": 2}, "rule.revision", "the keys are name, description, extends"),
        ({"arbitration": {"weights": {"recency": "x"}}}, "rule.arbitration.weights.recency", "a number"),
        ({"arbitration": {"weights": {"luck": 1}}}, "rule.arbitration.weights.luck", "importance, recency, source"),
        (
            {"arbitration": {"source_priority": 5}},
            "rule.arbitration.source_priority",
            "an object of names with numbers",
        ),
        ({"arbitration": {"merge_threshold": 10**400}}, "rule.arbitration.merge_threshold", "a number"),
        ({"priority": 2**31}, "rule.priority", "a whole number of 32 bits"),
        ({"priority": 1.5}, "rule.priority", "a whole number of 32 bits"),
        ({"extends": None}, "rule.extends", "must be text; leave it out to inherit it"),
        ("default", "rule", "an object with keys: name"),
    ],
)
def test_an_invalid_rule_is_refused_before_anything_is_sent(rule: Any, field: str, right: str) -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(mnemon.InvalidArgumentError) as raised:
        client.rules.add(rule)

    [violation] = raised.value.violations
    assert violation.field == field
    assert right in violation.description
    assert field in str(raised.value)


def test_all_errors_are_named_at_once_with_the_position_of_the_rule() -> None:
    rules: list[MergeRule] = [{"name": "a"}, {"name": 5, "merge": {"mode": "x"}}, {"priority": "high"}]
    with Client("127.0.0.1:1") as client, pytest.raises(mnemon.InvalidArgumentError) as raised:
        client.rules.load(rules)

    assert [each.field for each in raised.value.violations] == [
        "rules[1].name",
        "rules[1].merge.mode",
        "rules[2].priority",
    ]
    with Client("127.0.0.1:1") as client, pytest.raises(mnemon.InvalidArgumentError, match="rules: "):
        client.rules.load({"rules": []})  # type: ignore[dict-item]


def test_an_update_names_the_rule_and_the_fields_that_are_inherited_again() -> None:
    answer = pb.UpdateRuleResponse(rule=pb.MergeRuleConfig(name="home", revision=3), registry_version=4)
    with scripted_server(lambda *_: answer) as (address, server), Client(address) as client:
        stored = client.rules.update(
            "home", {"priority": 2}, update_mask=["detection.time_window_s", "extends"], expected_revision=2
        )

    [request] = server.requests
    assert request.rule == pb.MergeRuleConfig(name="home", priority=2)
    assert list(request.update_mask.paths) == ["detection.time_window", "extends"]
    assert request.expected_revision == 2
    assert stored == mnemon.StoredRule({"name": "home"}, revision=3, registry_version=4)


def test_an_update_cannot_give_another_name() -> None:
    with Client("127.0.0.1:1") as client:
        with pytest.raises(mnemon.InvalidArgumentError, match="another name"):
            client.rules.update("home", {"name": "house"})
        with pytest.raises(mnemon.InvalidArgumentError, match="update_mask"):
            client.rules.update("home", update_mask="extends")


def test_origins_are_named_by_the_keys_of_a_rule() -> None:
    answer = pb.ResolveRuleResponse(
        rule=pb.MergeRuleConfig(name="home"),
        origins=[pb.FieldOrigin(field="detection.time_window", rule="default"), pb.FieldOrigin(field="merge.x")],
        ancestors=["default"],
    )
    with scripted_server(lambda *_: answer) as (address, _), Client(address) as client:
        resolved = client.rules.resolve("home")

    assert resolved.origins == {"detection.time_window_s": "default", "merge.x": ""}
    assert resolved.ancestors == ("default",)


def test_changes_for_one_call_are_parts_of_a_rule() -> None:
    with (
        scripted_server(lambda *_: conflicts_pb2.DetectConflictsResponse(total_count=2, rule="home")) as (
            address,
            server,
        ),
        Client(address) as client,
    ):
        detected = client.conflicts.detect("m-1", detection={"signals": ["time"], "time_window_s": 60}, limit=1)

    assert detected == mnemon.DetectedConflicts((), 2, "home")
    [request] = server.requests
    assert request.detection.time_window.seconds == 60
    assert (request.candidate.memory_id, request.limit) == ("m-1", 1)
    with Client(address) as client:
        with pytest.raises(mnemon.InvalidArgumentError, match=r"merge\.mode: is not a key"):
            client.conflicts.merge("a", "b", merge={"mode": "x"})
        with pytest.raises(mnemon.InvalidArgumentError, match=r"arbitration\.allow_merge: must be true or false"):
            client.conflicts.arbitrate("a", "b", arbitration={"allow_merge": "yes"})
