"""EventService over gRPC. Every method has the same four steps: check, convert, call, convert."""

from collections.abc import AsyncIterator
from contextlib import aclosing

from mnemon.v1 import events_pb2 as pb
from mnemon.v1 import events_pb2_grpc

from mnemon_server.transport.checks import events as checks
from mnemon_server.transport.convert import changes as convert
from mnemon_server.transport.interceptors.base import Context
from mnemon_server.transport.tenancy import TenantServicer


class EventServicer(TenantServicer, events_pb2_grpc.EventServiceServicer):
    """Answers UNAVAILABLE until vaults are attached. A watch keeps its vault open for as long as it lasts."""

    def __init__(self) -> None:
        super().__init__()
        self._encoder = convert.WatchEncoder()

    async def WatchEvents(  # noqa: N802 - the promises of the methods are in the proto
        self, request: pb.WatchEventsRequest, context: Context
    ) -> AsyncIterator[pb.WatchEventsResponse]:
        checks.check_watch_events(request)
        query = convert.watch_query_from_pb(request)
        async with self.vault(context) as vault, aclosing(vault.feed.watch(query)) as told:
            async for message in told:
                yield self._encoder.message(message)

    async def ListEvents(self, request: pb.ListEventsRequest, context: Context) -> pb.ListEventsResponse:  # noqa: N802
        checks.check_list_events(request)
        async with self.vault(context) as vault:
            page = await vault.feed.list(convert.list_query_from_pb(request))
        return convert.page_to_pb(page)
