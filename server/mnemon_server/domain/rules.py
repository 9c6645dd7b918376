"""Merge rules, in two forms: as written, where unset values are inherited, and resolved, as they apply."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from mnemon_server.domain.conflicts import ArbitrationConfig, DetectionConfig, MergeConfig
from mnemon_server.domain.records import WriteReceipt

DEFAULT_RULE = "default"
RULES_STAMP = "rules.version"
"""The key of the vault's value that changes with the rules; absent if no rule was ever changed."""
RULES_MAX = 1_000
"""Maximum number of rules in a registry, "default" included."""
RULE_NAME_BYTES_MAX = 128
DESCRIPTION_BYTES_MAX = 4_096
RULE_BYTES_MAX = 65_536
"""Maximum size of a rule as JSON."""
RULES_BYTES_MAX = 1 << 20
"""Maximum size of all rules as JSON, so that they all fit into one answer or one request."""

RuleDict = Mapping[str, Any]
"""A rule as JSON values. Unset keys are absent. All keys, each with an example:

    {"name": "household", "description": "...", "extends": "default", "priority": 5, "enabled": true,
     "conditions": {"users": ["u"], "personas": ["p"], "sources": ["user"],
                    "origins": ["user"], "importance_min": 0.2, "importance_max": 1.0},
     "detection": {"semantic_threshold": 0.8, "keyword_threshold": 0.5, "time_window_s": 300.0,
                   "importance_delta": 0.4, "relation_threshold": 0.3,
                   "signals": ["semantic", "keyword", "time", "importance", "relation"],
                   "required_signals": ["semantic", "keyword", "relation"]},
     "arbitration": {"priority_importance": true, "priority_recency": true, "priority_source": true,
                     "weights": {"importance": 0.4, "recency": 0.3, "source": 0.2, "semantic": 0.1},
                     "merge_threshold": 0.2, "allow_merge": true, "default_strategy": "keep-candidate",
                     "source_priority": {"user": 10.0}},
     "merge": {"content_strategy": "smart", "importance_strategy": "boost", "importance_boost": 0.1,
               "timestamp_strategy": "max", "source_strategy": "prefer-higher", "keywords_strategy": "union",
               "deduplicate": true, "deduplication_threshold": 0.8, "deduplication_guard": true,
               "keep_history": true}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleConditions:
    """The candidates to which a rule applies. Empty or None means no condition. Bounds are inclusive."""

    users: tuple[str, ...] = ()
    personas: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    """A candidate without an origin counts as an agent's."""
    importance_min: float | None = None
    importance_max: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRule:
    """A rule with all values that it inherits. Values that no rule sets have the program's defaults."""

    name: str
    description: str = ""
    priority: int = 0
    enabled: bool = True
    conditions: RuleConditions = RuleConditions()
    detection: DetectionConfig = field(default_factory=DetectionConfig)
    arbitration: ArbitrationConfig = field(default_factory=ArbitrationConfig)
    merge: MergeConfig = field(default_factory=MergeConfig)
    origins: Mapping[str, str] = field(default_factory=dict)
    """The rule that each field, such as "arbitration.merge_threshold", comes from; empty for the program's default."""
    ancestors: tuple[str, ...] = ()
    """The rules that it inherits from, nearest first."""


@dataclass(frozen=True, slots=True)
class StoredRule:
    """A rule as written. `revision` grows by one with each change; it is 0 for a "default" that was never changed."""

    rule: RuleDict
    revision: int


@dataclass(frozen=True, slots=True)
class RuleReceipt:
    """A rule as stored after a change, and the registry's version after that change."""

    rule: RuleDict
    revision: int
    version: int
    warnings: Sequence[str] = ()
    """Surprises, such as that it applies to every statement."""


@dataclass(frozen=True, slots=True)
class LoadedRules:
    """The result of loading rules."""

    registered_count: int
    updated_count: int
    deleted_count: int
    version: int
    warnings: Sequence[str] = field(default=(), compare=False)
    """The warnings of the rules that were registered or updated. They say nothing of what loading did."""


@dataclass(frozen=True, slots=True)
class DeletedRule:
    """The receipt of a deletion, and the registry's version after it."""

    receipt: WriteReceipt
    version: int


class RuleOrder(StrEnum):
    """The order in which rules are listed."""

    REGISTRATION = "registration"
    """Order of registration, "default" first."""
    MATCHING = "matching"
    """Order in which they are matched: highest priority first, "default" last."""


@dataclass(frozen=True, slots=True)
class RulePage:
    """A page of rules as written. `next_position` is None after the last page."""

    rules: tuple[StoredRule, ...]
    next_position: int | None
    version: int
