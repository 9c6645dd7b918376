"""The values of merge rules that callers give and get."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from mnemon._values.documents import JsonValue, WriteOutcome, WriteReceipt

MergeRule: TypeAlias = Mapping[str, Any]
"""A merge rule as JSON values. Missing keys are inherited. All keys, with an example of each:

    {"name": "household", "description": "...", "extends": "default", "priority": 5, "enabled": True,
     "conditions": {"users": ["u"], "personas": ["p"], "sources": ["user"],
                    "origins": ["user"], "importance_min": 0.2, "importance_max": 1.0},
     "detection": {"semantic_threshold": 0.8, "keyword_threshold": 0.5, "time_window_s": 300.0,
                   "importance_delta": 0.4, "relation_threshold": 0.3,
                   "signals": ["semantic", "keyword", "time", "importance", "relation"],
                   "required_signals": ["semantic", "keyword", "relation"]},
     "arbitration": {"priority_importance": True, "priority_recency": True, "priority_source": True,
                     "weights": {"importance": 0.4, "recency": 0.3, "source": 0.2, "semantic": 0.1},
                     "merge_threshold": 0.2, "allow_merge": True, "default_strategy": "keep-candidate",
                     "source_priority": {"user": 10.0}},
     "merge": {"content_strategy": "smart", "importance_strategy": "boost", "importance_boost": 0.1,
               "timestamp_strategy": "max", "source_strategy": "prefer-higher", "keywords_strategy": "union",
               "deduplicate": True, "deduplication_threshold": 0.8, "deduplication_guard": True,
               "keep_history": True}}

Strategies: default_strategy is keep-candidate, keep-existing or reject; content_strategy concatenate, replace,
summarize or smart; importance_strategy max, boost or average; timestamp_strategy max or min; source_strategy
prefer-higher, first or second; keywords_strategy union or intersection.
"""


class RuleOrder(StrEnum):
    """The order of a list of rules: as they were registered, or as they are tried."""

    REGISTRATION = "registration"
    MATCHING = "matching"


@dataclass(frozen=True, slots=True)
class StoredRule(JsonValue):
    """A rule as it was written."""

    rule: dict[str, Any]
    revision: int
    """Grows by one with every change of this rule; 0 of a "default" that was never changed."""
    registry_version: int
    """1 at first, one more with every change of any rule."""
    warnings: tuple[str, ...] = ()
    """Surprises: a rule without conditions applies to every statement, so that "default" is used for none, and
    a setting of a signal that the rule does not evaluate has no effect.
    """


@dataclass(frozen=True, slots=True)
class ResolvedRule(JsonValue):
    """A rule with all that it inherits."""

    rule: dict[str, Any]
    """Every key is set, except conditions that no rule sets."""
    origins: dict[str, str]
    """Which rule gave each field, such as "arbitration.merge_threshold"; empty for the program's own default."""
    ancestors: tuple[str, ...]
    """The rules that it inherits from, nearest first."""


@dataclass(frozen=True, slots=True)
class RulePage(JsonValue):
    """A page of rules as they were written; `next_page_token` is empty after the last one."""

    rules: tuple[dict[str, Any], ...]
    next_page_token: str
    registry_version: int


@dataclass(frozen=True, slots=True)
class RuleDeleteReceipt(JsonValue):
    """The result of removing a rule, and the version of the registry."""

    receipt: WriteReceipt
    registry_version: int

    @property
    def deleted(self) -> bool:
        """False if the rule did not exist."""
        return self.receipt.outcome == WriteOutcome.DELETED


@dataclass(frozen=True, slots=True)
class LoadReceipt(JsonValue):
    """How many rules were new, replaced by something else, and removed."""

    registered_count: int
    updated_count: int
    deleted_count: int
    registry_version: int
    warnings: tuple[str, ...] = ()
    """The warnings of the rules that were loaded."""
