"""Merge rules: as they are written, where what is unset is inherited, and as they apply."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from mnemon_server.domain.conflicts import ArbitrationConfig, DetectionConfig, MergeConfig
from mnemon_server.domain.records import WriteReceipt

DEFAULT_RULE = "default"
RULES_MAX = 1_000
"""Of a registry, "default" included."""
RULE_NAME_BYTES_MAX = 128
DESCRIPTION_BYTES_MAX = 4_096
RULE_BYTES_MAX = 65_536
"""Of a rule as JSON."""
RULES_BYTES_MAX = 1 << 20
"""Of all rules as JSON, so that any answer and any request has room for all of them."""

RuleDict = Mapping[str, Any]
"""A rule as JSON values; only what is set is there. All keys, with an example of each:

    {"name": "household", "description": "...", "extends": "default", "priority": 5, "enabled": true,
     "conditions": {"users": ["u"], "personas": ["p"], "sources": ["user"],
                    "importance_min": 0.2, "importance_max": 1.0},
     "detection": {"semantic_threshold": 0.8, "keyword_threshold": 0.5, "time_window_s": 300.0,
                   "importance_delta": 0.4, "signals": ["semantic", "keyword", "time", "importance"],
                   "required_signals": ["semantic", "keyword"]},
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
    """For which candidates a rule is; what is empty or None does not matter. Bounds are inclusive."""

    users: tuple[str, ...] = ()
    personas: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    importance_min: float | None = None
    importance_max: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRule:
    """A rule with all that it inherits, and the program's defaults where nobody set anything."""

    name: str
    description: str = ""
    priority: int = 0
    enabled: bool = True
    conditions: RuleConditions = RuleConditions()
    detection: DetectionConfig = field(default_factory=DetectionConfig)
    arbitration: ArbitrationConfig = field(default_factory=ArbitrationConfig)
    merge: MergeConfig = field(default_factory=MergeConfig)
    origins: Mapping[str, str] = field(default_factory=dict)
    """Which rule gave each field, such as "arbitration.merge_threshold"; empty for the program's own default."""
    ancestors: tuple[str, ...] = ()
    """The rules that it inherits from, nearest first."""


@dataclass(frozen=True, slots=True)
class StoredRule:
    """A rule as it was written; `revision` grows by one with every change of it, 0 for a "default" that never was."""

    rule: RuleDict
    revision: int


@dataclass(frozen=True, slots=True)
class RuleReceipt:
    """A rule as it is stored after a change, and the registry's version then."""

    rule: RuleDict
    revision: int
    version: int


@dataclass(frozen=True, slots=True)
class LoadedRules:
    """What loading rules did."""

    registered_count: int
    updated_count: int
    deleted_count: int
    version: int


@dataclass(frozen=True, slots=True)
class DeletedRule:
    """What became of the rule, and the registry's version then."""

    receipt: WriteReceipt
    version: int


class RuleOrder(StrEnum):
    """In which order rules are listed."""

    REGISTRATION = "registration"
    """As they were registered, "default" first."""
    MATCHING = "matching"
    """As they are asked: the highest priority first, "default" last."""


@dataclass(frozen=True, slots=True)
class RulePage:
    """A page of rules as they were written; `next_position` is None after the last one."""

    rules: tuple[StoredRule, ...]
    next_position: int | None
    version: int
