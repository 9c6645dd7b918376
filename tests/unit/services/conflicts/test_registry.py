"""Merge rules are registered, inherited, changed, matched and loaded, always as a whole or not at all."""

from datetime import timedelta
from typing import Any

import pytest
from mnemon_server.domain.conflicts import ArbitrationConfig, DefaultStrategy, DetectionConfig, MergeConfig, SignalType
from mnemon_server.domain.errors import (
    InvalidArgumentError,
    InvalidOperationError,
)
from mnemon_server.domain.records import Scope
from mnemon_server.domain.rules import RULES_MAX, LoadedRules, RuleConditions
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.services.rules.inheritance import resolved_to_dict

from tests.support.rules import Registry

STRICT = {"name": "strict", "priority": 1, "arbitration": {"merge_threshold": 0.1, "weights": {"recency": 0.5}}}
HOME = {
    "name": "home",
    "extends": "strict",
    "conditions": {"users": ["ada", "bob"], "importance_min": 0.2},
    "arbitration": {"allow_merge": False, "weights": {"source": 0}},
}


def candidate(
    user: str = "ada", persona: str = "", source: str = "", importance: float | None = None
) -> SemanticMemory:
    """A statement to find the rule for."""
    return SemanticMemory("", "", scope=Scope(user=user, persona=persona), source=source, importance=importance)


def names(registry: Registry) -> list[str]:
    """The names of all rules, in order."""
    return [rule["name"] for rule in registry.export()]


def test_a_new_registry_holds_only_the_default_rule_at_version_1() -> None:
    registry = Registry()
    assert registry.export() == [{"name": "default"}]
    assert registry.version == 1
    rule = registry.resolve("default")
    assert (rule.detection, rule.arbitration, rule.merge) == (DetectionConfig(), ArbitrationConfig(), MergeConfig())
    assert (rule.priority, rule.enabled, rule.conditions, rule.ancestors) == (0, True, RuleConditions(), ())
    assert set(rule.origins.values()) == {""}


# Registration and lookup


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({}, ["no conditions"]),
        ({"conditions": {"users": ["ada"]}}, []),
        ({"extends": "home"}, []),
        ({"enabled": False}, []),
        ({"name": "default", "detection": {"signals": ["time"]}}, []),
        (
            {"extends": "home", "detection": {"signals": ["time"], "time_window_s": 1, "relation_threshold": 0.9}},
            ["detection.relation_threshold of the rule 'new' has no effect, since the signal relation is not"],
        ),
        ({"extends": "home", "detection": {"relation_threshold": 0.9}}, []),
    ],
)
def test_what_may_surprise_of_a_rule_is_said_with_its_receipt(rule: dict[str, Any], said: list[str]) -> None:
    registry = Registry({"name": "home", "conditions": {"users": ["ada"]}})
    rule = {"name": "new", **rule}
    loaded = registry.load([rule])
    receipt = registry.update(rule["name"], {"priority": 3})
    assert [*loaded.warnings] == [*receipt.warnings]
    assert len(receipt.warnings) == len(said)
    assert all(part in warning for part, warning in zip(said, receipt.warnings, strict=True))


def test_changing_a_dict_after_registering_it_changes_no_rule() -> None:
    written: dict[str, Any] = {"name": "mine", "conditions": {"users": ["ada"]}}
    registry = Registry(written)
    written["conditions"]["users"].append("bob")
    assert registry.get("mine")["conditions"] == {"users": ["ada"]}


def test_there_are_at_most_a_thousand_rules() -> None:
    registry = Registry()
    registry.load([{"name": str(number)} for number in range(RULES_MAX - 1)])
    with pytest.raises(InvalidOperationError, match="1,000"):
        registry.register(STRICT)
    assert len(registry.export()) == RULES_MAX
    registry.load(registry.export())


# Inheritance


def test_every_field_reaches_the_effective_rule() -> None:
    everything = {
        "name": "everything",
        "description": "all that can be said",
        "priority": -3,
        "enabled": False,
        "conditions": {
            "users": ["u"],
            "personas": ["p"],
            "sources": ["s"],
            "importance_min": 0.25,
            "importance_max": 0.75,
        },
        "detection": {
            "semantic_threshold": 0.7,
            "keyword_threshold": 0.6,
            "time_window_s": 90.0,
            "importance_delta": 0.3,
            "relation_threshold": 0.8,
            "signals": ["semantic", "time"],
            "required_signals": ["keyword"],
        },
        "arbitration": {
            "priority_importance": False,
            "priority_recency": False,
            "priority_source": False,
            "weights": {"importance": 0.1, "recency": 0.2, "source": 0.3, "semantic": 0.4},
            "merge_threshold": 0.05,
            "allow_merge": False,
            "default_strategy": "reject",
            "source_priority": {
                "user": 1.0,
                "conversation": 2.0,
                "skill": 3.0,
                "system": 4.0,
                "inferred": 5.0,
                "my.own": 6.0,
            },
        },
        "merge": {
            "content_strategy": "replace",
            "importance_strategy": "average",
            "importance_boost": 0.3,
            "timestamp_strategy": "min",
            "source_strategy": "second",
            "keywords_strategy": "intersection",
            "deduplicate": False,
            "deduplication_threshold": 0.9,
            "deduplication_guard": False,
            "keep_history": False,
        },
    }
    rule = Registry(everything).resolve("everything")
    assert resolved_to_dict(rule) == everything
    assert set(rule.origins.values()) == {"everything"}
    assert rule.detection.time_window == timedelta(seconds=90)
    assert rule.detection.signals == {SignalType.SEMANTIC, SignalType.TIME}
    assert rule.arbitration.default_strategy is DefaultStrategy.REJECT


