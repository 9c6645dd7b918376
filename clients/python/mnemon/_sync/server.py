# Generated from _async/server.py by `make generate`: change that file instead.
"""The blocking client's method for what the server is."""

from mnemon._connection import Connection
from mnemon._messages.server import info_from_pb
from mnemon._values.server import ServerInfo
from mnemon.v1 import server_pb2 as pb
from mnemon.v1.server_pb2_grpc import ServerServiceStub


class ServerMethods(Connection):
    """Information about the server."""

    def server_info(self, *, timeout: float | None = None) -> ServerInfo:
        """Returns version, capabilities, limits, embedding model and vault of the server."""
        return info_from_pb(self._call(self._info.GetServerInfo, pb.GetServerInfoRequest(), timeout))

    @property
    def _info(self) -> ServerServiceStub:
        return self._stub(ServerServiceStub)
