"""The servers of the runtime, which share one address, so that a burst of calls holds up a few connections alone."""

import asyncio
import sys
from collections.abc import Callable

import grpc
from grpc import aio

from mnemon_server.config.address import Address
from mnemon_server.config.settings import Settings
from mnemon_server.transport.interceptors.grpc_calls import GrpcCalls
from mnemon_server.transport.listening import listen
from mnemon_server.transport.options import listener_options, server_options

LISTENERS_MAX = 16
CONNECTIONS_MIN = 32
"""The smallest share of the connections that a server of the runtime may have."""


class ServerGroup:
    """Serves like one `aio.Server`.

    A server of the runtime hands over its calls one by one, in order of arrival: a call waits for the hundreds that a
    connection began before it. The system gives each new connection to one of the servers, by a hash of its addresses.
    """

    def __init__(self, settings: Settings, address: Address, calls: GrpcCalls) -> None:
        """Binds nothing yet."""
        self._calls = calls
        count = _count(settings, address)
        share, rest = divmod(settings.connections_max, count)
        self._servers = []
        for number in range(count):
            own = listener_options(connections=share + (number < rest), is_alone=count == 1)
            server = aio.server(options=server_options(settings) + own)
            server.add_generic_rpc_handlers((calls,))
            self._servers.append(server)

    def listen(self, address: Address, credentials: Callable[[], grpc.ServerCredentials | None]) -> Address:
        """Binds the address; returns it with the port that was free, if it asks for one.

        Raises:
            ConfigurationError: the address is taken, or is not of this machine.
        """
        return listen(self._servers, address, credentials)

    async def start(self) -> None:
        """Begins to serve. If it is cancelled meanwhile, it stops again."""
        # A cancellation must not reach gRPC, which would neither start nor stop then.
        starting = asyncio.gather(*(server.start() for server in self._servers))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            await starting
            await self.stop(None)
            raise

    async def stop(self, grace_s: float | None) -> None:
        """Takes no more calls, and returns once those in work have ended; after the grace period they are ended."""
        await asyncio.gather(*(server.stop(grace_s) for server in self._servers))
        # The runtime does not wait for the handler of a call whose status has been sent.
        await self._calls.ended()


def _count(settings: Settings, address: Address) -> int:
    """How many servers; elsewhere than on Linux, and at a path, all connections would go to one of them."""
    if sys.platform != "linux" or address.socket_path:
        return 1
    return max(1, min(LISTENERS_MAX, settings.connections_max // CONNECTIONS_MIN))
