"""The metadata index: the rows of a value, and the conditions on rows that filters compile to."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import apsw
import numpy as np

from mnemon_server.domain.clock import to_microseconds
from mnemon_server.domain.encoding import text_digest
from mnemon_server.domain.filters import Operator
from mnemon_server.domain.records import MetadataValue, value_type

INDEXED_TEXT_MAX = 256

ORDERINGS = {Operator.GT: ">", Operator.GTE: ">=", Operator.LT: "<", Operator.LTE: "<="}

_ROW_TYPES = {
    str: ("text", "digest"),
    bool: ("bool",),
    float: ("int", "float"),
    datetime: ("time",),
    tuple: ("item-text", "item-digest", "empty"),
}
RowCondition = tuple[str, tuple[Any, ...]]
"""A condition on the rows of the index, and its parameters."""


def metadata_rows(value: MetadataValue) -> list[tuple[str, Any]]:
    """Type and value of each row in the metadata index for a value."""
    if isinstance(value, tuple):
        return [item_row(item) for item in value] or [("empty", 0)]
    return [metadata_row(value)]


def metadata_types(value: MetadataValue | None) -> tuple[str, ...]:
    """The row types of all values with the same type as this one; empty for None."""
    return () if value is None else _ROW_TYPES[value_type(value)]


def metadata_row(value: MetadataValue) -> tuple[str, Any]:
    """Type and value of the row for a value that is not a list. A long text is represented by its digest."""
    match value:
        case bool():
            return "bool", int(value)
        case int():
            return "int", value
        case float():
            return "float", value
        case datetime():
            return "time", to_microseconds(value)
        case str() if len(value) <= INDEXED_TEXT_MAX:
            return "text", value
        case _:
            return "digest", text_digest(str(value))


def item_row(item: str) -> tuple[str, Any]:
    """Type and value of the row for an item of a list."""
    kind, stored = metadata_row(item)
    return f"item-{kind}", stored


def metadata_ranges(key: str, operator: Operator, values: Sequence[MetadataValue]) -> list[RowCondition] | None:
    """The rows that match a comparison with values that are not lists: one row of each matching document.

    None if the index alone cannot tell, because long texts are not in order in it.
    """
    if operator in ORDERINGS:
        return _ordered_range(key, ORDERINGS[operator], values[0])
    groups: dict[tuple[str, type], list[Any]] = {}
    for kind, value in (metadata_row(value) for value in values if not isinstance(value, tuple)):
        types = "type IN ('int', 'float')" if kind in ("int", "float") else f"type = '{kind}'"
        groups.setdefault((types, type(value)), []).append(value)
    compared = ((types, *comparison(wanted)) for (types, _), wanted in groups.items())
    return [(f"key = ? AND {types} AND value {sign}", (key, parameter)) for types, sign, parameter in compared]


def _ordered_range(key: str, sign: str, value: MetadataValue) -> list[RowCondition] | None:
    match value:
        case bool() | tuple():
            return []
        case int() | float():
            return [(f"key = ? AND type IN ('int', 'float') AND value {sign} ?", (key, value))]
        case datetime():
            return [(f"key = ? AND type = 'time' AND value {sign} ?", (key, to_microseconds(value)))]
        case _:
            return None


def comparison(wanted: Sequence[Any]) -> tuple[str, Any]:
    """The comparison with values of one type, and its single parameter, because statements have a limit of
    parameters.
    """
    if len(wanted) == 1:
        return "= ?", wanted[0]
    array = np.array(wanted) if isinstance(wanted[0], int | float) else tuple(wanted)
    return "IN (SELECT value FROM carray(?))", apsw.carray(array)
