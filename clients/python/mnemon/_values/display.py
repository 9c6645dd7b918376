"""Short forms of values for people: a line for a prompt, a table for a notebook."""

from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from html import escape
from typing import Any

_TEXT_MAX = 80
_ITEMS_MAX = 5


def short_repr(value: Any) -> str:
    """A line with the fields that are not at their defaults. Long texts are cut, and only the first items are shown."""
    return f"{type(value).__name__}({', '.join(f'{name}={_short(given)}' for name, given in _set_fields(value))})"


def html_table(value: Any) -> str | None:
    """The items of an answer or a page, its first field, each as a row; None for a value that has none."""
    items = getattr(value, fields(value)[0].name)
    if not _are_values(items):
        return None
    rows = [dict(_cells(item)) for item in items]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    lines = ("".join(f"<td>{row.get(name, '')}</td>" for name in columns) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _set_fields(value: Any) -> Iterator[tuple[str, Any]]:
    for each in fields(value):
        default = each.default if each.default_factory is MISSING else each.default_factory()
        given = getattr(value, each.name)
        if each.repr and (default is MISSING or given != default):
            yield each.name, given


def _cells(item: Any) -> Iterator[tuple[str, str]]:
    """The fields of an item as HTML, with those of the record in it."""
    for name, given in _set_fields(item):
        if is_dataclass(given):
            yield from _cells(given)
        else:
            yield name, escape(given if isinstance(given, str) else _short(given))


def _are_values(given: Any) -> bool:
    return isinstance(given, tuple) and bool(given) and all(map(is_dataclass, given))


def _short(given: Any) -> str:
    match given:
        case str() if len(given) > _TEXT_MAX:
            return repr(given[: _TEXT_MAX - 1] + "…")
        case str():
            return repr(str(given))
        case datetime():
            return given.isoformat(" ", "seconds")
        case float():
            return f"{given:.4g}"
        case tuple() | list():
            more = [f"… {len(given) - _ITEMS_MAX:,} more"] if len(given) > _ITEMS_MAX else []
            return f"[{', '.join([*map(_short, given[:_ITEMS_MAX]), *more])}]"
        case dict():
            return f"{{{', '.join(f'{name!r}: {_short(each)}' for name, each in given.items())}}}"
        case _:
            return repr(given)
