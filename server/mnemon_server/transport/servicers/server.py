"""ServerService over gRPC."""

from mnemon.v1 import server_pb2 as pb
from mnemon.v1 import server_pb2_grpc

from mnemon_server.config.settings import Settings
from mnemon_server.transport.convert import server as convert
from mnemon_server.transport.interceptors.base import Context
from mnemon_server.transport.tenancy import TenantServicer


class ServerServicer(TenantServicer, server_pb2_grpc.ServerServiceServicer):
    """Answers UNAVAILABLE until vaults are attached: the model and the vault are not known before."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings

    async def GetServerInfo(self, request: pb.GetServerInfoRequest, context: Context) -> pb.GetServerInfoResponse:
        async with self.vault() as vault:
            return convert.info_to_pb(self._settings, vault.model, vault.vault_id)
