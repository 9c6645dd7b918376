"""The option that says where the parts of facts are in the records of another system."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from mnemon._cli.imports.facts import FieldMapping

_Command = TypeVar("_Command", bound=Callable[..., Any])

_PARTS = ("content", "key", "created_at", "updated_at", "embedding", "expires_at")
_SPREAD = "*"


def _as_mapping(context: click.Context, parameter: click.Parameter, pairs: tuple[str, ...]) -> FieldMapping | None:
    named: dict[str, str] = {}
    spread: list[str] = []
    for pair in (part.strip() for text in pairs for part in text.split(",")):
        target, equals, place = pair.partition("=")
        if not target or not equals or not place:
            raise click.BadParameter(f"{pair!r} is not part=field, such as content=memory", context, parameter)
        if target == _SPREAD:
            spread.append(place)
        elif target in named:
            raise click.BadParameter(f"{target!r} is given twice", context, parameter)
        else:
            named[target] = place
    if not named and not spread:
        return None
    if "content" not in named:
        raise click.BadParameter("say where the text is: content=memory", context, parameter)
    content, key, created_at, updated_at, embedding, ended = (named.pop(name, "") for name in _PARTS)
    expires = (ended,) if ended else ()
    return FieldMapping(content, key, created_at, updated_at, embedding, expires, values=named, spread=tuple(spread))


def map_option(command: _Command) -> _Command:
    """`--map`; the command gets `mapping`."""
    return click.option(
        "--map",
        "mapping",
        metavar="PART=FIELD",
        multiple=True,
        callback=_as_mapping,
        help="Read any system's export as facts: content=memory,key=id,created_at=time; any other part is a key of the"
        " value, and *=metadata spreads an object over them. Fields of fields are joined by dots; repeatable.",
    )(command)
