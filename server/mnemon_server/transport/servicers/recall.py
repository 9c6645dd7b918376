"""RecallService over gRPC. Every method has the same steps: read, call, write."""

from mnemon.v1 import recall_pb2 as pb
from mnemon.v1 import recall_pb2_grpc

from mnemon_server.transport.convert import recall as convert
from mnemon_server.transport.interceptors.base import Context
from mnemon_server.transport.tenancy import TenantServicer, known


class RecallServicer(TenantServicer, recall_pb2_grpc.RecallServiceServicer):
    """Answers UNAVAILABLE until vaults are attached."""

    async def Recall(self, request: pb.RecallRequest, context: Context) -> pb.RecallResponse:
        query = convert.read_recall(request)
        async with self.vault() as vault:
            then = await known(vault, request)
            answer = await then.vault.recall.recall(query, room=self.room())
        response = await convert.answer_to_pb(answer, query.view)
        response.history_incomplete = then.is_incomplete
        return response
