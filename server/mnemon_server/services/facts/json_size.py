"""Measures how many values a JSON value contains."""

from collections.abc import Mapping
from typing import Any

MANY = 2_000
"""A JSON value with more values than this takes some milliseconds to walk."""


def holds_many(value: Any, *, most: int = MANY) -> bool:
    """Whether a JSON value contains more than `most` values. Visits no more than that."""
    waiting, count = [value], 0
    while waiting:
        item = waiting.pop()
        if not isinstance(item, Mapping | list | tuple):
            continue
        count += len(item)
        if count > most:
            return True
        waiting.extend(item.values() if isinstance(item, Mapping) else item)
    return False
