"""FactService over gRPC. Every method has the same steps: read, call, write."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mnemon.v1 import facts_pb2 as pb
from mnemon.v1 import facts_pb2_grpc

from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.facts import FactReceipt, PutFact
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.records import View
from mnemon_server.services.background.offload import LARGE_BYTES, Pause, converted
from mnemon_server.transport.convert import facts as convert
from mnemon_server.transport.convert.shared import versions
from mnemon_server.transport.convert.shared.reader import check_bulk, expected_revision, read_page_size
from mnemon_server.transport.convert.shared.results import with_receipts
from mnemon_server.transport.interceptors.base import Context, request_bytes
from mnemon_server.transport.interceptors.codec import Encoded
from mnemon_server.transport.servicers.bulk import answer_each, write_taken
from mnemon_server.transport.servicers.page_tokens import PageTokens
from mnemon_server.transport.status import Failure
from mnemon_server.transport.tenancy import TenantServicer, known
from mnemon_server.wire.values import receipt_to_pb

if TYPE_CHECKING:
    from mnemon_server.services.vaults import OpenVault


class FactServicer(TenantServicer, facts_pb2_grpc.FactServiceServicer):
    """Answers UNAVAILABLE until vaults are attached."""

    async def PutFact(self, request: pb.PutFactRequest, context: Context) -> pb.PutFactResponse:
        put = await converted(convert.read_put, request, request_bytes())
        async with self.vault() as vault:
            receipt = await vault.facts.put(put)
        return await converted(convert.put_to_pb, receipt, request_bytes())

    def BulkPutFacts(
        self, request_iterator: AsyncIterator[pb.BulkPutFactsRequest], context: Context
    ) -> AsyncIterator[pb.BulkPutFactsResponse]:
        return answer_each(request_iterator, self.vault, _put_run, keys=_changed)

    async def GetFact(self, request: pb.GetFactRequest, context: Context) -> Encoded:
        namespace = convert.read_name(request)
        async with self.vault() as vault:
            then = await known(vault, request, RecordKind.FACT)
            reading = then.vault.facts.get(namespace, request.key, versions=request.show_versions, room=self.room())
            fact = await then.found(reading)
        return await convert.got_to_bytes(fact, history_incomplete=then.is_incomplete)

    async def BatchGetFacts(self, request: pb.BatchGetFactsRequest, context: Context) -> Encoded:
        names = await convert.read_names(request)
        async with self.vault() as vault:
            batch = await vault.facts.get_many(names, room=self.room())
        return await convert.batch_to_bytes(batch)

    async def SearchFacts(self, request: pb.SearchFactsRequest, context: Context) -> Encoded:
        query = await converted(convert.read_search, request, request_bytes())
        room = self.room(vectors=query.view is View.FULL)
        async with self.vault() as vault:
            then = await known(vault, request, RecordKind.FACT)
            answer = await then.vault.facts.search(query, room=room)
        return await convert.answer_to_bytes(
            answer, query.view, truncated=room.is_full, history_incomplete=then.is_incomplete
        )

    async def RenewFacts(self, request: pb.RenewFactsRequest, context: Context) -> pb.RenewFactsResponse:
        names = await convert.read_renewal(request)
        async with self.vault() as vault:
            receipt = await vault.facts.renew(names, request_id=request.request_id)
        return convert.renewals_to_pb(receipt)

    async def ListFacts(self, request: pb.ListFactsRequest, context: Context) -> Encoded:
        where, limit = await converted(convert.read_list, request, request_bytes())
        async with self.vault() as vault:
            then = await known(vault, request, RecordKind.FACT)
            pages = PageTokens(vault.page_key, request)
            page = await then.vault.facts.list(
                where,
                after=pages.position(),
                limit=limit,
                versions=request.show_versions,
                room=self.room(),
            )
        return await convert.page_to_bytes(page, pages.next, history_incomplete=then.is_incomplete)

    async def ListNamespaces(self, request: pb.ListNamespacesRequest, context: Context) -> pb.ListNamespacesResponse:
        limit = convert.read_namespaces(request)
        async with self.vault() as vault:
            pages = PageTokens(vault.page_key, request)
            page = await vault.facts.namespaces(
                prefix=tuple(request.prefix),
                suffix=tuple(request.suffix),
                max_depth=request.max_depth,
                after=pages.labels(),
                limit=limit,
            )
        return convert.namespaces_to_pb(page, pages.next(page.last))

    async def ListFactVersions(self, request: pb.ListFactVersionsRequest, context: Context) -> Encoded:
        record, limit = convert.read_record(request), read_page_size(request)
        async with self.vault() as vault:
            pages = PageTokens(vault.page_key, request)
            page = await vault.history.list(
                RecordKind.FACT,
                record,
                after=pages.position(),
                limit=limit,
                room=self.room(),
            )
        return await convert.versions_to_bytes(page, pages.next(page.next_position))

    async def RestoreFactVersion(
        self, request: pb.RestoreFactVersionRequest, context: Context
    ) -> pb.RestoreFactVersionResponse:
        asked = versions.read_restoration(request, RecordKind.FACT, convert.read_record(request))
        async with self.vault() as vault:
            receipt = replace(await vault.history.restore(asked), id=request.key)
            fact = await vault.facts.get(Namespace(request.namespace), request.key)
        return await converted(convert.restored_to_pb, FactReceipt(receipt, fact), LARGE_BYTES)

    async def DeleteFact(self, request: pb.DeleteFactRequest, context: Context) -> pb.DeleteFactResponse:
        namespace, ack = convert.read_deletion(request)
        async with self.vault() as vault:
            receipt = await vault.facts.delete(
                namespace,
                request.key,
                expected_revision=expected_revision(request),
                allow_missing=request.allow_missing,
                request_id=request.request_id,
                ack=ack,
            )
        return pb.DeleteFactResponse(receipt=receipt_to_pb(receipt))

    async def DeleteFacts(self, request: pb.DeleteFactsRequest, context: Context) -> pb.DeleteFactsResponse:
        where = await converted(convert.read_deletions, request, request_bytes())
        async with self.vault() as vault:
            receipt = await vault.facts.delete_many(where, dry_run=request.dry_run, request_id=request.request_id)
        return convert.deleted_to_pb(receipt)


async def _put_run(vault: "OpenVault", request: pb.BulkPutFactsRequest) -> pb.BulkPutFactsResponse:
    """One request of the bulk stream."""
    check_bulk(request.requests)
    outcomes = await write_taken(await _taken(request.requests), write=vault.facts.put_many)
    return with_receipts(pb.BulkPutFactsResponse(), outcomes)


async def _taken(items: Sequence[pb.PutFactRequest]) -> list[PutFact | Failure]:
    """Each fact as a value, or why it cannot be read; yields to other calls."""
    taken: list[PutFact | Failure] = []
    pause = Pause()
    for request in items:
        try:
            taken.append(await converted(convert.read_put, request, request.ByteSize()))
        except InvalidArgumentError as error:
            taken.append(Failure.of(error))
        await pause.where_due()
    return taken


def _changed(request: pb.BulkPutFactsRequest) -> list[str]:
    """The keys whose order matters: facts with a name, and earlier requests."""
    named = [f"{'.'.join(item.fact.namespace)}.{item.fact.key}" for item in request.requests if item.fact.key]
    return [*named, *(f"request {item.request_id}" for item in request.requests if item.request_id)]
