"""The HTTP server: binds its address, keeps its connections within their limits, and drains."""

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import Any

from uvicorn import Config
from uvicorn.server import ServerState

from mnemon_server.config.address import Address
from mnemon_server.config.settings import Settings
from mnemon_server.transport.http.connection import KEEP_ALIVE_S, Connection
from mnemon_server.transport.listening import cannot_listen, private_files, require_free
from mnemon_server.transport.options import HANDSHAKE_TIMEOUT_MS
from mnemon_server.transport.tls import server_context

ACCEPTED_AT_ONCE, BACKLOG = 64, 4096
"""So many connections are taken in a turn of the loop, by uvloop one. Others wait in the kernel, which may have a lower
limit of its own (`net.core.somaxconn`)."""
UNSENT_BYTES_MAX = 128 << 10
"""The bytes of an answer that wait in the kernel, beyond those on their way; without a reader, no more are written."""
_SWEEP_S, _POLL_S = 0.25, 0.02
_MARGIN_S = 1.0
"""So much longer than a call may wait for its request: then the call itself says that it is late."""


class HttpServer:
    """Serves an ASGI application in the running event loop.

    uvicorn's own server would install handlers of signals, and has no limit for headers and for handshakes.
    """

    def __init__(self, settings: Settings, address: Address, application: Callable[..., Any]) -> None:
        """Binds nothing yet. `settings` has the limits, and the files of TLS."""
        self._settings = settings
        self._address = address
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        config = Config(
            application,
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            proxy_headers=False,
            access_log=False,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        config.load()
        self._state = ServerState()
        self._protocol = partial(Connection, config, self._state, connections_max=settings.connections_max)
        self._listening: list[asyncio.Server] = []
        self._sweep: asyncio.Task[None] | None = None

    @property
    def address(self) -> Address:
        """Where it listens; port 0 has become the port that was free."""
        return self._address

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._state.connections)

    async def start(self) -> None:
        """Binds the address.

        Raises:
            ConfigurationError: the address is taken, or a TLS file cannot be read.
        """
        address, context = self._address, server_context(self._settings)
        require_free(address)
        try:
            sockets = bound(address)
        except OSError as error:
            raise cannot_listen(address, error) from error
        if not address.socket_path:
            self._address = address.at_port(sockets[0].getsockname()[1])
        tls: dict[str, Any] = {"ssl": context, "ssl_handshake_timeout": HANDSHAKE_TIMEOUT_MS / 1000} if context else {}
        create = asyncio.get_running_loop().create_server
        for each in sockets:
            self._listening.append(await create(self._protocol, sock=each, backlog=ACCEPTED_AT_ONCE, **tls))
            each.listen(BACKLOG)
        self._sweep = asyncio.create_task(self._keep_within_limits())

    async def stop(self, grace_s: float) -> None:
        """Takes no further connection or request, and ends calls that are not answered within the time."""
        if not self._listening:
            return
        for each in self._listening:
            each.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        if tasks := set(self._state.tasks):
            await asyncio.wait(tasks, timeout=grace_s)
        for task in (left := set(self._state.tasks)):
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_MARGIN_S)
        await self._flush()
        if self._sweep is not None:
            self._sweep.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweep
        self._listening = []

    async def _flush(self) -> None:
        """Gives the last answers time to leave."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_MARGIN_S):
                while self._state.connections:  # noqa: ASYNC110 - uvicorn only keeps a set of them
                    await asyncio.sleep(_POLL_S)
        for connection in list(self._state.connections):
            connection.transport.abort()

    async def _keep_within_limits(self) -> None:
        seconds = self._settings.request_timeout_s + _MARGIN_S
        loop = asyncio.get_running_loop()
        while True:
            # uvicorn writes these into every answer.
            self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
            now = loop.time()
            for connection in list(self._state.connections):
                if isinstance(connection, Connection):
                    connection.end_late(now, seconds=seconds)
            await asyncio.sleep(_SWEEP_S)


def bound(address: Address) -> list[socket.socket]:
    """Sockets that listen at an address. Raises OSError if it is taken, or is not of this machine."""
    sockets: list[socket.socket] = []
    try:
        for family, where in _places(address):
            with private_files():
                sockets.append(socket.create_server(where, family=family, backlog=BACKLOG))
            sockets[-1].setblocking(False)
            if family != socket.AF_UNIX and hasattr(socket, "TCP_NOTSENT_LOWAT"):
                # Connections inherit it.
                sockets[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets


def _places(address: Address) -> list[tuple[int, Any]]:
    """The families and addresses to bind: a host may have several."""
    if address.socket_path:
        path = Path(address.socket_path)
        if path.is_socket():
            path.unlink()  # A server that ends leaves it.
        return [(socket.AF_UNIX, address.socket_path)]
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, where) for family, _, _, _, where in found))
