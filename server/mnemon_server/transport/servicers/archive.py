"""ArchiveService over gRPC: records go out and come in as streams, a message at a time."""

from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing

from mnemon.v1 import archive_pb2 as pb
from mnemon.v1 import archive_pb2_grpc

from mnemon_server.domain.access import Role
from mnemon_server.domain.archive import ImportStart
from mnemon_server.domain.errors import InvalidArgumentError, PermissionDeniedError
from mnemon_server.services.archive.importing import ImportItem
from mnemon_server.services.background.offload import Pause
from mnemon_server.transport.convert import archive as convert
from mnemon_server.transport.incidents import report
from mnemon_server.transport.interceptors.base import Context, current_call, piece_of_work
from mnemon_server.transport.tenancy import TenantServicer


class ArchiveServicer(TenantServicer, archive_pb2_grpc.ArchiveServiceServicer):
    """Answers UNAVAILABLE until vaults are attached."""

    async def ExportRecords(
        self, request: pb.ExportRecordsRequest, context: Context
    ) -> AsyncIterator[pb.ExportRecordsResponse]:
        selection = convert.read_export(request)
        async with self.vault() as vault:
            # An export without these records would look complete.
            if vault.quarantine.hidden and current_call.get().principal.role < Role.ADMIN:
                raise PermissionDeniedError(
                    "records are in quarantine: until they are released, only admins may export"
                )
            # If the client leaves midway, the export ends before the vault is released.
            async with aclosing(vault.archive.export(selection, vectors=not request.omit_vectors)) as messages:
                async for message in messages:
                    yield convert.export_to_pb(message)

    async def ImportRecords(
        self, request_iterator: AsyncIterator[pb.ImportRecordsRequest], context: Context
    ) -> AsyncIterator[pb.ImportRecordsResponse]:
        start: ImportStart | None = None
        async for request in request_iterator:
            start = start or convert.read_start(request)
            # An idle stream must not keep the vault open.
            async with self.vault() as vault:
                importing = vault.archive.begin_import(start)
                convert.check_count(request)
                async with piece_of_work():
                    results = await importing.take([item async for item in _items(request.records)])
            yield convert.results_to_pb(results, report)


async def _items(records: Iterable[pb.ArchivedRecord]) -> AsyncIterator[ImportItem]:
    """Each record as a value, or why it cannot be read; yields to other calls."""
    pause = Pause()
    for record in records:
        yield _item(record)
        await pause.where_due()


def _item(message: pb.ArchivedRecord) -> ImportItem:
    try:
        return convert.read_record(message)
    except InvalidArgumentError as error:
        return error
