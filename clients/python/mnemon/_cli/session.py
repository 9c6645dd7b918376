"""The session of a command: the client, opened when it is first needed, and where output goes."""

import os
import sys
import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any, TypeVar

import click
from rich.console import Console
from tzlocal import get_localzone_name

from mnemon._async.client import AsyncClient
from mnemon._authorization import API_KEY_VARIABLE, key_in_environment
from mnemon._sync.client import Client
from mnemon.shared.errors import MnemonError, UnauthenticatedError
from mnemon.shared.terminal import printable

_AnyClient = TypeVar("_AnyClient", Client, AsyncClient)
_PIPE_COLUMNS = 100_000


class _Console(Console):
    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(printable(each) if isinstance(each, str) else each for each in objects), **options)


class Session:
    """One run of the command."""

    def __init__(
        self, context: click.Context, arguments: Mapping[str, Any], *, wait_s: float = 0.0, time_zone: str = ""
    ) -> None:
        """Opens the client with `arguments` once the server is ready, within `wait_s`. Without a time zone, days are
        those of this machine's.
        """
        self._context, self._arguments, self._time_zone = context, arguments, time_zone
        self.is_waiting = wait_s > 0
        self.as_json = False
        """Whether the command prints JSON for programs."""
        self._wait_s, self._ready_by = wait_s, time.monotonic() + wait_s
        self.console = _Console(highlight=False, width=_width())
        self.error_console = _Console(stderr=True, highlight=False)

    @cached_property
    def client(self) -> Client:
        """The client; closed when the command ends."""
        return self._context.with_resource(self._connected(Client))

    @cached_property
    def time_zone(self) -> str:
        """The name of the time zone of days; empty (UTC) if this machine's zone is unnamed."""
        try:
            return self._time_zone or get_localzone_name() or ""
        except LookupError:
            return ""

    def asyncio_client(self) -> AsyncClient:
        """A client for asyncio, which the caller closes."""
        return self._connected(AsyncClient)

    @property
    def wait_left_s(self) -> float:
        """The seconds that are left for waiting until the server is ready."""
        return max(0.0, self._ready_by - time.monotonic())

    def hint(self, error: MnemonError) -> str:
        """A hint after a refused call: where the credential came from."""
        says_who = any(self._arguments.get(name) is not None for name in ("api_key", "token"))
        key = key_in_environment(has_certificate=self._arguments.get("certificate_file") is not None)
        is_of_key = isinstance(error, UnauthenticatedError) and key and not says_who
        return f". The credential came from {API_KEY_VARIABLE}" if is_of_key else ""

    def _connected(self, kind: type[_AnyClient]) -> _AnyClient:
        try:
            if self.is_waiting:
                with Client(**self._arguments) as first:
                    first.wait_until_ready(self._wait_s)
            return kind(**self._arguments)
        except (ValueError, OSError) as error:
            raise click.UsageError(_in_options(str(error)), self._context) from error


_OPTIONS = {
    "tls=True": "--tls",
    "ca_file": "--ca",
    "certificate_file": "--certificate",
    "key_file": "--key",
    "insecure=True": "--insecure",
}


def _in_options(sentence: str) -> str:
    for argument, option in _OPTIONS.items():
        sentence = sentence.replace(argument, option)
    return sentence.replace(", or credentials)", ")").replace(" and credentials", "")


def _width() -> int | None:
    # A pipe has no width: text is not cut or wrapped there, and tables are as wide as their content.
    return None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_COLUMNS
