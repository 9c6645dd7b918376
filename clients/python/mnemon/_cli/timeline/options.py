"""Options that the commands for the timeline share: the fields of a new event, and filters."""

import functools
from typing import Any

import click

from mnemon._cli.memories.options import Command, comparison, joined, past, some
from mnemon._cli.semantic.options import SCOPE, scope_texts

_OWN = ("event_type", "event_time", "importance", "context", "source")
_FILTERS = ("event_types", "min_importance")


def event_options(command: Command) -> Command:
    """The fields of a new event, except content and metadata; the command gets the given ones as `fields`."""

    @functools.wraps(command)
    def with_fields(*args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in (*_OWN, *SCOPE)}
        return command(*args, fields={name: value for name, value in given.items() if value is not None}, **kwargs)

    for name, text in (
        ("source", "Where it comes from: user, conversation, skill, system, inferred, other."),
        ("context", "The context in which it happened."),
    ):
        with_fields = click.option(f"--{name}", callback=some, help=text)(with_fields)
    with_fields = click.option("--importance", type=click.FloatRange(0, 1), help="How much it matters.")(with_fields)
    with_fields = click.option(
        "--happened", "event_time", type=past, metavar="TIME|AGE", help="When it happened.  [default: now]"
    )(with_fields)
    with_fields = click.option(
        "--type",
        "event_type",
        callback=some,
        help="The type of event: conversation, task, reminder, emotion, preference, custom, other.",
    )(with_fields)
    return scope_texts(with_fields)


def which_events_options(command: Command) -> Command:
    """Filters for events, except for their time; the command gets `which`: keyword arguments of `EventFilters`."""

    @functools.wraps(command)
    def with_which(*args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in (*SCOPE, *_FILTERS)}
        given |= {"where": joined(kwargs.pop("comparisons"))}
        return command(*args, which={name: each for name, each in given.items() if each not in (None, ())}, **kwargs)

    with_which = click.option(
        "--where",
        "comparisons",
        type=comparison,
        metavar="COMPARISON",
        multiple=True,
        help="Only events for which this is true: metadata.score>=3, source!=inferred, content~tea; repeatable.",
    )(with_which)
    with_which = click.option(
        "--min-importance", type=click.FloatRange(0, 1), help="Only events of at least this importance."
    )(with_which)
    with_which = click.option("--type", "event_types", multiple=True, help="Only events of this type; repeatable.")(
        with_which
    )
    return scope_texts(with_which)


def window_options(command: Command) -> Command:
    """`--since` and `--until`: when it happened."""
    for flag, text in (("--until", "Only events until this time"), ("--since", "Only events since this time")):
        command = click.option(flag, type=past, metavar="TIME|AGE", help=f"{text}: 2027-01-31, 12h, 30d.")(command)
    return command
