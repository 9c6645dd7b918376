"""The schema of merge rules: every key with its valid values, and how the fields of two rules are merged."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from typing import Any

from mnemon_server.domain.conflicts import (
    FACTOR_WEIGHTS,
    ContentStrategy,
    DefaultStrategy,
    ImportanceStrategy,
    KeywordsStrategy,
    SignalType,
    SourceStrategy,
    TimestampStrategy,
)
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.origins import Origin
from mnemon_server.domain.records import DURATION_MAX
from mnemon_server.domain.rules import DESCRIPTION_BYTES_MAX, RULE_BYTES_MAX, RULE_NAME_BYTES_MAX, RuleDict
from mnemon_server.domain.semantic import SOURCE_BYTES_MAX
from mnemon_server.domain.validation import SCOPE_BYTES_MAX, is_id, is_name, refuse, text_violations
from mnemon_server.services.writing.field_masks import MASK_PATHS_MAX

ENTRIES_MAX = 256
"""Most entries of a list, and of the priorities by source."""
WEIGHT_MAX = 1_000.0


@dataclass(frozen=True, slots=True)
class Kind:
    """A value. `expected` ends the sentence "must be"; `kept` returns the form in which an accepted value is stored."""

    expected: str
    accepts: Callable[[Any], bool]
    kept: Callable[[Any], Any] = lambda value: value


@dataclass(frozen=True, slots=True)
class Keys:
    """An object with some of these keys."""

    nodes: "Mapping[str, Node]"

    @property
    def expected(self) -> str:
        """The keys that it may have."""
        return f"one of {', '.join(self.nodes)}"

    def node(self, key: object) -> "Node | None":
        """The schema of the value of this key; None for an unknown key."""
        return self.nodes.get(key) if isinstance(key, str) else None


@dataclass(frozen=True, slots=True)
class AnyKeys:
    """An object with up to ENTRIES_MAX keys that the caller chooses."""

    key: Kind
    value: Kind

    @property
    def expected(self) -> str:
        """The rule for keys, in words."""
        return self.key.expected

    def node(self, key: object) -> "Node | None":
        """The schema of the value of this key; None if the key is invalid."""
        return self.value if self.key.accepts(key) else None


Node = Kind | Keys | AnyKeys


def _fits(text: object, bytes_max: int) -> bool:
    return isinstance(text, str) and bool(text) and not [*text_violations(text, "", bytes_max)]


def _names(text: object, bytes_max: int) -> bool:
    return isinstance(text, str) and bool(text) and is_id(text, bytes_max)


def _id(bytes_max: int) -> Kind:
    return Kind(f"text of 1 to {bytes_max:,} bytes of UTF-8, not blank", lambda value: _names(value, bytes_max))


def _ids(bytes_max: int) -> Kind:
    return Kind(
        f"a list of 1 to {ENTRIES_MAX} texts of 1 to {bytes_max:,} bytes, without blank ones; leave it out for any",
        lambda value: _is_list(value) and all(_names(item, bytes_max) for item in value),
        list,
    )


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple) and 0 < len(value) <= ENTRIES_MAX


def _number(low: float, high: float, expected: str = "") -> Kind:
    return Kind(
        expected or f"a number from {low:g} to {high:,g}",
        lambda value: isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high,
        float,
    )


def _choice(choices: type[StrEnum]) -> Kind:
    values = [choice.value for choice in choices]
    return Kind(f"one of {', '.join(values)}", lambda value: isinstance(value, str) and value in values, str)


def _is_name(value: object) -> bool:
    return _names(value, RULE_NAME_BYTES_MAX) and is_name(str(value))


_NAME = Kind(
    f"1 to {RULE_NAME_BYTES_MAX} bytes of UTF-8, not blank, without control characters or characters that turn the "
    "direction of text",
    _is_name,
)
_DESCRIPTION = Kind(
    f"text of at most {DESCRIPTION_BYTES_MAX:,} bytes of UTF-8",
    lambda value: value == "" or _fits(value, DESCRIPTION_BYTES_MAX),
)
_PRIORITY = Kind(
    "a whole number of 32 bits",
    lambda value: isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31,
)
_FLAG = Kind("true or false", lambda value: isinstance(value, bool))
_SHARE = _number(0, 1)
_BELOW_ONE = Kind("a number from 0 to less than 1", lambda value: _SHARE.accepts(value) and value < 1, float)
_SIGNALS = Kind(
    f"a list of one or more of {', '.join(SignalType)}; leave it out for the default",
    lambda value: _is_list(value) and all(item in [*SignalType] for item in value),
    lambda value: [SignalType(item).value for item in value],
)

_ORIGINS = Kind(
    f"a list of one or more of {', '.join(Origin)}; leave it out for any",
    lambda value: _is_list(value) and all(item in [*Origin] for item in value),
    list,
)

SCHEMA = Keys(
    {
        "name": _NAME,
        "description": _DESCRIPTION,
        "extends": _NAME,
        "priority": _PRIORITY,
        "enabled": _FLAG,
        "conditions": Keys(
            {
                "users": _ids(SCOPE_BYTES_MAX),
                "personas": _ids(SCOPE_BYTES_MAX),
                "sources": _ids(SOURCE_BYTES_MAX),
                "origins": _ORIGINS,
                "importance_min": _SHARE,
                "importance_max": _SHARE,
            }
        ),
        "detection": Keys(
            {
                "semantic_threshold": _SHARE,
                "keyword_threshold": _SHARE,
                "time_window_s": _number(1e-6, DURATION_MAX.total_seconds(), "a number of seconds, at least 0.000001"),
                "importance_delta": _BELOW_ONE,
                "relation_threshold": _SHARE,
                "signals": _SIGNALS,
                "required_signals": _SIGNALS,
            }
        ),
        "arbitration": Keys(
            {
                "priority_importance": _FLAG,
                "priority_recency": _FLAG,
                "priority_source": _FLAG,
                "weights": Keys(dict.fromkeys(FACTOR_WEIGHTS, _number(0, WEIGHT_MAX))),
                "merge_threshold": _SHARE,
                "allow_merge": _FLAG,
                "default_strategy": _choice(DefaultStrategy),
                "source_priority": AnyKeys(_id(SOURCE_BYTES_MAX), _number(0, 10)),
            }
        ),
        "merge": Keys(
            {
                "content_strategy": _choice(ContentStrategy),
                "importance_strategy": _choice(ImportanceStrategy),
                "importance_boost": _SHARE,
                "timestamp_strategy": _choice(TimestampStrategy),
                "source_strategy": _choice(SourceStrategy),
                "keywords_strategy": _choice(KeywordsStrategy),
                "deduplicate": _FLAG,
                "deduplication_threshold": _SHARE,
                "deduplication_guard": _FLAG,
                "keep_history": _FLAG,
            }
        ),
    }
)


def checked_rule(rule: object, field: str = "rule") -> dict[str, Any]:
    """The rule as it is stored: a copy, with its keys in the order of the schema, and without empty objects.

    Raises:
        InvalidArgumentError: names every invalid value, by a field such as "rule.arbitration.merge_threshold", and
            what is valid.
    """
    refuse([*_violations(SCHEMA, rule, field), *_violations_of_name(rule, field)])
    kept: dict[str, Any] = _kept(SCHEMA, rule)
    refuse(_violations_of_whole(kept, field))
    return kept


def rule_json(rule: RuleDict) -> str:
    """A rule as JSON."""
    return json.dumps(rule, ensure_ascii=False, separators=(",", ":"))


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with everything that `over` sets: objects are merged key by key, other values are replaced."""
    result = dict(base)
    for key, value in over.items():
        there = result.get(key)
        if isinstance(there, Mapping) and isinstance(value, Mapping):
            result[key] = merged(there, value)
        else:
            result[key] = value
    return result


