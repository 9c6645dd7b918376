"""The fact service's requests and answers, the larger answers as bytes."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import chain

from mnemon.v1 import common_pb2
from mnemon.v1 import facts_pb2 as pb

from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.facts import (
    LIMIT_DEFAULT,
    Fact,
    FactBatch,
    FactFilter,
    FactIndex,
    FactMatch,
    FactPage,
    FactQuery,
    FactReceipt,
    FactRenewal,
    FactSearchAnswer,
    FactValue,
    NamespacePage,
    PutFact,
    PutMode,
    RenewalReceipt,
    key_violations,
    record_id,
)
from mnemon_server.domain.history import Version
from mnemon_server.domain.json_text import JsonText
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.records import AckLevel, BulkDeleteReceipt, PageOf, Scope, View
from mnemon_server.domain.validation import doc_id_violations, refuse, request_id_violations, revision_violations
from mnemon_server.services.background.offload import Pause, converted
from mnemon_server.services.facts.checks import (
    NAMES_MAX,
    filter_violations,
    names_violations,
    pattern_violations,
    put_violations,
    query_violations,
)
from mnemon_server.services.facts.stored_form import to_fact
from mnemon_server.transport.convert.shared.json_values import fill_object, read_object
from mnemon_server.transport.convert.shared.json_wire import struct_bytes
from mnemon_server.transport.convert.shared.namespaces import read_namespace
from mnemon_server.transport.convert.shared.reader import (
    Page,
    Reader,
    expected_revision,
    read_conditions,
    require,
    vector_from_pb,
)
from mnemon_server.transport.convert.shared.versions import fill_info
from mnemon_server.transport.convert.shared.wire import AnswerBytes, Pieces, in_field, joined
from mnemon_server.transport.status import Failure
from mnemon_server.wire.enums import members_of
from mnemon_server.wire.values import (
    ACK_LEVELS,
    SEARCH_MODES,
    VIEWS,
    fill_diagnostics,
    fill_metadata,
    fill_receipt,
    fill_score,
    fill_time,
)

_DEFAULT_INDEX = FactIndex()


def fill_fact(target: pb.Fact, fact: Fact) -> None:
    """Writes a fact into a message of its own."""
    _fill_all_but_values(target, fact)
    fill_object(target.value, fact.value)
    for version in fact.versions:
        earlier = target.versions.add(revision=version.revision)
        fill_object(earlier.value, version.value)
        fill_time(earlier.update_time, version.updated_at)


def _fill_all_but_values(target: pb.Fact, fact: Fact) -> None:
    target.namespace.extend(fact.namespace)
    target.key = fact.key
    if fact.metadata:
        fill_metadata(target.metadata, fact.metadata)
    if fact.source.origin:
        target.origin, target.origin_name = fact.source.origin, fact.source.origin_name
    target.revision = fact.revision
    fill_time(target.create_time, fact.created_at)
    fill_time(target.update_time, fact.updated_at)
    if fact.ttl is not None:
        target.ttl.FromTimedelta(fact.ttl)
    fill_time(target.expire_time, fact.expires_at)
    if fact.index != _DEFAULT_INDEX:
        target.index.off = fact.index.off
        target.index.paths.extend(fact.index.paths)
    for embedding in fact.embeddings:
        target.embeddings.add(values=embedding)


async def match_in_pieces(match: FactMatch, view: View = View.STANDARD) -> Pieces:
    """A FactMatch; yields to other calls."""
    message = pb.FactMatch()
    if match.score is not None:
        fill_score(message.score, match.score, vector=match.similarity, keyword=match.keyword_score)
    fact = [_ids_bytes(match.fact)] if view is View.IDS else await fact_in_pieces(match.fact)
    return [*in_field(pb.FactMatch.FACT_FIELD_NUMBER, fact), message.SerializeToString()]


async def fact_in_pieces(fact: Fact) -> Pieces:
    """A Fact; made on a thread if it is large."""
    texts = [_text_of(fact.value), *(_text_of(version.value) for version in fact.versions)]
    return await converted(_fact_in_pieces, fact, sum(map(len, texts)))


def _ids_bytes(fact: Fact) -> bytes:
    return pb.Fact(namespace=fact.namespace, key=fact.key, revision=fact.revision).SerializeToString()


def _fact_in_pieces(fact: Fact) -> list[bytes]:
    message = pb.Fact()
    _fill_all_but_values(message, fact)
    pieces = [message.SerializeToString(), *in_field(pb.Fact.VALUE_FIELD_NUMBER, [_value_bytes(fact.value)])]
    for version in fact.versions:
        earlier = pb.FactVersion(revision=version.revision)
        fill_time(earlier.update_time, version.updated_at)
        value = in_field(pb.FactVersion.VALUE_FIELD_NUMBER, [_value_bytes(version.value)])
        pieces += in_field(pb.Fact.VERSIONS_FIELD_NUMBER, [*value, earlier.SerializeToString()])
    return pieces


def _value_bytes(value: FactValue) -> bytes:
    return value.read(struct_bytes) if isinstance(value, JsonText) else struct_bytes(json.dumps(dict(value)))


def _text_of(value: FactValue) -> str:
    return value.text if isinstance(value, JsonText) else json.dumps(dict(value))


def put_to_pb(receipt: FactReceipt) -> pb.PutFactResponse:
    """The acknowledgement of a write, with the fact as it is now."""
    message = pb.PutFactResponse()
    fill_receipt(message.receipt, receipt.receipt)
    if receipt.fact is not None:
        fill_fact(message.fact, receipt.fact)
    return message


def restored_to_pb(receipt: FactReceipt) -> pb.RestoreFactVersionResponse:
    """The acknowledgement of a restored version, with the fact as it is now."""
    stored = put_to_pb(receipt)
    return pb.RestoreFactVersionResponse(fact=stored.fact, receipt=stored.receipt)


async def versions_to_bytes(page: PageOf[Version], next_page_token: str) -> bytes:
    """A ListFactVersionsResponse; yields to other calls. The page ends at 3 MiB."""
    pieces: list[bytes] = []
    pause = Pause()
    for version in page.items:
        fact = in_field(pb.PastFact.FACT_FIELD_NUMBER, await fact_in_pieces(to_fact(version.document, as_text=True)))
        said = pb.PastFact()
        fill_info(said.version, version)
        pieces += in_field(pb.ListFactVersionsResponse.VERSIONS_FIELD_NUMBER, [*fact, said.SerializeToString()])
        await pause.where_due()
    rest = pb.ListFactVersionsResponse(next_page_token=next_page_token)
    return await joined([*pieces, rest.SerializeToString()])


async def got_to_bytes(fact: Fact, *, history_incomplete: bool = False) -> bytes:
    """A GetFactResponse."""
    rest = pb.GetFactResponse(history_incomplete=history_incomplete).SerializeToString()
    return await joined([*in_field(pb.GetFactResponse.FACT_FIELD_NUMBER, await fact_in_pieces(fact)), rest])


async def batch_to_bytes(batch: FactBatch) -> bytes:
    """A BatchGetFactsResponse; yields to other calls."""
    answer = AnswerBytes()
    left = list(batch.left)
    pause = Pause()
    for place, fact in enumerate(batch.facts):
        if not answer.add(pb.BatchGetFactsResponse.FACTS_FIELD_NUMBER, await fact_in_pieces(fact)):
            left = [(one.namespace, one.key) for one in batch.facts[place:]] + left
            break
        await pause.where_due()
    rest = pb.BatchGetFactsResponse(truncated=bool(left))
    for namespace, key in left:
        rest.remaining.add(namespace=namespace, key=key)
    return await answer.finish(rest)


async def page_to_bytes(
    page: FactPage, token_after: Callable[[int | None], str], *, history_incomplete: bool = False
) -> bytes:
    """A ListFactsResponse; yields to other calls."""
    answer = AnswerBytes()
    pause = Pause()
    for place, fact in enumerate(page.facts):
        if not answer.add(pb.ListFactsResponse.FACTS_FIELD_NUMBER, await fact_in_pieces(fact)):
            page = replace(page, position=page.positions[place - 1])
            break
        await pause.where_due()
    token = token_after(page.position)
    return await answer.finish(pb.ListFactsResponse(next_page_token=token, history_incomplete=history_incomplete))


async def answer_to_bytes(
    found: FactSearchAnswer, view: View = View.STANDARD, *, truncated: bool, history_incomplete: bool = False
) -> bytes:
    """A SearchFactsResponse; yields to other calls."""
    answer = AnswerBytes()
    pause = Pause()
    diagnostics = fill_diagnostics(common_pb2.SearchDiagnostics(), found.diagnostics)
    for match in found.matches:
        if not answer.add(pb.SearchFactsResponse.RESULTS_FIELD_NUMBER, await match_in_pieces(match, view)):
            break
        diagnostics.returned += 1
        await pause.where_due()
    rest = pb.SearchFactsResponse(diagnostics=diagnostics, truncated=truncated or answer.is_full)
    rest.history_incomplete = history_incomplete
    return await answer.finish(rest)


def namespaces_to_pb(page: NamespacePage, next_page_token: str) -> pb.ListNamespacesResponse:
    """A page of namespaces."""
    message = pb.ListNamespacesResponse(next_page_token=next_page_token)
    for labels in page.namespaces:
        message.namespaces.add(labels=labels)
    return message


def renewals_to_pb(receipt: RenewalReceipt) -> pb.RenewFactsResponse:
    """The outcome of each fact whose ttl was to restart."""
    message = pb.RenewFactsResponse(replayed=receipt.replayed)
    for result in receipt.results:
        if isinstance(result, FactRenewal):
            renewal = message.results.add(renewal=pb.FactRenewal()).renewal
            fill_time(renewal.expire_time, result.expires_at)
        else:
            message.results.add(error=Failure.of(result).to_item_error())
    return message


def deleted_to_pb(receipt: BulkDeleteReceipt) -> pb.DeleteFactsResponse:
    """The result of a deletion by filter."""
    return pb.DeleteFactsResponse(deleted_count=receipt.deleted_count, replayed=receipt.replayed)


PUT_MODES = members_of(pb.PutMode, PutMode, PutMode.UPSERT)

Filtered = pb.SearchFactsRequest | pb.ListFactsRequest | pb.DeleteFactsRequest
Names = list[tuple[Namespace, str]]


def read_put(request: pb.PutFactRequest) -> PutFact:
    """The fact to store."""
    require(request, "fact")
    reader, fact = Reader(), request.fact
    if not fact.HasField("value"):
        reader.note("fact.value", "is required")
    put = PutFact(
        namespace=read_namespace(reader, "fact.namespace", fact.namespace),
        key=fact.key,
        value=read_object(reader, "fact.value", fact.value),
        metadata=reader.metadata("fact.metadata", fact.metadata),
        created_at=reader.time("fact.create_time", fact, "create_time"),
        updated_at=reader.time("fact.update_time", fact, "update_time"),
        ttl=reader.duration("fact.ttl", fact, "ttl"),
        index=FactIndex(fact.index.off, tuple(fact.index.paths)) if fact.HasField("index") else _DEFAULT_INDEX,
        mode=reader.enum("mode", request.mode, PUT_MODES),
        embedding=vector_from_pb(request.embedding),
        expected_revision=expected_revision(request),
        request_id=request.request_id,
        ack=reader.enum("ack", request.ack, ACK_LEVELS),
        source=Scope(origin=fact.origin, origin_name=fact.origin_name),
    )
    reader.finish(put_violations(put, len(request.embedding)))
    return put


def read_name(request: pb.GetFactRequest) -> Namespace:
    """The namespace of the requested fact."""
    reader = Reader()
    reader.as_of(request)
    namespace = read_namespace(reader, "namespace", request.namespace)
    reader.finish(key_violations(request.key))
    return namespace


def read_record(request: pb.ListFactVersionsRequest | pb.RestoreFactVersionRequest) -> str:
    """The id of the record of a fact, which need not exist any more."""
    reader = Reader()
    namespace = read_namespace(reader, "namespace", request.namespace)
    violations = [*key_violations(request.key)]
    if isinstance(request, pb.RestoreFactVersionRequest):
        violations += doc_id_violations(request.version_id, "version_id")
    reader.finish(violations)
    refuse(violations)
    return record_id(namespace, request.key)


async def read_names(request: pb.BatchGetFactsRequest) -> Names:
    """The namespace and key of each requested fact; yields to other calls."""
    reader = Reader()
    names = await _names(reader, request)
    reader.finish(names_violations(names))
    return names


async def read_renewal(request: pb.RenewFactsRequest) -> Names:
    """The namespace and key of each fact whose ttl is to restart; yields to other calls."""
    reader = Reader()
    names = await _names(reader, request)
    reader.finish(chain(names_violations(names), request_id_violations(request.request_id)))
    return names


def read_search(request: pb.SearchFactsRequest) -> FactQuery:
    """The search."""
    reader = Reader()
    reader.as_of(request)
    query = FactQuery(
        filter=_filter(reader, request),
        text=request.query,
        vector=vector_from_pb(request.vector),
        limit=request.limit or LIMIT_DEFAULT,
        offset=request.offset,
        mode=reader.enum("mode", request.mode, SEARCH_MODES) if request.mode else None,
        min_score=request.min_score,
        view=reader.enum("view", request.view, VIEWS),
    )
    reader.finish(query_violations(query, len(request.vector)))
    return query


def read_list(request: pb.ListFactsRequest) -> Page[FactFilter]:
    """The page."""
    reader = Reader()
    reader.as_of(request)
    page = Page(_filter(reader, request), reader.page_size(request.page_size))
    reader.finish(filter_violations(page.where))
    return page


def read_namespaces(request: pb.ListNamespacesRequest) -> int:
    """How many namespaces a page has at most."""
    reader = Reader()
    limit = reader.page_size(request.page_size)
    reader.finish(pattern_violations(request.prefix, request.suffix, request.max_depth))
    return limit


def read_deletion(request: pb.DeleteFactRequest) -> tuple[Namespace, AckLevel]:
    """The namespace of the fact that is to be deleted, and when to answer."""
    reader = Reader()
    namespace = read_namespace(reader, "namespace", request.namespace)
    ack = reader.enum("ack", request.ack, ACK_LEVELS)
    of_call = chain(revision_violations(expected_revision(request)), request_id_violations(request.request_id))
    reader.finish(chain(key_violations(request.key), of_call))
    return namespace, ack


def read_deletions(request: pb.DeleteFactsRequest) -> FactFilter:
    """Which facts are to be deleted."""
    reader = Reader()
    where = _filter(reader, request)
    reader.finish(chain(filter_violations(where), request_id_violations(request.request_id)))
    return where


async def _names(reader: Reader, request: pb.BatchGetFactsRequest | pb.RenewFactsRequest) -> Names:
    if not 1 <= len(request.names) <= NAMES_MAX:
        raise InvalidArgumentError.of("names", f"must be 1 to {NAMES_MAX:,}; send several requests")
    names, pause = [], Pause()
    for place, name in enumerate(request.names):
        names.append((read_namespace(reader, f"names[{place}].namespace", name.namespace), name.key))
        await pause.where_due()
    return names


def _filter(reader: Reader, request: Filtered) -> FactFilter:
    """The filter of facts."""
    message = request.filter
    if not request.HasField("filter"):
        reader.note("filter", "is required; with `subtree` and no namespace, it means all facts")
        return FactFilter(namespace=None, subtree=True)
    if not (message.namespace or message.subtree):
        reader.note("filter.namespace", "must not be empty unless subtree is set: it would mean every fact")
    return FactFilter(
        namespace=read_namespace(reader, "filter.namespace", message.namespace) if message.namespace else None,
        subtree=message.subtree,
        where=read_conditions(reader, message),
    )
