"""BridgeService over gRPC. Every method has the same steps: read, call, write."""

from mnemon.v1 import bridge_pb2 as pb
from mnemon.v1 import bridge_pb2_grpc, common_pb2

from mnemon_server.transport.convert import bridge as convert
from mnemon_server.transport.convert.shared.reader import expected_revision
from mnemon_server.transport.incidents import report
from mnemon_server.transport.interceptors.base import Context
from mnemon_server.transport.tenancy import TenantServicer


class BridgeServicer(TenantServicer, bridge_pb2_grpc.BridgeServiceServicer):
    """Answers UNAVAILABLE until vaults are attached; only GetBridgeStatus never fails."""

    async def GetBridgeStatus(self, request: pb.GetBridgeStatusRequest, context: Context) -> pb.GetBridgeStatusResponse:
        try:
            async with self.vault() as vault:
                return convert.status_to_pb(await vault.bridge.status())
        except Exception as error:  # noqa: BLE001 - this method answers whatever happens
            return pb.GetBridgeStatusResponse(state=common_pb2.STATE_STARTING, message=report(error).message)

    async def GetRoutingPolicy(
        self, request: pb.GetRoutingPolicyRequest, context: Context
    ) -> pb.GetRoutingPolicyResponse:
        async with self.vault() as vault:
            policy = await vault.bridge.policy()
        return pb.GetRoutingPolicyResponse(policy=convert.policy_to_pb(policy))

    async def UpdateRoutingPolicy(
        self, request: pb.UpdateRoutingPolicyRequest, context: Context
    ) -> pb.UpdateRoutingPolicyResponse:
        policy = convert.read_update(request)
        async with self.vault() as vault:
            updated = await vault.bridge.update_policy(
                policy,
                list(request.update_mask.paths),
                expected_revision=expected_revision(request),
                request_id=request.request_id,
            )
        return pb.UpdateRoutingPolicyResponse(policy=convert.policy_to_pb(updated.policy), replayed=updated.replayed)

    async def PreviewExtraction(
        self, request: pb.PreviewExtractionRequest, context: Context
    ) -> pb.PreviewExtractionResponse:
        asked = convert.read_preview(request)
        async with self.vault() as vault:
            preview = await vault.bridge.preview_extraction(asked)
        return convert.preview_to_pb(preview)

    async def PauseBridge(self, request: pb.PauseBridgeRequest, context: Context) -> pb.PauseBridgeResponse:
        async with self.vault() as vault:
            replayed = await vault.bridge.pause(request_id=request.request_id)
        return pb.PauseBridgeResponse(replayed=replayed)

    async def ResumeBridge(self, request: pb.ResumeBridgeRequest, context: Context) -> pb.ResumeBridgeResponse:
        async with self.vault() as vault:
            replayed = await vault.bridge.resume(request_id=request.request_id)
        return pb.ResumeBridgeResponse(replayed=replayed)
