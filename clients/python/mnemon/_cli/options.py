"""Options that several commands share, and how their values are typed."""

import functools
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from mnemon._namespaces import likely_labels, namespace_labels, namespace_text
from mnemon._terminal import echo
from mnemon._values.documents import FilterValue, Scope, SearchMode

_Command = TypeVar("_Command", bound=Callable[..., Any])

_SCOPE_HELP = {
    "user": "The end user.",
    "household": "The group of users that shares the records.",
    "persona": "The persona that an agent speaks as.",
    "agent": "The agent that wrote the records.",
    "project": "The project or workspace.",
}

_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")


mode_option = click.option(
    "--mode",
    type=click.Choice([each.value for each in SearchMode]),
    default=SearchMode.HYBRID.value,
    show_default=True,
    help="Search by meaning, by word, or both.",
)


class Seconds(click.FloatRange):
    """A duration in seconds; click's ranges accept nan, and inf without an upper bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number."""
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value} is not a number of seconds, such as 30 or 0.5", param, ctx)
        return seconds


def typed(text: str) -> FilterValue:
    """The value that a text means: true, false, a whole number, a number, else text; quotes force text."""
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    if _WHOLE.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text) and ("." in text or "e" in text.lower()):
        return float(text)
    return text


def labels(text: str) -> tuple[str, ...]:
    """The labels of a namespace. Says so on standard error if the dots of a mail address have made several of it."""
    found = namespace_labels(text)
    if any("@" in label and "." not in label.partition("@")[2] for label in found[:-1]):
        echo(
            f"note: {text} has the labels {', '.join(found)}; a dot within a label has a backslash before it: "
            f"'{namespace_text(likely_labels(text))}'",
            err=True,
        )
    return found


def split_comparison(
    text: str, pattern: re.Pattern[str], example: str, operators: Iterable[str]
) -> tuple[str, str, str]:
    """Field, operator and value of a comparison. A value that begins with an operator is an error, unless quoted."""
    found = pattern.fullmatch(text)
    if not found or found[3].lstrip()[:1] in ("=", "!", "<", ">", "~"):
        raise click.BadParameter(
            f"{text!r} is not a comparison, such as {example}; the operators are {' '.join(operators)}; "
            'quotes force text: field="=text"'
        )
    return found[1].strip(), found[2], found[3].strip()


def key_value(text: str) -> tuple[str, FilterValue]:
    """`key=value`, split at the first `=`, the value typed."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.BadParameter(f'{text!r} is not key=value, such as topic=travel, year=2024 or code="007"')
    return key, typed(value)


def as_mapping(
    context: click.Context, parameter: click.Parameter, pairs: tuple[tuple[str, FilterValue], ...]
) -> dict[str, FilterValue]:
    """The pairs of a repeatable option by their keys."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise click.BadParameter("a key is given twice", context, parameter)
    return found


def filter_option(noun: str) -> Callable[[_Command], _Command]:
    """`--filter key=value`, repeatable; the command gets `filters`."""
    text = (
        f'Only {noun} with this metadata; repeatable. true, false and numbers keep their type; "quotes" make it text.'
    )
    return click.option(
        "--filter", "filters", type=key_value, metavar="KEY=VALUE", multiple=True, callback=as_mapping, help=text
    )


def meta_option(noun: str) -> Callable[[_Command], _Command]:
    """`--meta key=value`, repeatable; the command gets `metadata`."""
    text = f'Metadata for every {noun}; repeatable. true, false and numbers keep their type; "quotes" make it text.'
    return click.option(
        "--meta", "metadata", type=key_value, metavar="KEY=VALUE", multiple=True, callback=as_mapping, help=text
    )


def limit_option(default: int, *, maximum: int | None = None) -> Callable[[_Command], _Command]:
    """`--limit`, which is also `--top-k`, `-k` and `-n`; the command gets `limit`. Without a maximum, 0 means all."""
    text = "Maximum number; 0 for all." if maximum is None else "Maximum number of results."
    return click.option(
        "--limit",
        "--top-k",
        "-k",
        "-n",
        type=click.IntRange(min=0) if maximum is None else click.IntRange(1, maximum),
        # Several, so that two that differ are an error: by itself, the last one would win.
        multiple=True,
        default=(default,),
        show_default=True,
        callback=_one_limit,
        help=text,
    )


def _one_limit(context: click.Context, parameter: click.Parameter, given: tuple[int, ...]) -> int:
    if len(set(given)) > 1:
        raise click.BadParameter(f"one number is meant, not {' and '.join(map(str, given))}", context, parameter)
    return given[0]


def json_option(command: _Command) -> _Command:
    """`--json`; the command gets `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(command)


def take_over_option(command: _Command) -> _Command:
    """`--take-over`; the command gets `take_over`."""
    about = "Replace documents of the same ids that are of another scope or folder."
    return click.option("--take-over", is_flag=True, help=about)(command)


def scope_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--user`, `--household`, `--persona`, `--agent` and `--project`; the command gets `scope`."""

    @functools.wraps(command)
    def with_scope(*args: Any, **kwargs: Any) -> Any:
        scope = Scope(**{name: kwargs.pop(name) or "" for name in _SCOPE_HELP})
        return command(*args, scope=scope, **kwargs)

    for name in reversed(_SCOPE_HELP):
        with_scope = click.option(f"--{name}", help=_SCOPE_HELP[name])(with_scope)
    return with_scope
