"""Resolves a rule and the rules that it extends into the rule that applies, and turns that back into a dict."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from mnemon_server.domain.conflicts import (
    ArbitrationConfig,
    ContentStrategy,
    DefaultStrategy,
    DetectionConfig,
    ImportanceStrategy,
    KeywordsStrategy,
    MergeConfig,
    SignalType,
    SourceStrategy,
    TimestampStrategy,
)
from mnemon_server.domain.rules import DEFAULT_RULE, ResolvedRule, RuleConditions, RuleDict
from mnemon_server.services.rules.schema import field_paths, merged

_NOT_INHERITED = ("name", "extends")
_SETTINGS = {
    "semantic_threshold": SignalType.SEMANTIC,
    "keyword_threshold": SignalType.KEYWORD,
    "time_window_s": SignalType.TIME,
    "importance_delta": SignalType.IMPORTANCE,
    "relation_threshold": SignalType.RELATION,
}
"""The keys of "detection" that are settings of one signal."""


def flattened(chain: Sequence[RuleDict]) -> dict[str, Any]:
    """One rule with all fields of a chain, which extends no rule. The chain has the rule first, then its bases."""
    result: dict[str, Any] = {"name": chain[0]["name"]}
    for rule in reversed(chain):
        result = merged(result, _inheritable(rule))
    return result


def resolved(chain: Sequence[RuleDict]) -> ResolvedRule:
    """The first rule of a chain, with everything that it inherits."""
    values = merged(_PROGRAM_DEFAULTS, flattened(chain))
    origins = dict.fromkeys(field_paths(_inheritable(values)), "")
    for rule in reversed(chain):
        name: str = rule["name"]
        origins |= dict.fromkeys(field_paths(_inheritable(rule)), name)
    return ResolvedRule(
        name=values["name"],
        description=values["description"],
        priority=values["priority"],
        enabled=values["enabled"],
        conditions=_conditions(values.get("conditions", {})),
        detection=_detection(values["detection"]),
        arbitration=_arbitration(values["arbitration"]),
        merge=_merge(values["merge"]),
        origins=origins,
        ancestors=tuple(rule["name"] for rule in chain[1:]),
    )


def idle_settings(rule: RuleDict, applied: ResolvedRule) -> dict[str, str]:
    """The fields of a rule that have no effect, and why."""
    why_not = "has no effect, since the signal {} is not evaluated: add it to detection.signals, or leave this out"
    return {
        f"detection.{key.removesuffix('_s')}": why_not.format(signal.value)
        for key, signal in _SETTINGS.items()
        if key in rule.get("detection", {}) and signal not in applied.detection.signals
    }


def resolved_to_dict(rule: ResolvedRule) -> dict[str, Any]:
    """The rule with all possible fields set, which extends no rule and applies in the same way."""
    return {
        "name": rule.name,
        "description": rule.description,
        "priority": rule.priority,
        "enabled": rule.enabled,
        **_conditions_dict(rule.conditions),
        "detection": _detection_dict(rule.detection),
        "arbitration": _arbitration_dict(rule.arbitration),
        "merge": _merge_dict(rule.merge),
    }


def _inheritable(rule: RuleDict) -> dict[str, Any]:
    return {key: value for key, value in rule.items() if key not in _NOT_INHERITED}


def _conditions(values: Mapping[str, Any]) -> RuleConditions:
    return RuleConditions(
        users=tuple(values.get("users", ())),
        personas=tuple(values.get("personas", ())),
        sources=tuple(values.get("sources", ())),
        origins=tuple(values.get("origins", ())),
        importance_min=values.get("importance_min"),
        importance_max=values.get("importance_max"),
    )


def _conditions_dict(conditions: RuleConditions) -> dict[str, Any]:
    values = {
        "users": list(conditions.users),
        "personas": list(conditions.personas),
        "sources": list(conditions.sources),
        "origins": list(conditions.origins),
        "importance_min": conditions.importance_min,
        "importance_max": conditions.importance_max,
    }
    said = {key: value for key, value in values.items() if value not in ([], None)}
    return {"conditions": said} if said else {}


def _detection(values: Mapping[str, Any]) -> DetectionConfig:
    return DetectionConfig(
        semantic_threshold=values["semantic_threshold"],
        keyword_threshold=values["keyword_threshold"],
        time_window=timedelta(seconds=values["time_window_s"]),
        importance_delta=values["importance_delta"],
        relation_threshold=values["relation_threshold"],
        signals=frozenset(map(SignalType, values["signals"])),
        required_signals=frozenset(map(SignalType, values["required_signals"])),
    )


def _detection_dict(config: DetectionConfig) -> dict[str, Any]:
    return {
        "semantic_threshold": config.semantic_threshold,
        "keyword_threshold": config.keyword_threshold,
        "time_window_s": config.time_window.total_seconds(),
        "importance_delta": config.importance_delta,
        "relation_threshold": config.relation_threshold,
        "signals": [signal.value for signal in SignalType if signal in config.signals],
        "required_signals": [signal.value for signal in SignalType if signal in config.required_signals],
    }


def _arbitration(values: Mapping[str, Any]) -> ArbitrationConfig:
    return ArbitrationConfig(
        priority_importance=values["priority_importance"],
        priority_recency=values["priority_recency"],
        priority_source=values["priority_source"],
        weights=values["weights"],
        merge_threshold=values["merge_threshold"],
        allow_merge=values["allow_merge"],
        default_strategy=DefaultStrategy(values["default_strategy"]),
        source_priority=values["source_priority"],
    )


def _arbitration_dict(config: ArbitrationConfig) -> dict[str, Any]:
    return {
        "priority_importance": config.priority_importance,
        "priority_recency": config.priority_recency,
        "priority_source": config.priority_source,
        "weights": dict(config.weights),
        "merge_threshold": config.merge_threshold,
        "allow_merge": config.allow_merge,
        "default_strategy": config.default_strategy.value,
        "source_priority": {source: float(priority) for source, priority in config.source_priority.items()},
    }


def _merge(values: Mapping[str, Any]) -> MergeConfig:
    return MergeConfig(
        content_strategy=ContentStrategy(values["content_strategy"]),
        importance_strategy=ImportanceStrategy(values["importance_strategy"]),
        importance_boost=values["importance_boost"],
        timestamp_strategy=TimestampStrategy(values["timestamp_strategy"]),
        source_strategy=SourceStrategy(values["source_strategy"]),
        keywords_strategy=KeywordsStrategy(values["keywords_strategy"]),
        deduplicate=values["deduplicate"],
        deduplication_threshold=values["deduplication_threshold"],
        deduplication_guard=values["deduplication_guard"],
        keep_history=values["keep_history"],
    )


def _merge_dict(config: MergeConfig) -> dict[str, Any]:
    return {
        "content_strategy": config.content_strategy.value,
        "importance_strategy": config.importance_strategy.value,
        "importance_boost": config.importance_boost,
        "timestamp_strategy": config.timestamp_strategy.value,
        "source_strategy": config.source_strategy.value,
        "keywords_strategy": config.keywords_strategy.value,
        "deduplicate": config.deduplicate,
        "deduplication_threshold": config.deduplication_threshold,
        "deduplication_guard": config.deduplication_guard,
        "keep_history": config.keep_history,
    }


_PROGRAM_DEFAULTS = resolved_to_dict(ResolvedRule(name=DEFAULT_RULE))
