"""Conversion of the fact service's requests and answers. Both directions.

What is no value raises ValueError; `checks.facts` says what is wrong with it.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TypeVar

from mnemon.v1 import facts_pb2 as pb

from mnemon_server.domain.facts import (
    Fact,
    FactFilter,
    FactIndex,
    FactMatch,
    FactPage,
    FactQuery,
    FactReceipt,
    FactSearchAnswer,
    NamespacePage,
    PutFact,
    PutMode,
    filter_expression,
)
from mnemon_server.domain.json_size import holds_many
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.records import AckLevel, BulkDeleteReceipt, WriteReceipt
from mnemon_server.transport.convert.memories import vector_from_pb
from mnemon_server.transport.convert.shared.json_values import fill_object, object_from_pb
from mnemon_server.transport.convert.shared.pause import Pause
from mnemon_server.transport.status import Failure
from mnemon_server.wire.values import (
    ACK_LEVELS,
    SEARCH_MODES,
    checked_metadata_from_pb,
    checked_time_from_pb,
    diagnostics_to_pb,
    fill_metadata,
    fill_receipt,
    fill_time,
)

Value = TypeVar("Value")

PUT_MODES: Mapping[int, PutMode] = {
    pb.PUT_MODE_UNSPECIFIED: PutMode.UPSERT,
    pb.PUT_MODE_UPSERT: PutMode.UPSERT,
    pb.PUT_MODE_CREATE: PutMode.CREATE,
    pb.PUT_MODE_UPDATE: PutMode.UPDATE,
}
LIMIT_DEFAULT = 10
WHERE = "filter.where"
"""The field of a request with what must hold of values and metadata."""
_DURATION_S_MAX, _SECOND_NS = 315_576_000_000, 10**9
"""What a message of a length of time may hold; the runtime does not look."""
_DEFAULT_INDEX = FactIndex()
# Facts of a stream share few namespaces, and each one is checked label by label.
_namespace = lru_cache(maxsize=1024)(Namespace)


def put_from_pb(message: pb.PutFactRequest) -> PutFact:
    """The request to store a fact."""
    fact = message.fact
    if not fact.HasField("value"):
        raise ValueError("there is no value")
    return PutFact(
        namespace=namespace_from_pb(fact.namespace),
        key=fact.key,
        value=object_from_pb(fact.value),
        metadata=checked_metadata_from_pb(fact.metadata),
        created_at=_time_or_none(fact, "create_time"),
        updated_at=_time_or_none(fact, "update_time"),
        ttl=ttl_from_pb(fact) if fact.HasField("ttl") else None,
        index=FactIndex(fact.index.off, tuple(fact.index.paths)) if fact.HasField("index") else _DEFAULT_INDEX,
        mode=_known(PUT_MODES, message.mode),
        embedding=vector_from_pb(message.embedding),
        expected_revision=expected_revision(message),
        request_id=message.request_id,
        ack=_known(ACK_LEVELS, message.ack),
    )


def namespace_from_pb(labels: Sequence[str]) -> Namespace:
    """The namespace of these labels; raises InvalidArgumentError, about the field "namespace", for what is none."""
    return _namespace(tuple(labels))


def names_from_pb(message: pb.GetFactsRequest) -> list[tuple[Namespace, str]]:
    """Namespace and key of each fact that is wanted."""
    return [(namespace_from_pb(name.namespace), name.key) for name in message.names]


def deletion_from_pb(message: pb.DeleteFactRequest) -> tuple[Namespace, AckLevel]:
    """The namespace of the fact that is to go, and when to answer."""
    return namespace_from_pb(message.namespace), _known(ACK_LEVELS, message.ack)


def ttl_from_pb(message: pb.Fact) -> timedelta:
    """How long a fact lives, to the microsecond."""
    seconds, nanos = message.ttl.seconds, message.ttl.nanos
    if abs(seconds) > _DURATION_S_MAX or abs(nanos) >= _SECOND_NS or seconds * nanos < 0:
        raise ValueError("it is no length of time")
    return timedelta(seconds=seconds, microseconds=nanos // 1000)


def expected_revision(message: pb.PutFactRequest | pb.DeleteFactRequest) -> int | None:
    """The revision that the fact must have; None where any will do."""
    return message.expected_revision if message.HasField("expected_revision") else None


def filter_from_pb(message: pb.FactFilter) -> FactFilter:
    """Which facts are meant."""
    everywhere = message.subtree and not message.namespace
    return FactFilter(
        namespace=None if everywhere else namespace_from_pb(message.namespace),
        subtree=message.subtree,
        where=filter_expression(object_from_pb(message.where), WHERE) if message.HasField("where") else None,
    )


def query_from_pb(message: pb.SearchFactsRequest) -> FactQuery:
    """The search."""
    return FactQuery(
        filter=filter_from_pb(message.filter),
        text=message.query,
        vector=vector_from_pb(message.vector),
        limit=message.limit if message.HasField("limit") else LIMIT_DEFAULT,
        offset=message.offset,
        mode=_known(SEARCH_MODES, message.mode) if message.mode else None,
        min_score=message.min_score,
        renew_ttl=message.renew_ttl,
    )


def fill_fact(target: pb.Fact, fact: Fact) -> None:
    """Writes a fact into a message of its own."""
    target.namespace.extend(fact.namespace)
    target.key = fact.key
    fill_object(target.value, fact.value)
    if fact.metadata:
        fill_metadata(target.metadata, fact.metadata)
    target.revision = fact.revision
    fill_time(target.create_time, fact.created_at)
    fill_time(target.update_time, fact.updated_at)
    if fact.ttl is not None:
        target.ttl.FromTimedelta(fact.ttl)
    if fact.expires_at is not None:
        fill_time(target.expire_time, fact.expires_at)
    if fact.index != _DEFAULT_INDEX:
        target.index.off = fact.index.off
        target.index.paths.extend(fact.index.paths)
    for version in fact.versions:
        earlier = target.versions.add(revision=version.revision)
        fill_object(earlier.value, version.value)
        fill_time(earlier.update_time, version.updated_at)


async def fill_match(target: pb.FactMatch, match: FactMatch) -> None:
    """Writes a fact that was found into a message of its own; lets other calls through where it is large."""
    await fill_any_fact(target.fact, match.fact)
    if match.score is not None:
        target.score = match.score
    if match.similarity is not None:
        target.similarity = match.similarity
    if match.keyword_score is not None:
        target.keyword_score = match.keyword_score


async def fill_any_fact(target: pb.Fact, fact: Fact) -> None:
    """The same as `fill_fact`, on a thread where the fact holds a great many values."""
    if holds_many(fact.value) or any(holds_many(version.value) for version in fact.versions):
        await asyncio.to_thread(fill_fact, target, fact)
    else:
        fill_fact(target, fact)


def put_to_pb(receipt: FactReceipt) -> pb.PutFactResponse:
    """The acknowledgement of a write, with the fact as it is now."""
    message = pb.PutFactResponse()
    fill_receipt(message.receipt, receipt.receipt)
    if receipt.fact is not None:
        fill_fact(message.fact, receipt.fact)
    return message


def put_results_to_pb(outcomes: Iterable[WriteReceipt | Failure]) -> pb.PutFactsResponse:
    """What became of each fact of a run."""
    message = pb.PutFactsResponse()
    for outcome in outcomes:
        if isinstance(outcome, Failure):
            message.results.add(error=outcome.to_item_error())
        else:
            fill_receipt(message.results.add().receipt, outcome)
    return message


async def fact_to_pb(fact: Fact) -> pb.GetFactResponse:
    """One fact; lets other calls through where it is large."""
    message = pb.GetFactResponse()
    await fill_any_fact(message.fact, fact)
    return message


async def facts_to_pb(facts: Iterable[Fact]) -> pb.GetFactsResponse:
    """Several facts; lets other calls through where they are many."""
    message = pb.GetFactsResponse()
    pause = Pause()
    for fact in facts:
        await fill_any_fact(message.facts.add(), fact)
        await pause.where_due()
    return message


async def page_to_pb(page: FactPage, next_page_token: str) -> pb.ListFactsResponse:
    """The page; lets other calls through where it is long."""
    message = pb.ListFactsResponse(next_page_token=next_page_token)
    pause = Pause()
    for fact in page.facts:
        await fill_any_fact(message.facts.add(), fact)
        await pause.where_due()
    return message


async def answer_to_pb(answer: FactSearchAnswer) -> pb.SearchFactsResponse:
    """The answer to a search; lets other calls through where it is long."""
    message = pb.SearchFactsResponse(diagnostics=diagnostics_to_pb(answer.diagnostics))
    pause = Pause()
    for match in answer.matches:
        await fill_match(message.results.add(), match)
        await pause.where_due()
    return message


def namespaces_to_pb(page: NamespacePage, next_page_token: str) -> pb.ListNamespacesResponse:
    """A page of namespaces."""
    message = pb.ListNamespacesResponse(next_page_token=next_page_token)
    for labels in page.namespaces:
        message.namespaces.add(labels=labels)
    return message


def deleted_to_pb(receipt: BulkDeleteReceipt) -> pb.DeleteFactsResponse:
    """What a delete by filter did."""
    return pb.DeleteFactsResponse(deleted_count=receipt.deleted_count, replayed=receipt.replayed)


def _known(values: Mapping[int, Value], number: int) -> Value:
    if number not in values:
        raise ValueError("the number is not known")
    return values[number]


def _time_or_none(message: pb.Fact, field: str) -> datetime | None:
    return checked_time_from_pb(getattr(message, field)) if message.HasField(field) else None  # type: ignore[arg-type]
