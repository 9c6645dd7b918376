"""Options that the commands for statements share: the owner of a new statement, and filters."""

import functools
from typing import Any

import click

from mnemon._cli.memories.options import Command, comparison, joined, past, some
from mnemon._values.documents import SCOPE_FIELDS
from mnemon._values.memories import TAGS

SCOPE = {name: TAGS[name] for name in SCOPE_FIELDS} | {"user": "The user it belongs to."}


def whose_options(command: Command) -> Command:
    """The owner of a new statement; the command gets the options that are given, as `whose`. A user is required."""

    @functools.wraps(command)
    def with_whose(*args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in SCOPE}
        return command(*args, whose={name: value for name, value in given.items() if value is not None}, **kwargs)

    return scope_texts(with_whose, user_required=True)


def which_statements_options(command: Command) -> Command:
    """Filters for statements; the command gets `which`: keyword arguments of `SemanticFilters`."""

    @functools.wraps(command)
    def with_which(*args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in SCOPE}
        given |= {"created_from": kwargs.pop("since"), "created_to": kwargs.pop("until")}
        given |= {"where": joined(kwargs.pop("comparisons"))}
        return command(*args, which={name: value for name, value in given.items() if value is not None}, **kwargs)

    for flag, text in (
        ("--until", "Only statements learnt until this time"),
        ("--since", "Only statements learnt since this time"),
    ):
        with_which = click.option(flag, type=past, metavar="TIME|AGE", help=f"{text}: 2027-01-31, 12h, 30d.")(
            with_which
        )
    with_which = click.option(
        "--where",
        "comparisons",
        type=comparison,
        metavar="COMPARISON",
        multiple=True,
        help="Only statements for which this is true: importance>=0.5, source!=inferred, content~tea; repeatable.",
    )(with_which)
    return scope_texts(with_which)


def scope_texts(command: Command, *, user_required: bool = False) -> Command:
    """`--user`, `--household`, `--persona`, `--agent` and `--project`, each under its own name; none may be empty."""
    for name in reversed(SCOPE):
        required = user_required and name == "user"
        command = click.option(f"--{name}", name, required=required, callback=some, help=SCOPE[name])(command)
    return command
