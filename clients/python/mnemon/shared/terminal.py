"""Arguments of commands, and safe output: printed text cannot move the cursor or forge a line."""

import math
import re
from datetime import timedelta
from typing import Any

import click

_SPAN_MAX = timedelta(days=3_650_000)
"""Longer than any limit, and short enough for a message."""

# Control characters, Unicode line ends, characters that turn the direction of text, and unpaired surrogates.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_UNSAFE_IN_LINES = re.compile(_UNSAFE.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))


def printable(text: str, *, is_line: bool = False) -> str:
    r"""The text with unsafe characters as escapes such as `\u001b`, which mean the same in JSON.

    Line breaks and tabs pass, unless the text must stay one line.
    """
    # Every unsafe character is one that Python does not count as printable.
    if text.isprintable():
        return text
    return (_UNSAFE if is_line else _UNSAFE_IN_LINES).sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def echo(text: str, *, err: bool = False, is_line: bool = False) -> None:
    """Prints a text without its unsafe characters. Everything that a command prints goes this way, or through rich."""
    click.echo(printable(text, is_line=is_line), err=err)


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number of something, to read."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def filled(text: str) -> str:
    """Rejects an empty argument, such as an unset variable in a script."""
    if not text:
        raise click.BadParameter("must not be empty; a variable may be unset")
    return text


def span(number: float, unit: timedelta) -> timedelta:
    """So many units, capped at ten thousand years, so that range checks reject larger numbers and NaN."""
    most = _SPAN_MAX / unit
    # The order matters: `min` returns its first argument if the other is NaN.
    return max(-most, min(most, number)) * unit


class Seconds(click.FloatRange):
    """A duration in seconds; click's ranges accept nan, and inf without an upper bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number."""
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value} is not a number of seconds, such as 30 or 0.5", param, ctx)
        return seconds
