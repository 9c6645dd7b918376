"""Options that the commands for facts and tools share: namespaces, and what must hold of facts."""

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from mnemon._cli.options import labels, split_comparison, typed

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPERATORS = {"=": "$eq", "!=": "$ne", ">": "$gt", ">=": "$gte", "<": "$lt", "<=": "$lte"}
_COMPARISON = re.compile(r"([^=!<>]+)(!=|>=|<=|=|>|<)(.*)", re.DOTALL)


def json_object(text: str) -> dict[str, Any]:
    """A JSON object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise click.BadParameter('must be a JSON object, such as {"content": "Ada likes tea."}')
    return found


def text_pair(text: str) -> tuple[str, str]:
    """`key=value`, both texts, split at the first `=`."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"{text!r} is not key=value, such as user_id=ada")
    return key, value


def _comparison(text: str) -> tuple[str, str, Any]:
    field, operator, value = split_comparison(text, _COMPARISON, "category=drinks or score>=3", _OPERATORS)
    return field, _OPERATORS[operator], typed(value)


def _as_where(
    context: click.Context, parameter: click.Parameter, comparisons: tuple[tuple[str, str, Any], ...]
) -> dict[str, Any] | None:
    where: dict[str, dict[str, Any]] = {}
    for key, operator, value in comparisons:
        if operator in where.setdefault(key, {}):
            raise click.BadParameter(f"{key!r} is compared in the same way twice", context, parameter)
        where[key][operator] = value
    return where or None


def which_facts_options(command: _Command) -> _Command:
    """`--below` and `--where`; the command gets `subtree` and `where`."""
    command = click.option(
        "--where",
        "where",
        type=_comparison,
        metavar="COMPARISON",
        multiple=True,
        callback=_as_where,
        help="Only facts for which this is true: category=drinks, score>=3; repeatable.",
    )(command)
    return click.option("--below", "subtree", is_flag=True, help="Include the namespaces below it.")(command)


def namespace_argument(*, required: bool) -> Callable[[_Command], _Command]:
    """NAMESPACE; the command gets `namespace`, without one ()."""
    return click.argument(
        "namespace",
        required=required,
        type=labels,
        callback=lambda context, parameter, value: value or (),
    )
