"""Whether values that were read from JSON are of the types that a dataclass names for them."""

import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints


def is_of_type(value: object, wanted: Any) -> bool:
    """Whether a value is of a type: a class, a union, a tuple of any length, or a dataclass of such, checked through.

    A whole number is a number, too; a truth value is neither. Numbers must be finite.
    """
    origin = get_origin(wanted)
    if origin in (Union, UnionType):
        return any(is_of_type(value, each) for each in get_args(wanted))
    if origin is tuple:
        return isinstance(value, tuple) and all(is_of_type(item, get_args(wanted)[0]) for item in value)
    if isinstance(value, bool):
        return wanted is bool
    if wanted is float:
        return isinstance(value, int | float) and math.isfinite(value)
    if wanted is None or wanted is NoneType:
        return value is None
    return isinstance(value, wanted) and all(
        is_of_type(getattr(value, name), hint) for name, hint in _hints(wanted).items()
    )


@cache
def _hints(wanted: type) -> Mapping[str, Any]:
    """The fields of a dataclass; of any other class, none."""
    if not is_dataclass(wanted):
        return {}
    return get_type_hints(wanted)
