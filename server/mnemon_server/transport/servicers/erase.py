"""EraseService over gRPC: an erasure is a stream of progress with a receipt at its end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

from mnemon.v1 import erase_pb2 as pb
from mnemon.v1 import erase_pb2_grpc

from mnemon_server.services.vaults import VaultLease
from mnemon_server.transport.convert import erase as convert
from mnemon_server.transport.interceptors.base import Context
from mnemon_server.transport.tenancy import TenantServicer


class EraseServicer(TenantServicer, erase_pb2_grpc.EraseServiceServicer):
    """Answers UNAVAILABLE until vaults are attached."""

    def __init__(self) -> None:
        super().__init__()
        self._keeping: set[asyncio.Task[None]] = set()

    async def Erase(  # noqa: N802 - the promises of the methods are in the proto
        self, request: pb.EraseRequest, context: Context
    ) -> AsyncIterator[pb.EraseResponse]:
        asked = convert.read_erase(request)
        async with self.vault(context) as vault, aclosing(vault.erasure.erase(asked)) as messages:
            # An idle vault is closed; one that goes on erasing after its caller has left is not.
            self._keep_open(self.vault(context))
            async for message in messages:
                yield convert.message_to_pb(message)

    async def ListErasures(  # noqa: N802
        self, request: pb.ListErasuresRequest, context: Context
    ) -> pb.ListErasuresResponse:
        async with self.vault(context) as vault:
            receipts = await vault.erasure.receipts()
        return pb.ListErasuresResponse(receipts=map(convert.receipt_to_pb, receipts))

    async def GetErasureKey(  # noqa: N802
        self, request: pb.GetErasureKeyRequest, context: Context
    ) -> pb.GetErasureKeyResponse:
        async with self.vault(context) as vault:
            return pb.GetErasureKeyResponse(public_key=vault.erasure.public_key)

    def _keep_open(self, lease: VaultLease) -> None:
        task = asyncio.create_task(_until_erased(lease))
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)


async def _until_erased(lease: VaultLease) -> None:
    async with lease as vault:
        await vault.erasure.wait()
