"""EraseService over gRPC: an erasure is a stream of progress with a receipt at its end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress

from mnemon.v1 import erase_pb2 as pb
from mnemon.v1 import erase_pb2_grpc

from mnemon_server.domain.errors import MnemonError
from mnemon_server.services.vaults import VaultLease
from mnemon_server.transport.convert import erase as convert
from mnemon_server.transport.interceptors.base import Context
from mnemon_server.transport.tenancy import TenantServicer


class EraseServicer(TenantServicer, erase_pb2_grpc.EraseServiceServicer):
    """Answers UNAVAILABLE until vaults are attached."""

    def __init__(self) -> None:
        super().__init__()
        self._keeping: set[asyncio.Task[None]] = set()

    async def Erase(self, request: pb.EraseRequest, context: Context) -> AsyncIterator[pb.EraseResponse]:
        asked = convert.read_erase(request)
        async with self.vault() as vault, aclosing(vault.erasure.erase(asked)) as messages:
            first = await anext(messages)
            # It is running. Unlike an idle vault, one that is still erasing after its caller has left stays open.
            self._keep_open(self.vault())
            yield convert.message_to_pb(first)
            async for message in messages:
                yield convert.message_to_pb(message)

    async def ListErasures(self, request: pb.ListErasuresRequest, context: Context) -> pb.ListErasuresResponse:
        async with self.vault() as vault:
            receipts = await vault.erasure.receipts()
        return pb.ListErasuresResponse(receipts=map(convert.receipt_to_pb, receipts))

    async def GetErasureKey(self, request: pb.GetErasureKeyRequest, context: Context) -> pb.GetErasureKeyResponse:
        async with self.vault() as vault:
            return pb.GetErasureKeyResponse(public_key=vault.erasure.public_key)

    def _keep_open(self, lease: VaultLease) -> None:
        task = asyncio.create_task(_until_erased(lease))
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)


async def _until_erased(lease: VaultLease) -> None:
    # After an error, the keeper of erasures opens the vault again.
    with suppress(MnemonError):
        async with lease as vault:
            await vault.erasure.wait()
