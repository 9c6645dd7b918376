"""A vault inside this program: clients that start a server on a thread of this process and connect to it."""

import asyncio
import os
import sys
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

import grpc

from mnemon._async.client import AsyncClient
from mnemon._channel import DEFAULT_TIMEOUT_S, Target
from mnemon._connection import AsyncConnection, Connection
from mnemon._status import error_from_start
from mnemon._sync.client import Client

if TYPE_CHECKING:
    from mnemon_server.embedded import EmbeddedServer


_open: "weakref.WeakSet[Connection | AsyncConnection]" = weakref.WeakSet()


class Mnemon(Client):
    """The vault in a folder, opened by this program; no separate server is needed. Safe to share between threads.

        memory = Mnemon("notes")
        memory.remember("Ada dislikes early flights.", user="ada")
        memory.close()

    It is a `Client` with all its methods and guarantees. `with` closes it; so does the end of the program, and the
    garbage collector if the program drops it. It also works where an event loop runs, as in a notebook.
    """

    def __init__(self, data_dir: str | PathLike[str], *, timeout: float = DEFAULT_TIMEOUT_S, **settings: Any) -> None:
        """Opens the vault, and creates the folder if it does not exist.

        Args:
            data_dir: the folder. It can be open once at a time, in one program.
            timeout: the deadline of each call in seconds; every method can override it.
            settings: settings of `mnemon-server` by name, except `listen`. No file and no environment variable is read.

        Raises:
            ConfigurationError: a setting is invalid, the model is not available, or the folder cannot be used; for
                example, it is already open. The message says what to do.
            ImportError: the packages of the server are not installed.
        """
        self._server = _start(data_dir, settings)
        try:
            with _client_errors():
                self._server.wait_until_ready()
        except BaseException:
            self._server.stop()
            raise
        self._use(Connection(_target(self._server, timeout), name=str(self._server.folder)))
        _stop_with(self._connection, self._server)

    def close(self) -> None:
        """Ends the calls in flight and closes the vault. Calling it again does nothing."""
        super().close()
        self._server.stop()


class AsyncMnemon(AsyncClient):
    """Like `Mnemon`, for the running event loop. The server uses another one.

        async with AsyncMnemon("notes") as memory:
            await memory.remember("Ada dislikes early flights.", user="ada")

    `async with` waits for the vault without blocking the event loop. Without it, the first call blocks the loop until
    the vault is open, and raises what opening it raises; `await memory.close()` closes it.
    """

    def __init__(self, data_dir: str | PathLike[str], *, timeout: float = DEFAULT_TIMEOUT_S, **settings: Any) -> None:
        """Starts to open the vault. Arguments and errors are those of `Mnemon`."""
        self._server = _start(data_dir, settings)
        self._use(_VaultConnection(self._server, timeout))
        _stop_with(self._connection, self._server)

    async def __aenter__(self) -> Self:
        try:
            with _client_errors():
                await asyncio.to_thread(self._server.wait_until_ready)
        except BaseException:
            await self.close()
            raise
        return await super().__aenter__()

    async def close(self) -> None:
        """Ends the calls in flight and closes the vault. Calling it again does nothing."""
        await super().close()
        await asyncio.to_thread(self._server.stop)


class _VaultConnection(AsyncConnection):
    """A connection whose first call waits until the vault is open."""

    def __init__(self, server: "EmbeddedServer", timeout: float) -> None:
        super().__init__(_target(server, timeout), name=str(server.folder))
        self._server = server

    def open_channel(self) -> grpc.aio.Channel:
        """The channel. Raises what opening the vault raises, and ClientClosedError if the client is closed."""
        channel = super().open_channel()
        with _client_errors():
            self._server.wait_until_ready()
        return channel


def _start(data_dir: str | PathLike[str], settings: Mapping[str, Any]) -> "EmbeddedServer":
    """Starts the server for a constructor of this module."""
    try:
        from mnemon_server.embedded import EmbeddedServer
    except ImportError as error:
        raise ImportError(
            f"a vault inside a program needs the server ({error}): pip install mnemon-server", name=error.name
        ) from error
    program = sys._getframe(2)
    with _client_errors():
        return EmbeddedServer(data_dir, settings, opened_at=f"{program.f_code.co_filename}:{program.f_lineno}")


def _target(server: "EmbeddedServer", timeout: float) -> Target:
    return Target(server.address, None, timeout)


def _stop_with(connection: Connection | AsyncConnection, server: "EmbeddedServer") -> None:
    """Stops the server when the connection is collected, and with it the client and all its objects.

    It does not wait, since that can happen on any thread.
    """
    # The server itself stops when the program ends.
    weakref.finalize(connection, server.request_stop).atexit = False
    _open.add(connection)


def _leave_to_the_parent() -> None:
    """Closes the copies of its parent's vaults in the child of a fork, without touching what the parent uses."""
    for connection in _open:
        connection.closed_because = (
            f"the vault in {connection.name!r} was opened before this process was forked, and belongs to its parent: "
            "open it after the fork in one process, or let the processes share a server"
        )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)


@contextmanager
def _client_errors() -> Iterator[None]:
    """Raises the server's errors as the client's."""
    from mnemon_server.domain.errors import MnemonError

    try:
        yield
    except MnemonError as error:
        raise error_from_start(str(error), reason=error.reason) from error
