"""Takes new connections in turn. Until then they wait in the kernel, where they cost the others nothing."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mnemon_server.config.address import Address
from mnemon_server.transport.interceptors.low_priority import LowPriority
from mnemon_server.transport.listening import private_files

BACKLOG = 4096
"""So many connections wait in the kernel, which may have a lower limit of its own (`net.core.somaxconn`)."""
UNSENT_BYTES_MAX = 128 << 10
"""Of an answer, so much waits in the kernel, beyond what is on its way: a client that does not read gets no more."""
_PAUSE_S = 0.1
"""After a connection could not be taken, mostly since too many files are open."""


class Acceptor:
    """Takes the connections that wait at the sockets of a server. Belongs to one event loop.

    A server of asyncio takes all of them in one turn of the loop, and a handshake of TLS takes a millisecond.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        protocol: Callable[[], asyncio.Protocol],
        line: LowPriority,
        *,
        context: ssl.SSLContext | None,
        handshake_s: float,
    ) -> None:
        """Begins at once.

        Args:
            sockets: listen; belong to this.
            protocol: makes the protocol of a connection.
            line: in which connections wait.
            context: for TLS.
            handshake_s: how long its handshake may take.
        """
        self._sockets = sockets
        self._protocol = protocol
        self._line = line
        self._tls: dict[str, Any] = {"ssl": context, "ssl_handshake_timeout": handshake_s} if context else {}
        self._beginning: set[asyncio.Task[object]] = set()
        self._tasks = [asyncio.create_task(self._accept(each)) for each in sockets]

    async def close(self) -> None:
        """Takes no further connection, and resets those that wait."""
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        for each in self._sockets:
            each.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError:
                await asyncio.sleep(_PAUSE_S)
                continue
            task = loop.create_task(loop.connect_accepted_socket(self._protocol, connection, **self._tls))
            self._beginning.add(task)
            task.add_done_callback(self._begun)
            await self._line.turn()

    def _begun(self, task: "asyncio.Task[object]") -> None:
        self._beginning.discard(task)
        if not task.cancelled():
            task.exception()  # A failed handshake has closed its connection, and is not news.


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
