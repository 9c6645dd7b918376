"""ChangeService over gRPC. Every method has the same steps: read, call, write."""

from collections.abc import AsyncIterator
from contextlib import aclosing

from mnemon.v1 import changes_pb2 as pb
from mnemon.v1 import changes_pb2_grpc

from mnemon_server.services.watching import watch
from mnemon_server.transport.convert import changes as convert
from mnemon_server.transport.interceptors.base import Context, current_call
from mnemon_server.transport.interceptors.codec import Encoded
from mnemon_server.transport.tenancy import TenantServicer


class ChangeServicer(TenantServicer, changes_pb2_grpc.ChangeServiceServicer):
    """Answers UNAVAILABLE until vaults are attached."""

    async def WatchChanges(self, request: pb.WatchChangesRequest, context: Context) -> AsyncIterator[Encoded]:
        query = convert.read_watch(request)
        call = current_call.get()
        tenant, bounds = call.principal.tenant, call.principal.bounds
        found = watch(self.vaults, tenant, bounds, query, convert.batch_to_bytes, call.sending)
        async with aclosing(found) as messages:
            async for message in messages:
                yield message if isinstance(message, bytes) else convert.watch_message_to_pb(message)
                del message  # See `StreamWriter`.

    async def ListChanges(self, request: pb.ListChangesRequest, context: Context) -> pb.ListChangesResponse:
        query = convert.read_list(request)
        async with self.vault() as vault:
            page = await vault.feed.list(query)
        return convert.page_to_pb(page)
