"""LangGraph's filters: the part that the server evaluates, and the rest, which the client evaluates."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mnemon._values.facts import Fact
from mnemon.shared.errors import InvalidArgumentError
from mnemon.shared.namespaces import is_unicode
from mnemon.shared.tool_definitions import FILTER_OPERATORS

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""Keys that the server can compare: only those at the top of a value."""
_WHOLE_MAX = 2**53
_TEXT_BYTES_MAX = 65_536
_LIST_MAX = 256
_SEVERAL = ("$in", "$nin")
_MISSING = object()


@dataclass(frozen=True, slots=True)
class SplitFilter:
    """A filter in two parts. A record must match both."""

    asked: dict[str, Any]
    """For the server."""
    rest: dict[str, Any]

    @classmethod
    def of(cls, where: Mapping[str, Any] | None) -> "SplitFilter":
        """Both parts of a filter. Raises InvalidArgumentError for an unknown operator."""
        asked: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        for key, wanted in (where or {}).items():
            _check(f"filter.{key!s:.80}", wanted)
            (asked if _is_for_the_server(key, wanted) else rest)[key] = wanted
        return cls(asked, rest)

    def holds(self, fact: Fact) -> bool:
        """Whether the rest is true of a fact."""
        return all(_matches(_found(fact, key), wanted) for key, wanted in self.rest.items())


def _check(place: str, wanted: object) -> None:
    if not isinstance(wanted, Mapping):
        return
    for key, value in wanted.items():
        if not _has_operators(wanted):
            _check(f"{place}.{key!s:.80}", value)
        elif key not in FILTER_OPERATORS:
            known = ", ".join(FILTER_OPERATORS)
            raise InvalidArgumentError.of(place, f"Unsupported operator: {key!s:.80}; the operators are {known}")
        elif key in _SEVERAL and not isinstance(value, list | tuple):
            raise InvalidArgumentError.of(place, f"{key} takes a list")


def _is_for_the_server(key: object, wanted: object) -> bool:
    if not isinstance(key, str) or not _PLAIN_KEY.fullmatch(key):
        return False
    if not isinstance(wanted, Mapping):
        return _is_comparable(wanted)
    return bool(wanted) and _has_operators(wanted) and all(_is_taken(sign, value) for sign, value in wanted.items())


def _is_taken(sign: str, value: Any) -> bool:
    if sign in _SEVERAL:
        return 0 < len(value) <= _LIST_MAX and all(map(_is_comparable, value))
    if sign in ("$eq", "$ne"):
        return _is_comparable(value)
    return not isinstance(value, bool | list | tuple) and _is_comparable(value)


def _is_comparable(value: object) -> bool:
    match value:
        case bool():
            return True
        case int():
            return -_WHOLE_MAX <= value <= _WHOLE_MAX
        case float():
            return math.isfinite(value)
        case str():
            return "\0" not in value and is_unicode(value) and len(value.encode()) <= _TEXT_BYTES_MAX
        case list() | tuple():
            return len(value) <= _LIST_MAX and all(isinstance(item, str) and _is_comparable(item) for item in value)
    return False


def _has_operators(wanted: Mapping[Any, Any]) -> bool:
    return any(str(key).startswith("$") for key in wanted)


def _found(fact: Fact, key: str) -> Any:
    """The value of a fact under a key, or under the keys of a dotted one; None if it is missing."""
    value = _at(fact.value, key)
    return fact.metadata.get(key) if value is _MISSING else value


def _at(value: Mapping[str, Any], path: str) -> Any:
    """The value under keys joined by dots, where a key may contain dots itself; else _MISSING."""
    if path in value:
        return value[path]
    parts = path.split(".")
    for count in range(1, len(parts)):
        inner = value.get(".".join(parts[:count]))
        if isinstance(inner, Mapping) and (found := _at(inner, ".".join(parts[count:]))) is not _MISSING:
            return found
    return _MISSING


def _matches(stored: Any, wanted: Any) -> bool:
    """Compares as LangGraph's own store does: an object by the given keys, a list item by item."""
    if isinstance(wanted, Mapping) and _has_operators(wanted):
        return all(_applies(stored, sign, value) for sign, value in wanted.items())
    if isinstance(wanted, Mapping):
        return isinstance(stored, Mapping) and all(
            _matches(None if (inner := _at(stored, key)) is _MISSING else inner, each) for key, each in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return isinstance(stored, list | tuple) and len(stored) == len(wanted) and all(map(_matches, stored, wanted))
    return _kind(stored) is _kind(wanted) and bool(stored == wanted)


def _applies(stored: Any, sign: str, value: Any) -> bool:
    match sign:
        case "$eq":
            return _matches(stored, value)
        case "$ne":
            return not _matches(stored, value)
        case "$in":
            return any(_matches(stored, each) for each in value)
        case "$nin":
            return not any(_matches(stored, each) for each in value)
    if _kind(stored) is not _kind(value) or _kind(stored) not in (float, str):
        return False
    match sign:
        case "$gt":
            return bool(stored > value)
        case "$gte":
            return bool(stored >= value)
        case "$lt":
            return bool(stored < value)
    return bool(stored <= value)


def _kind(value: object) -> type:
    """True is not a number, and 1 equals 1.0."""
    return float if isinstance(value, int | float) and not isinstance(value, bool) else type(value)
