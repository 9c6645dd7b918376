"""Options that the commands for memories share: the fields of a new memory, and filters."""

import functools
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from mnemon._cli.options import filter_option, split_comparison, typed
from mnemon._values.documents import FilterValue
from mnemon._values.filters import AllOf, Condition, Filter, Operator
from mnemon._values.memories import TAGS, DecayPolicy

Command = Callable[..., Any]

_OPERATORS = {
    "=": Operator.EQ,
    "!=": Operator.NE,
    ">": Operator.GT,
    ">=": Operator.GTE,
    "<": Operator.LT,
    "<=": Operator.LTE,
    "~": Operator.CONTAINS,
}
_COMPARISON = re.compile(r"([^=!<>~]+)(!=|>=|<=|=|>|<|~)(.*)", re.DOTALL)
_TIME_FIELDS = ("create_time", "update_time", "reinforce_time", "event_time", "record_time")
_OTHER_FIELDS = ("importance", "is_global")
"""Fields of records that are neither times nor texts."""

_AGE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|h|d|w)")
_AGE_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment(text: str) -> datetime | timedelta:
    """A point in time, or a distance from now: 2027-01-31, 2027-01-31T12:00+01:00, 90m, 12h, 30d or 2w."""
    if age := _AGE.fullmatch(text):
        try:
            return timedelta(**{_AGE_UNITS[age[2]]: float(age[1])})
        except OverflowError:
            raise click.BadParameter(f"{text!r} is too long") from None
    try:
        found = datetime.fromisoformat(text)
        return found if found.tzinfo else found.astimezone()
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is neither a time, such as 2027-01-31, nor a distance, such as 30d"
        ) from None


def past(text: str) -> datetime:
    """A point in time; a distance is counted back from now."""
    found = moment(text)
    return found if isinstance(found, datetime) else _now_and(-found, text)


def future(text: str) -> datetime:
    """A point in time; a distance is counted on from now."""
    found = moment(text)
    return found if isinstance(found, datetime) else _now_and(found, text)


def _now_and(distance: timedelta, text: str) -> datetime:
    try:
        return datetime.now(UTC) + distance
    except OverflowError:
        raise click.BadParameter(f"{text!r} is beyond the calendar") from None


def comparison(text: str) -> Filter:
    """`FIELD OPERATOR VALUE`, such as metadata.score>=3. Metadata gets the type that it looks like, any other value
    the type of its field.
    """
    example = "metadata.score>=3, agent!=claude or content~tea"
    field, operator, value = split_comparison(text, _COMPARISON, example, _OPERATORS)
    return Condition(field, _OPERATORS[operator], (_value(field, value),))


def _value(field: str, text: str) -> datetime | FilterValue:
    if field in _TIME_FIELDS:
        return past(text)
    found = typed(text)
    is_typed = isinstance(found, str) or field.startswith("metadata.") or field in _OTHER_FIELDS
    return found if is_typed else text


def some(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A text that is not empty, or None."""
    if value == "":
        raise click.BadParameter("must not be empty; leave the option out", context, parameter)
    return value


def memory_options(command: Command) -> Command:
    """The fields of a new memory, except content and metadata; the command gets the given ones as `fields`."""

    @functools.wraps(command)
    def with_fields(*args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in (*TAGS, "decay", "is_global")}
        return command(*args, fields={name: value for name, value in given.items() if value}, **kwargs)

    with_fields = click.option("--global", "is_global", is_flag=True, help="It is valid beyond its project and agent.")(
        with_fields
    )
    with_fields = click.option(
        "--decay",
        type=click.Choice([each.value for each in DecayPolicy]),
        help="How its confidence decays.  [default: stable]",
    )(with_fields)
    return _text_options(with_fields)


def which_options(command: Command) -> Command:
    """Filters for memories; the command gets `which`: keyword arguments of `MemoryFilters`."""

    @functools.wraps(command)
    def with_which(*args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in TAGS}
        given |= {"created_from": kwargs.pop("since"), "created_to": kwargs.pop("until")}
        given |= {"is_global": kwargs.pop("is_global"), "metadata": kwargs.pop("filters") or None}
        given |= {"where": joined(kwargs.pop("comparisons"))}
        return command(*args, which={name: value for name, value in given.items() if value is not None}, **kwargs)

    for flag, text in (
        ("--until", "Only memories created until this time"),
        ("--since", "Only memories created since this time"),
    ):
        with_which = click.option(flag, type=past, metavar="TIME|AGE", help=f"{text}: 2027-01-31, 12h, 30d.")(
            with_which
        )
    with_which = click.option(
        "--global/--not-global",
        "is_global",
        default=None,
        help="Only memories that are valid beyond their project and agent.",
    )(with_which)
    with_which = click.option(
        "--where",
        "comparisons",
        type=comparison,
        metavar="COMPARISON",
        multiple=True,
        help="Only memories for which this is true: metadata.score>=3, agent!=claude, content~tea; repeatable.",
    )(with_which)
    return _text_options(filter_option("memories")(with_which))


def _text_options(command: Command) -> Command:
    for name in reversed(TAGS):
        command = click.option(f"--{name}", name, callback=some, help=TAGS[name])(command)
    return command


def joined(comparisons: tuple[Filter, ...]) -> Filter | None:
    """One filter of all comparisons; None without comparisons."""
    if not comparisons:
        return None
    return comparisons[0] if len(comparisons) == 1 else AllOf(comparisons)
