"""Options that say which documents a command is about."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from mnemon._cli.memories.options import comparison, joined
from mnemon._cli.options import filter_option, scope_options
from mnemon._values.documents import Scope

Command = TypeVar("Command", bound=Callable[..., Any])


def which_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--filter`, `--where` and the scope; the command gets `which`: those given, as arguments of the client."""

    @functools.wraps(command)
    def with_which(*args: Any, **kwargs: Any) -> Any:
        scope = kwargs.pop("scope")
        which = {
            "filters": kwargs.pop("filters") or None,
            "scope": scope if scope != Scope() else None,
            "where": joined(kwargs.pop("comparisons")),
        }
        return command(*args, which={name: value for name, value in which.items() if value is not None}, **kwargs)

    where = click.option(
        "--where",
        "comparisons",
        type=comparison,
        metavar="COMPARISON",
        multiple=True,
        help="Only documents for which this is true: metadata.year>=2020, agent!=claude, content~tea; repeatable.",
    )
    return filter_option("documents")(where(scope_options(with_which)))


def lenient_option(command: Command) -> Command:
    """`--lenient`; the command gets `lenient`."""
    text = (
        "Ignore a --filter whose key no document has, find nothing by another type of value, and say so; do not fail."
    )
    return click.option("--lenient", is_flag=True, help=text)(command)
