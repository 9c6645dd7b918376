"""QuarantineService over gRPC. Every method has the same steps: read, call, write."""

from mnemon.v1 import quarantine_pb2 as pb
from mnemon.v1 import quarantine_pb2_grpc

from mnemon_server.transport.convert import quarantine as convert
from mnemon_server.transport.interceptors.base import Context
from mnemon_server.transport.tenancy import TenantServicer


class QuarantineServicer(TenantServicer, quarantine_pb2_grpc.QuarantineServiceServicer):
    """Answers UNAVAILABLE until vaults are attached."""

    async def QuarantineOrigin(
        self, request: pb.QuarantineOriginRequest, context: Context
    ) -> pb.QuarantineOriginResponse:
        async with self.vault() as vault:
            receipt = await vault.quarantine.add(convert.source_of(request), request.reason)
        return convert.with_receipt(pb.QuarantineOriginResponse(), receipt)

    async def ReleaseOrigin(self, request: pb.ReleaseOriginRequest, context: Context) -> pb.ReleaseOriginResponse:
        async with self.vault() as vault:
            source = convert.source_of(request)
            receipt = await vault.quarantine.release(source, allow_missing=request.allow_missing)
        return convert.with_receipt(pb.ReleaseOriginResponse(), receipt)

    async def ListQuarantines(self, request: pb.ListQuarantinesRequest, context: Context) -> pb.ListQuarantinesResponse:
        async with self.vault() as vault:
            return pb.ListQuarantinesResponse(quarantines=map(convert.quarantine_to_pb, vault.quarantine.all))
