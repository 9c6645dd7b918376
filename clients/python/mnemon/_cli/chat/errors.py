"""Refused fields, by the names that the command has for them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import click

from mnemon.shared.errors import InvalidArgumentError

_OWN = {
    "conversation_id": "CONVERSATION",
    "content": "TEXT",
    "message_id": "--id",
    "message_time": "--happened",
    "message_ids": "--message",
    "metadata": "--meta",
    "kinds": "--kind",
}
_FIELD = re.compile(r"(?:messages\[\d+\]\.|scope\.)?(\w+)")


def problem_of(error: InvalidArgumentError) -> str:
    """Says what is wrong, without the place of the message in the request."""
    said = (f"{_within(each.field)}: {each.description}" for each in error.violations)
    return "; ".join(said) or error.message


@contextmanager
def named_as_options() -> Iterator[None]:
    """Shows a refused field as the option, or the argument, that it comes from."""
    try:
        yield
    except InvalidArgumentError as error:
        said = (f"{_option(each.field)}: {each.description}" for each in error.violations)
        raise click.UsageError("; ".join(said) or error.message) from error


def _within(field: str) -> str:
    return re.sub(r"^messages?(\[\d+\])?\.", "", field)


def _option(field: str) -> str:
    found = _FIELD.match(field)
    name = found[1] if found else field
    return _OWN.get(name, f"--{name.replace('_', '-')}")
