"""Resolves a rule and the rules that it extends into the rule that applies, and turns that back into a dict."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from functools import cache
from typing import Any, get_type_hints

from mnemon_server.domain.conflicts import ArbitrationConfig, DetectionConfig, MergeConfig, SignalType
from mnemon_server.domain.rules import DEFAULT_RULE, ResolvedRule, RuleConditions, RuleDict
from mnemon_server.services.rules.schema import field_paths, merged

_NOT_INHERITED = ("name", "extends")
_SECTIONS: Mapping[str, type] = {
    "conditions": RuleConditions,
    "detection": DetectionConfig,
    "arbitration": ArbitrationConfig,
    "merge": MergeConfig,
}
_KEYS = {"time_window": "time_window_s"}
"""The keys of fields that have another name: a length of time is a number of seconds."""
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
    sections: dict[str, Any] = {name: _section(kind, values.get(name, {})) for name, kind in _SECTIONS.items()}
    return ResolvedRule(
        name=values["name"],
        description=values["description"],
        priority=values["priority"],
        enabled=values["enabled"],
        **sections,
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
    sections = {name: _values(getattr(rule, name)) for name in _SECTIONS}
    return {
        "name": rule.name,
        "description": rule.description,
        "priority": rule.priority,
        "enabled": rule.enabled,
        **{name: values for name, values in sections.items() if values},
    }


def _inheritable(rule: RuleDict) -> dict[str, Any]:
    return {key: value for key, value in rule.items() if key not in _NOT_INHERITED}


def _section(kind: type, values: Mapping[str, Any]) -> Any:
    """A section of a rule; fields without a value have their defaults."""
    hints = _hints(kind)
    found = {name: values[key] for name in hints if (key := _KEYS.get(name, name)) in values}
    return kind(**{name: _read(hints[name], value) for name, value in found.items()})


def _read(hint: Any, value: Any) -> Any:
    if hint is timedelta:
        return timedelta(seconds=value)
    if isinstance(value, list):
        return frozenset(map(SignalType, value)) if hint == frozenset[SignalType] else tuple(value)
    return hint(value) if isinstance(value, str) else value


def _values(section: Any) -> dict[str, Any]:
    """The values of a section, without conditions that are not set."""
    kind: type = type(section)
    found = {_KEYS.get(name, name): _written(getattr(section, name)) for name in _hints(kind)}
    return {key: value for key, value in found.items() if value not in ([], None)}


def _written(value: Any) -> Any:
    match value:
        case timedelta():
            return value.total_seconds()
        case frozenset():
            return [signal.value for signal in SignalType if signal in value]
        case tuple():
            return list(value)
        case StrEnum():
            return value.value
        case Mapping():
            return {key: float(number) for key, number in value.items()}
    return value


_hints = cache(get_type_hints)
_PROGRAM_DEFAULTS = resolved_to_dict(ResolvedRule(name=DEFAULT_RULE))
