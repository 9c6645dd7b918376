"""BackupService over gRPC: a backup goes out as a stream."""

from collections.abc import AsyncIterator
from contextlib import aclosing

from mnemon.v1 import backup_pb2 as pb
from mnemon.v1 import backup_pb2_grpc

from mnemon_server.transport.convert import backup as convert
from mnemon_server.transport.interceptors.base import Context
from mnemon_server.transport.tenancy import TenantServicer


class BackupServicer(TenantServicer, backup_pb2_grpc.BackupServiceServicer):
    """Answers UNAVAILABLE until vaults are attached."""

    async def CreateBackup(
        self, request: pb.CreateBackupRequest, context: Context
    ) -> AsyncIterator[pb.CreateBackupResponse]:
        # If the client leaves midway, the backup ends before the vault is released.
        async with (
            self.vault() as vault,
            aclosing(vault.backups.create(convert.target_from_pb(request))) as messages,
        ):
            async for message in messages:
                yield convert.message_to_pb(message)
