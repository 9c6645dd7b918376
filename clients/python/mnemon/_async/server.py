"""The asyncio client's method for what the server is."""

from typing import TYPE_CHECKING

from mnemon._connection import AsyncConnection
from mnemon._messages.server import info_from_pb
from mnemon._values.server import ServerInfo
from mnemon.v1 import server_pb2 as pb
from mnemon.v1.server_pb2_grpc import ServerServiceStub

if TYPE_CHECKING:
    from mnemon.v1.server_pb2_grpc import ServerServiceAsyncStub


class AsyncServerMethods(AsyncConnection):
    """Information about the server."""

    async def server_info(self, *, timeout: float | None = None) -> ServerInfo:
        """Returns version, capabilities, limits, embedding model and vault of the server."""
        return info_from_pb(await self._call(self._info.GetServerInfo, pb.GetServerInfoRequest(), timeout))

    @property
    def _info(self) -> "ServerServiceAsyncStub":
        return self._stub(ServerServiceStub)
