"""One row of the table of settings: how its value is parsed, validated and shown."""

import dataclasses
import math
import os
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, overload

from mnemon_server.domain.errors import ConfigurationError

VARIABLE_PREFIX = "MNEMON_"
AUTOMATIC = "auto"

T = TypeVar("T")

Texts = tuple[str, ...]
"""The type of a setting that is a list: a list in TOML, otherwise a text separated by commas."""

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class Verbatim(str):
    """The type of a setting that is a text whose spaces count, also at its ends."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table of settings."""

    name: str
    type: type[Any]
    optional: bool
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    at_least: float = -math.inf
    at_most: float = math.inf
    also: str = ""
    """A second environment variable."""
    secret: bool = False

    @property
    def variables(self) -> tuple[str, ...]:
        """Environment variables that set it. The first one that is set is used."""
        own = f"{VARIABLE_PREFIX}{self.name.upper()}"
        return (own, self.also) if self.also else (own,)

    @property
    def flag(self) -> str:
        """Its flag for `mnemon-server serve`; empty for a secret, since other users can see the flags of a process."""
        return "" if self.secret else f"--{self.name.replace('_', '-')}"

    def show(self, value: object) -> str:
        """The value as a user would type it. Secrets are hidden."""
        if value is None:
            return "" if self.type is Path else AUTOMATIC
        if self.secret and value:
            return "********"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value).lower() if isinstance(value, bool) else str(value)


@overload
def setting(default: Callable[[], T], text: str) -> T: ...


@overload
def setting(default: T, text: str, **row: Any) -> T: ...


def setting(default: Any, text: str, **row: Any) -> Any:
    """A row of the table, as a field of its dataclass, with further attributes of a `Setting`."""
    row["help"] = text
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=row)
    return dataclasses.field(default=default, repr="secret" not in row, metadata=row)


def parse_value(row: Setting, raw: Any, origin: str) -> Any:
    """Converts `raw`, a text or a TOML value.

    Raises:
        ConfigurationError: the value is invalid. The message names the setting, value, origin and what would be valid.
    """
    if row.optional and raw in ("", AUTOMATIC):
        return None
    try:
        value = _PARSERS[row.type](raw)
    except (TypeError, ValueError):
        raise _refusal(row, raw, origin, _EXPECTED[row.type]) from None
    except RuntimeError:
        raise _refusal(row, raw, origin, "an absolute path, since the home that ~ stands for is not known") from None
    if row.choices and not _is_chosen(row, value):
        several = "one or more" if row.type == Texts else "one"
        raise _refusal(row, raw, origin, f"{several} of {', '.join(row.choices)}")
    if isinstance(value, int | float) and not row.at_least <= value <= row.at_most:
        raise _refusal(row, raw, origin, _bounds(row))
    return value


def _refusal(row: Setting, raw: object, origin: str, expected: str) -> ConfigurationError:
    shown = "the given value" if row.secret else repr(raw)
    return ConfigurationError(f"setting {row.name} ({origin}): {shown} is invalid; it must be {expected}")


def _is_chosen(row: Setting, value: Any) -> bool:
    if row.type == Texts:
        return bool(value) and all(item in row.choices for item in value)
    return value in row.choices


def _bounds(row: Setting) -> str:
    if row.at_most == math.inf:
        return f"{row.at_least:g} or more"
    return f"from {row.at_least:g} to {row.at_most:g}"


def _parse_bool(raw: Any) -> bool:
    if isinstance(raw, bool):
        return raw
    text = str(raw).strip().lower()
    if text not in (*_TRUE, *_FALSE):
        raise ValueError(text)
    return text in _TRUE


def _parse_int(raw: Any) -> int:
    if isinstance(raw, bool | float):
        raise TypeError(raw)
    return int(raw)


def _parse_float(raw: Any) -> float:
    if isinstance(raw, bool):
        raise TypeError(raw)
    value = float(raw)
    if not math.isfinite(value):
        raise ValueError(raw)
    return value


def _parse_text(raw: Any) -> str:
    if not isinstance(raw, str):
        raise TypeError(raw)
    return raw.strip()


def _parse_verbatim(raw: Any) -> Verbatim:
    if not isinstance(raw, str):
        raise TypeError(raw)
    return Verbatim(raw)


def _parse_path(raw: Any) -> Path:
    text = _parse_text(os.fspath(raw))
    if not text:
        raise ValueError(raw)
    return Path(text).expanduser()


def _parse_texts(raw: Any) -> Texts:
    items = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(items, list | tuple):
        raise TypeError(raw)
    return tuple(text for item in items if (text := _parse_text(item)))


_PARSERS: Mapping[type[Any], Any] = {
    bool: _parse_bool,
    int: _parse_int,
    float: _parse_float,
    str: _parse_text,
    Verbatim: _parse_verbatim,
    Path: lambda raw: raw if isinstance(raw, Path) else _parse_path(raw),
    Texts: _parse_texts,
}
_EXPECTED: Mapping[type[Any], str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Verbatim: "text",
    Path: "a path",
    Texts: "a list of texts, or a text separated by commas",
}


def settings_in(table: type[Any]) -> dict[str, Setting]:
    """The rows of a table of settings, by name."""
    hints = typing.get_type_hints(table)
    found = {}
    for row in dataclasses.fields(table):
        hint = hints[row.name]
        optional = isinstance(hint, types.UnionType)
        kind = typing.get_args(hint)[0] if optional else hint
        # Some defaults depend on the user; their texts say how.
        default = None if row.default is dataclasses.MISSING else row.default
        found[row.name] = Setting(name=row.name, type=kind, optional=optional, default=default, **row.metadata)
    return found