def check_mask(paths: Sequence[str]) -> None:
    """Raises InvalidArgumentError if a mask names an unknown field, or the rule's name."""
    if len(paths) > MASK_PATHS_MAX:
        refuse([FieldViolation("update_mask", f"must name at most {MASK_PATHS_MAX} fields")])
    refuse(
        FieldViolation(
            "update_mask",
            f"{path[:80]!r} is not a field of a rule that can be changed, "
            'such as "extends" or "arbitration.merge_threshold"; a map is changed as a whole',
        )
        for path in paths
        if not _is_maskable(path)
    )


def only_fields(rule: RuleDict, paths: Sequence[str]) -> dict[str, Any]:
    """The fields of the rule at these paths, such as "arbitration.merge_threshold" or "conditions"."""
    result: dict[str, Any] = {}
    for path in paths:
        keys = path.split(".")
        value: Any = rule
        for key in keys:
            value = value.get(key, {})
        if value != {}:
            result = merged(result, reduce(lambda inner, key: {key: inner}, reversed(keys), value))
    return result


def without_fields(rule: RuleDict, paths: Sequence[str]) -> dict[str, Any]:
    """The rule without the fields of these paths."""
    result = merged({}, rule)
    for path in paths:
        result = _without(result, path.split("."))
    return result


