"""How much a JSON value holds."""

from collections.abc import Mapping
from typing import Any

MANY = 2_000
"""Values inside of one; to go over so many takes some milliseconds."""


def holds_many(value: Any, *, most: int = MANY) -> bool:
    """Whether a JSON value holds more than `most` others; looks at no more than that."""
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