def test_the_default_rule_can_be_changed_and_extended() -> None:
    registry = Registry({"name": "mine", "extends": "default"}, {"name": "apart"})
    registry.update("default", {"merge": {"keep_history": False}})
    assert not registry.resolve("mine").merge.keep_history
    assert registry.resolve("apart").merge.keep_history


# Updates


def test_a_field_in_the_mask_without_a_value_is_inherited_again() -> None:
    registry = Registry(STRICT, HOME)
    receipt = registry.update("home", {}, ["conditions", "arbitration.weights.source", "arbitration.merge_threshold"])
    assert receipt.rule == {"name": "home", "extends": "strict", "arbitration": {"allow_merge": False}}
    assert registry.update("home", {}, ["extends", "arbitration"]).rule == {"name": "home"}


def test_a_rule_keeps_its_name() -> None:
    registry = Registry(STRICT)
    with pytest.raises(InvalidArgumentError, match=r"rule\.name"):
        registry.update("strict", {"name": "loose"})


# Deleting


def test_a_deleted_rule_is_gone_and_deleting_an_unknown_one_returns_false() -> None:
    registry = Registry(STRICT)
    assert registry.delete("strict")
    assert (names(registry), registry.version) == (["default"], 3)
    assert not registry.delete("strict")
    assert registry.version == 3


# Matching


@pytest.mark.parametrize(
    ("conditions", "matches"),
    [
        ({"users": ["bob", "ada"]}, True),
        ({"users": ["bob"]}, False),
        ({"personas": ["mentor"]}, True),
        ({"personas": ["friend"]}, False),
        ({"sources": ["system", "user"]}, True),
        ({"sources": ["system"]}, False),
        ({"importance_min": 0.5}, True),
        ({"importance_max": 0.5}, True),
        ({"importance_min": 0.5, "importance_max": 0.5}, True),
        ({"importance_min": 0.51}, False),
        ({"importance_max": 0.49}, False),
        ({"users": ["ada"], "personas": ["mentor"], "sources": ["user"], "importance_min": 0.1}, True),
        ({"users": ["ada"], "personas": ["friend"]}, False),
    ],
)
def test_all_conditions_must_hold(conditions: dict[str, Any], matches: bool) -> None:  # noqa: FBT001
    registry = Registry({"name": "mine", "conditions": conditions})
    found = registry.find_matching(candidate("ada", "mentor", "user", 0.5))
    assert found.name == ("mine" if matches else "default")


def test_a_statement_without_importance_matches_no_range() -> None:
    registry = Registry({"name": "mine", "conditions": {"importance_min": 0.0}})
    assert registry.find_matching(candidate(importance=0.0)).name == "mine"
    assert registry.find_matching(candidate()).name == "default"


def test_among_equal_priorities_the_first_registered_is_found() -> None:
    registry = Registry({"name": "first"}, {"name": "second"})
    assert registry.find_matching(candidate()).name == "first"
    registry.update("first", {"description": "still the first"})
    assert registry.find_matching(candidate()).name == "first"
    registry.delete("first")
    registry.register({"name": "first"})
    assert registry.find_matching(candidate()).name == "second"


def test_a_disabled_rule_never_matches() -> None:
    registry = Registry({"name": "mine", "priority": 5, "enabled": False}, {"name": "child", "extends": "mine"})
    assert registry.find_matching(candidate()).name == "default"
    registry.update("child", {"enabled": True})
    assert registry.find_matching(candidate()).name == "child"


# Loading and exporting


def test_loading_replaces_whole_rules_and_leaves_the_others() -> None:
    registry = Registry(STRICT, HOME)
    assert registry.load([{"name": "home"}, STRICT, {"name": "new"}]) == LoadedRules(1, 1, 0, 4)
    assert registry.export() == [{"name": "default"}, STRICT, {"name": "home"}, {"name": "new"}]
    assert registry.load([{"name": "home"}]) == LoadedRules(0, 0, 0, 4)


def test_loading_with_replace_removes_the_other_rules_and_sets_the_order() -> None:
    registry = Registry({"name": "old"}, {"name": "first"}, {"name": "second"})
    registry.update("default", {"priority": 3})
    assert registry.load([{"name": "second"}, {"name": "third"}, {"name": "first"}], replace_all=True) == LoadedRules(
        1, 1, 1, 6
    )
    assert names(registry) == ["default", "second", "third", "first"]
    assert registry.get("default") == {"name": "default"}
    assert registry.find_matching(candidate()).name == "second"


def test_lenient_loading_replaces_an_unknown_base_with_the_default() -> None:
    registry = Registry(STRICT)
    registry.load([{"name": "orphan", "extends": "nowhere"}, {"name": "known", "extends": "strict"}], lenient=True)
    assert registry.get("orphan") == {"name": "orphan", "extends": "default"}
    assert registry.get("known")["extends"] == "strict"
    registry.load([{"name": "default", "extends": "nowhere"}], lenient=True)
    assert registry.get("default") == {"name": "default"}


def test_loading_one_name_twice_is_refused() -> None:
    registry = Registry()
    with pytest.raises(InvalidArgumentError) as caught:
        registry.load([{"name": "a"}, {"name": "b"}, {"name": "a"}])
    assert [violation.field for violation in caught.value.violations] == ["rules[2].name"]
    assert registry.version == 1