def field_paths(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yields the paths of all values that are set, such as "arbitration.weights.recency"."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from field_paths(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def changed_paths(
    old: Mapping[str, Any], new: Mapping[str, Any], keys: Keys = SCHEMA, prefix: str = ""
) -> Iterator[str]:
    """Yields the paths of the values that differ, as a mask names them: a map counts as a whole."""
    for key, node in keys.nodes.items():
        before, after = old.get(key), new.get(key)
        if isinstance(node, Keys):
            yield from changed_paths(before or {}, after or {}, node, f"{prefix}{key}.")
        elif before != after:
            yield f"{prefix}{key}"


def _violations(node: Node, value: object, field: str) -> Iterable[FieldViolation]:
    if isinstance(node, Kind):
        if not node.accepts(value):
            hint = "; leave it out to inherit it" if value is None else ""
            yield FieldViolation(field, f"must be {node.expected}{hint}")
    elif not isinstance(value, Mapping):
        yield FieldViolation(field, f"must be an object with keys: {node.expected}")
    elif isinstance(node, AnyKeys) and len(value) > ENTRIES_MAX:
        yield FieldViolation(field, f"must have at most {ENTRIES_MAX} keys")
    else:
        yield from _violations_of_keys(node, value, field)


def _violations_of_keys(node: Keys | AnyKeys, value: Mapping[Any, Any], field: str) -> Iterable[FieldViolation]:
    for key, item in value.items():
        inner = node.node(key)
        if inner is None:
            yield FieldViolation(f"{field}.{str(key)[:80]}", f"is not a key here; a key must be {node.expected}")
        else:
            yield from _violations(inner, item, f"{field}.{key}")


def _violations_of_name(rule: object, field: str) -> Iterable[FieldViolation]:
    if isinstance(rule, Mapping) and "name" not in rule:
        yield FieldViolation(f"{field}.name", f"must be {_NAME.expected}")


def _violations_of_whole(rule: RuleDict, field: str) -> Iterable[FieldViolation]:
    conditions = rule.get("conditions", {})
    if conditions.get("importance_min", 0.0) > conditions.get("importance_max", 1.0):
        yield FieldViolation(f"{field}.conditions.importance_min", "must not be more than importance_max")
    if len(rule_json(rule).encode()) > RULE_BYTES_MAX:
        yield FieldViolation(field, f"must be at most {RULE_BYTES_MAX:,} bytes of JSON")


def _kept(node: Node, value: Any) -> Any:
    if isinstance(node, Kind):
        return node.kept(value)
    keys = [key for key in node.nodes if key in value] if isinstance(node, Keys) else sorted(value)
    items = {key: _kept(inner, value[key]) for key in keys if (inner := node.node(key))}
    return {key: item for key, item in items.items() if item != {}}


def _is_maskable(path: str) -> bool:
    node: Node | None = SCHEMA
    for key in path.split("."):
        node = node.node(key) if isinstance(node, Keys) else None
    return node is not None and path != "name"


def _without(values: dict[str, Any], path: Sequence[str]) -> dict[str, Any]:
    key, *rest = path
    if key not in values:
        return values
    inner = _without(values[key], rest) if rest else {}
    return {name: (inner if name == key else value) for name, value in values.items() if name != key or inner}
