"""Merge rules are converted to messages and back without loss."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemon.v1 import decisions_pb2
from mnemon.v1 import rules_pb2 as pb
from mnemon_server.domain.conflicts import (
    ContentStrategy,
    DefaultStrategy,
    ImportanceStrategy,
    KeywordsStrategy,
    SignalType,
    SourceStrategy,
    TimestampStrategy,
)
from mnemon_server.domain.origins import Origin
from mnemon_server.services.rules.schema import SCHEMA
from mnemon_server.transport.convert import rules as convert
from mnemon_server.transport.convert import rules as requests

EVERYTHING: dict[str, Any] = {
    "name": "household",
    "description": "what guests say counts less",
    "extends": "default",
    "priority": -5,
    "enabled": False,
    "conditions": {
        "users": ["ada", "bob"],
        "personas": ["butler"],
        "sources": ["user"],
        "origins": ["user", "web"],
        "importance_min": 0.2,
        "importance_max": 1.0,
    },
    "detection": {
        "semantic_threshold": 0.85,
        "keyword_threshold": 0.0,
        "time_window_s": 300.1,
        "importance_delta": 0.4,
        "relation_threshold": 0.6,
        "signals": ["time", "semantic", "relation"],
        "required_signals": ["semantic"],
    },
    "arbitration": {
        "priority_importance": True,
        "priority_recency": False,
        "priority_source": True,
        "weights": {"importance": 0.4, "recency": 0.0},
        "merge_threshold": 0.2,
        "allow_merge": False,
        "default_strategy": "keep-existing",
        "source_priority": {"user": 10.0, "a skill": 0.5},
    },
    "merge": {
        "content_strategy": "concatenate",
        "importance_strategy": "average",
        "importance_boost": 0.1,
        "timestamp_strategy": "min",
        "source_strategy": "prefer-higher",
        "keywords_strategy": "intersection",
        "deduplicate": False,
        "deduplication_threshold": 0.75,
        "deduplication_guard": False,
        "keep_history": True,
    },
}

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20).filter(str.strip)
SHARES = st.floats(0, 1)
LISTS = st.lists(TEXTS, min_size=1, max_size=3, unique=True)


def section(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A part of a rule with some of its fields, at least one."""
    return st.fixed_dictionaries({}, optional=fields).filter(bool)


def choice(kind: Any) -> st.SearchStrategy[str]:
    """An enum value, as rules write it."""
    return st.sampled_from([member.value for member in kind])


ORIGINS = st.lists(st.sampled_from([str(each) for each in Origin]), min_size=1, max_size=5)
RULES = st.fixed_dictionaries(
    {"name": TEXTS},
    optional={
        "description": st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=50),
        "extends": TEXTS,
        "priority": st.integers(-(2**31), 2**31 - 1),
        "enabled": st.booleans(),
        "conditions": section(
            users=LISTS,
            personas=LISTS,
            sources=LISTS,
            origins=ORIGINS,
            importance_min=st.floats(0, 0.5),
            importance_max=st.floats(0.5, 1),
        ),
        "detection": section(
            semantic_threshold=SHARES,
            keyword_threshold=SHARES,
            time_window_s=st.integers(1, 315_360_000_000_000_000).map(lambda microseconds: microseconds / 1e6),
            importance_delta=st.floats(0, 1, exclude_max=True),
            signals=st.lists(choice(SignalType), min_size=1, unique=True),
            required_signals=st.lists(choice(SignalType), min_size=1, unique=True),
        ),
        "arbitration": section(
            priority_importance=st.booleans(),
            priority_recency=st.booleans(),
            priority_source=st.booleans(),
            weights=section(**dict.fromkeys(("importance", "recency", "source", "semantic"), st.floats(0, 100))),
            merge_threshold=SHARES,
            allow_merge=st.booleans(),
            default_strategy=choice(DefaultStrategy),
            source_priority=st.dictionaries(TEXTS, st.floats(0, 10), min_size=1, max_size=3),
        ),
        "merge": section(
            content_strategy=choice(ContentStrategy),
            importance_strategy=choice(ImportanceStrategy),
            importance_boost=SHARES,
            timestamp_strategy=choice(TimestampStrategy),
            source_strategy=choice(SourceStrategy),
            keywords_strategy=choice(KeywordsStrategy),
            deduplicate=st.booleans(),
            deduplication_threshold=SHARES,
            deduplication_guard=st.booleans(),
            keep_history=st.booleans(),
        ),
    },
)


