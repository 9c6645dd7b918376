"""A merge rule with every key."""

from typing import Any

FULL: dict[str, Any] = {
    "name": "household",
    "description": "Grüße",
    "extends": "default",
    "priority": -5,
    "enabled": False,
    "conditions": {
        "users": ["u", "v"],
        "personas": ["p"],
        "sources": ["user"],
        "origins": ["user", "web"],
        "importance_min": 0.25,
        "importance_max": 1.0,
    },
    "detection": {
        "semantic_threshold": 0.75,
        "keyword_threshold": 0.5,
        "time_window_s": 0.1,
        "importance_delta": 0.0,
        "relation_threshold": 0.25,
        "signals": ["semantic", "keyword", "time", "importance", "relation"],
        "required_signals": ["keyword"],
    },
    "arbitration": {
        "priority_importance": False,
        "priority_recency": True,
        "priority_source": True,
        "weights": {"importance": 0.4, "semantic": 0.0},
        "merge_threshold": 0.2,
        "allow_merge": True,
        "default_strategy": "keep-existing",
        "source_priority": {"user": 10.0, "a form": 2.5},
    },
    "merge": {
        "content_strategy": "smart",
        "importance_strategy": "average",
        "importance_boost": 0.1,
        "timestamp_strategy": "min",
        "source_strategy": "prefer-higher",
        "keywords_strategy": "intersection",
        "deduplicate": False,
        "deduplication_threshold": 0.8,
        "deduplication_guard": False,
        "keep_history": True,
    },
}
