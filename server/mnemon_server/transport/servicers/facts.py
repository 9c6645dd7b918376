"""FactService over gRPC. Every method has the same steps: check what may be no value, convert, call, convert."""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from mnemon.v1 import facts_pb2 as pb
from mnemon.v1 import facts_pb2_grpc

from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.facts import PutFact
from mnemon_server.transport.checks import facts as checks
from mnemon_server.transport.convert import facts as convert
from mnemon_server.transport.convert.shared.pause import Pause, converted
from mnemon_server.transport.convert.shared.reading import check_bulk, page_size
from mnemon_server.transport.interceptors.base import Context
from mnemon_server.transport.servicers.bulk import ReadAhead, write_taken
from mnemon_server.transport.servicers.page_tokens import (
    next_namespace_token,
    next_page_token,
    page_query,
    read_namespace_token,
    read_page_token,
)
from mnemon_server.transport.status import Failure
from mnemon_server.transport.tenancy import TenantServicer
from mnemon_server.wire.values import receipt_to_pb

if TYPE_CHECKING:
    from mnemon_server.services.facts.store import FactStore


class FactServicer(TenantServicer, facts_pb2_grpc.FactServiceServicer):
    """Answers UNAVAILABLE until vaults are attached."""

    async def PutFact(self, request: pb.PutFactRequest, context: Context) -> pb.PutFactResponse:  # noqa: N802 - the promises of the methods are in the proto
        size = request.ByteSize()
        put = await converted(checks.checked_put, request, size)
        async with self.vault(context) as vault:
            receipt = await vault.facts.put(put)
        return await converted(convert.put_to_pb, receipt, size)

    async def PutFacts(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.PutFactsRequest], context: Context
    ) -> AsyncIterator[pb.PutFactsResponse]:
        async with self.vault(context) as vault:
            ahead = ReadAhead(partial(_put_run, vault.facts), keys=_changed, weight=pb.PutFactsRequest.ByteSize)
            async for response in ahead.run(request_iterator):
                yield response

    async def GetFact(self, request: pb.GetFactRequest, context: Context) -> pb.GetFactResponse:  # noqa: N802
        namespace = checks.checked_name(request)
        async with self.vault(context) as vault:
            fact = await vault.facts.get(
                namespace, request.key, renew_ttl=request.renew_ttl, versions=request.show_versions
            )
        return await convert.fact_to_pb(fact)

    async def GetFacts(self, request: pb.GetFactsRequest, context: Context) -> pb.GetFactsResponse:  # noqa: N802
        names = checks.checked_names(request)
        async with self.vault(context) as vault:
            facts = await vault.facts.get_many(names, renew_ttl=request.renew_ttl)
        return await convert.facts_to_pb(facts)

    async def SearchFacts(self, request: pb.SearchFactsRequest, context: Context) -> pb.SearchFactsResponse:  # noqa: N802
        query = checks.checked_query(request)
        async with self.vault(context) as vault:
            answer = await vault.facts.search(query)
        return await convert.answer_to_pb(answer)

    async def ListFacts(self, request: pb.ListFactsRequest, context: Context) -> pb.ListFactsResponse:  # noqa: N802
        where = checks.checked_list(request)
        query = page_query(request)
        async with self.vault(context) as vault:
            page = await vault.facts.list(
                where,
                after=read_page_token(request.page_token, query),
                limit=page_size(request.page_size),
                versions=request.show_versions,
            )
        return await convert.page_to_pb(page, next_page_token(page.position, query))

    async def ListNamespaces(  # noqa: N802
        self, request: pb.ListNamespacesRequest, context: Context
    ) -> pb.ListNamespacesResponse:
        checks.check_list_namespaces(request)
        query = page_query(request)
        async with self.vault(context) as vault:
            page = await vault.facts.namespaces(
                prefix=tuple(request.prefix),
                suffix=tuple(request.suffix),
                max_depth=request.max_depth,
                after=read_namespace_token(request.page_token, query),
                limit=page_size(request.page_size),
            )
        return convert.namespaces_to_pb(page, next_namespace_token(page.last, query))

    async def DeleteFact(self, request: pb.DeleteFactRequest, context: Context) -> pb.DeleteFactResponse:  # noqa: N802
        namespace, ack = checks.checked_deletion(request)
        async with self.vault(context) as vault:
            receipt = await vault.facts.delete(
                namespace,
                request.key,
                expected_revision=convert.expected_revision(request),
                request_id=request.request_id,
                ack=ack,
            )
        return pb.DeleteFactResponse(receipt=receipt_to_pb(receipt))

    async def DeleteFacts(self, request: pb.DeleteFactsRequest, context: Context) -> pb.DeleteFactsResponse:  # noqa: N802
        where = checks.checked_deletions(request)
        async with self.vault(context) as vault:
            receipt = await vault.facts.delete_many(where, dry_run=request.dry_run, request_id=request.request_id)
        return convert.deleted_to_pb(receipt)


async def _put_run(store: "FactStore", request: pb.PutFactsRequest) -> pb.PutFactsResponse:
    """One request of the bulk stream."""
    check_bulk(request.requests)
    outcomes = await write_taken(await _taken(request.requests), write=store.put_many)
    return convert.put_results_to_pb(outcomes)


async def _taken(requests: Sequence[pb.PutFactRequest]) -> list[PutFact | Failure]:
    """The facts as values, as far as they are some; lets other calls through where they are large."""
    taken: list[PutFact | Failure] = []
    pause = Pause()
    for request in requests:
        try:
            taken.append(await converted(checks.checked_put, request, request.ByteSize()))
        except InvalidArgumentError as error:
            taken.append(Failure.of(error))
        await pause.where_due()
    return taken


def _changed(request: pb.PutFactsRequest) -> list[str]:
    """What the order of two requests matters for: facts with a name, and what was sent before."""
    named = [f"{'.'.join(item.fact.namespace)}.{item.fact.key}" for item in request.requests if item.fact.key]
    return [*named, *(f"request {item.request_id}" for item in request.requests if item.request_id)]