def message_of(rule: Mapping[str, Any]) -> pb.MergeRuleConfig:
    """The rule as it is received."""
    message = pb.MergeRuleConfig()
    convert.fill_rule(message, rule)
    return pb.MergeRuleConfig.FromString(message.SerializeToString())


def read(message: pb.MergeRuleConfig) -> dict[str, Any]:
    """The rule of a request."""
    return requests.read_rule(pb.RegisterRuleRequest(rule=message))


def test_a_rule_with_every_field_is_written_completely_and_comes_back_the_same() -> None:
    message = message_of(EVERYTHING)
    assert (message.name, message.extends, message.priority, message.enabled) == ("household", "default", -5, False)
    assert list(message.conditions.users) == ["ada", "bob"]
    assert (message.detection.time_window.seconds, message.detection.time_window.nanos) == (300, 100_000_000)
    assert message.arbitration.default_strategy == decisions_pb2.DEFAULT_STRATEGY_KEEP_EXISTING
    assert message.arbitration.weights == decisions_pb2.FactorWeights(importance=0.4, recency=0.0)
    assert read(message) == EVERYTHING


def test_the_example_names_every_key_of_a_rule() -> None:
    def keys(node: Any) -> dict[str, Any]:
        return {key: keys(inner) if hasattr(inner, "nodes") else None for key, inner in node.nodes.items()}

    expected = keys(SCHEMA)
    assert set(EVERYTHING) == set(expected)
    for name in ("conditions", "detection", "arbitration", "merge"):
        assert set(EVERYTHING[name]) == set(expected[name])


@given(RULES)
def test_any_rule_comes_back_the_same(rule: dict[str, Any]) -> None:
    assert read(message_of(rule)) == rule


@given(RULES)
def test_any_message_comes_back_the_same(rule: dict[str, Any]) -> None:
    message = message_of(rule)
    assert message_of(read(message)) == message


def test_an_unset_field_is_missing_and_a_false_value_is_kept() -> None:
    assert read(pb.MergeRuleConfig()) == {}
    message = pb.MergeRuleConfig(name="a", priority=0, enabled=False, description="")
    message.detection.semantic_threshold = 0.0
    message.conditions.SetInParent()
    assert read(message) == {
        "name": "a", "priority": 0, "enabled": False, "description": "",
        "detection": {"semantic_threshold": 0.0}, "conditions": {},
    }  # fmt: skip


@pytest.mark.parametrize("member", [*DefaultStrategy, *ContentStrategy, *ImportanceStrategy, *TimestampStrategy,
                                    *SourceStrategy, *KeywordsStrategy, *SignalType])  # fmt: skip
def test_every_value_of_an_enumeration_has_a_number(member: Any) -> None:
    fields = {
        DefaultStrategy: ("arbitration", "default_strategy"),
        ContentStrategy: ("merge", "content_strategy"),
        ImportanceStrategy: ("merge", "importance_strategy"),
        TimestampStrategy: ("merge", "timestamp_strategy"),
        SourceStrategy: ("merge", "source_strategy"),
        KeywordsStrategy: ("merge", "keywords_strategy"),
        SignalType: ("detection", "signals"),
    }
    part, field = fields[type(member)]
    rule = {"name": "a", part: {field: [member.value] if field == "signals" else member.value}}
    assert read(message_of(rule)) == rule


def test_fields_of_a_mask_have_the_names_of_the_message() -> None:
    for path in ("detection.time_window", "extends", "arbitration.weights", "no.such"):
        assert convert.field_to_pb(convert.field_from_pb(path)) == path
    assert convert.field_from_pb("detection.time_window") == "detection.time_window_s"
    update = pb.UpdateRuleRequest(rule={"name": "a"}, update_mask={"paths": ["detection.time_window", "no.such"]})
    assert requests.read_update(update) == ({"name": "a"}, ["detection.time_window_s", "no.such"])
