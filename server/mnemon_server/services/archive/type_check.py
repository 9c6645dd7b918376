"""Whether values that were read from JSON have the types that a dataclass names, and fit into a message."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from datetime import timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.records import COUNT_MAX, DURATION_MAX


def is_of_type(value: object, wanted: Any) -> bool:
    """Whether a value has a type: a class, a union, a tuple of any length, or a dataclass of such, field by field.

    A whole number is also a number; a boolean is neither. Numbers must be finite.
    """
    origin = get_origin(wanted)
    if origin in (Union, UnionType):
        return any(is_of_type(value, each) for each in get_args(wanted))
    if origin is tuple:
        return isinstance(value, tuple) and all(is_of_type(item, get_args(wanted)[0]) for item in value)
    if isinstance(value, bool):
        return wanted is bool
    if wanted is float:
        # Not `isfinite`, which fails for a whole number beyond the range of a float.
        return isinstance(value, int | float) and abs(value) <= sys.float_info.max
    if wanted is None or wanted is NoneType:
        return value is None
    return isinstance(value, wanted) and all(
        is_of_type(getattr(value, name), hint) for name, hint in _hints(wanted).items()
    )


def figure_violations(value: Any, place: str) -> Iterator[FieldViolation]:
    """The counts and lengths of time in a value of the right type that do not fit into a message."""
    if isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from figure_violations(item, f"{place}[{number}]")
    elif isinstance(value, timedelta):
        if not timedelta(0) <= value <= DURATION_MAX:
            yield FieldViolation(place, f"must be 0 to {DURATION_MAX.total_seconds():,.0f} seconds")
    else:
        kind: type = type(value)
        for name, hint in _hints(kind).items():
            item = getattr(value, name)
            if hint is int and not 0 <= item <= COUNT_MAX:
                yield FieldViolation(f"{place}.{name}", f"must be 0 to {COUNT_MAX:,}")
            yield from figure_violations(item, f"{place}.{name}")


@cache
def _hints(wanted: type) -> Mapping[str, Any]:
    """The types of a dataclass's fields, by name; empty for any other class."""
    if not is_dataclass(wanted):
        return {}
    return get_type_hints(wanted)
