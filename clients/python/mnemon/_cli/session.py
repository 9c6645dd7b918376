"""What the commands share: the client, opened when it is first needed, and where output goes."""

import os
import sys
from functools import cached_property
from typing import TypeVar

import click
from rich.console import Console

from mnemon._async.client import AsyncClient
from mnemon._sync.client import Client

_AnyClient = TypeVar("_AnyClient", Client, AsyncClient)
_PIPE_COLUMNS = 100_000


class Session:
    """One run of the command."""

    def __init__(
        self, context: click.Context, *, address: str, timeout: float, tls: bool, ca_file: str | None, insecure: bool
    ) -> None:
        self._context = context
        self._address, self._timeout = address, timeout
        self._tls, self._ca_file, self._insecure = tls, ca_file, insecure
        self.console = Console(highlight=False, width=_width())
        self.error_console = Console(stderr=True, highlight=False)

    @cached_property
    def client(self) -> Client:
        """The client; closed when the command ends."""
        return self._context.with_resource(self._connected(Client))

    def asyncio_client(self) -> AsyncClient:
        """A client for asyncio, which the caller closes."""
        return self._connected(AsyncClient)

    def _connected(self, kind: type[_AnyClient]) -> _AnyClient:
        try:
            return kind(
                self._address, tls=self._tls, ca_file=self._ca_file, insecure=self._insecure, timeout=self._timeout
            )
        except ValueError as error:
            raise click.UsageError(_in_options(str(error)), self._context) from error


def _in_options(sentence: str) -> str:
    for argument, option in (("tls=True", "--tls"), ("ca_file", "--ca"), ("insecure=True", "--insecure")):
        sentence = sentence.replace(argument, option)
    return sentence.replace(", or credentials)", ")").replace(" and credentials", "")


def _width() -> int | None:
    # A pipe has no width: text is not cut or wrapped there, and tables are as wide as their content.
    return None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_COLUMNS
