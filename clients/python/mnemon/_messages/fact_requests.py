"""Builds the request of every call about facts; both clients share it."""

from collections.abc import Iterable, Sequence
from typing import Any

from mnemon._enums import numbers_by_member
from mnemon._messages import documents as convert
from mnemon._messages import facts as fact_convert
from mnemon._messages.documents import invalid
from mnemon._messages.fields import ids_filter, int32_to_pb, limit_to_pb
from mnemon._messages.memories import vector_to_pb
from mnemon._messages.semantic_requests import request_id_to_pb
from mnemon._values import documents as values
from mnemon._values import facts
from mnemon.v1 import facts_pb2 as pb

_MODES = numbers_by_member(facts.PutMode, pb.DESCRIPTOR.enum_types_by_name["PutMode"])


def put(
    fact: facts.Fact,
    *,
    mode: str,
    embedding: Sequence[float] | None = None,
    expected_revision: int | None = None,
    request_id: str | None = None,
    ack: str,
) -> pb.PutFactRequest:
    """A fact to store; it always has a request_id, so repeating it is harmless."""
    return pb.PutFactRequest(
        fact=fact_convert.fact_to_pb(fact),
        mode=_MODES[convert.choice("mode", mode, facts.PutMode)],
        embedding=vector_to_pb("embedding", embedding),
        expected_revision=expected_revision,
        request_id=request_id_to_pb(request_id),
        ack=_ack(ack),
    )


def put_like(given: object, *, mode: str, ack: str) -> pb.PutFactRequest:
    """One item of `put_many`."""
    fact, embedding = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    if not isinstance(fact, facts.Fact):
        raise invalid("fact", "must be a Fact, alone or with its vector as a pair")
    return put(fact, mode=mode, embedding=embedding, ack=ack)


def get(namespace: Iterable[str], key: str, *, versions: bool) -> pb.GetFactRequest:
    """A read of one fact."""
    return pb.GetFactRequest(
        namespace=fact_convert.namespace_to_pb(namespace),
        key=convert.text("key", key),
        show_versions=versions,
    )


def get_many(names: Iterable[tuple[Iterable[str], str]]) -> pb.BatchGetFactsRequest:
    """A read of several facts."""
    return pb.BatchGetFactsRequest(names=_names(names))


def get_remaining(response: pb.BatchGetFactsResponse) -> pb.BatchGetFactsRequest:
    """A request for the facts that did not fit into an answer."""
    return pb.BatchGetFactsRequest(names=response.remaining)


def renew(names: Iterable[tuple[Iterable[str], str]], *, request_id: str | None) -> pb.RenewFactsRequest:
    """A renewal of several facts."""
    return pb.RenewFactsRequest(names=_names(names), request_id=request_id_to_pb(request_id))


def search(
    query: str,
    *,
    namespace: Iterable[str],
    subtree: bool,
    where: facts.FactWhere | None,
    vector: Sequence[float] | None,
    limit: int,
    offset: int,
    mode: str | None,
    min_score: float,
    view: str,
) -> pb.SearchFactsRequest:
    """A search for facts."""
    return pb.SearchFactsRequest(
        query=convert.text("query", query),
        vector=vector_to_pb("vector", vector),
        mode=convert.mode_to_pb(mode),
        limit=limit_to_pb(limit),
        min_score=min_score,
        filter=fact_convert.fact_filter_to_pb(namespace, subtree=subtree, where=where),
        view=convert.VIEWS_TO_PB[convert.choice("view", view, values.View)],
        offset=int32_to_pb(offset),
    )


def list_page(
    *,
    namespace: Iterable[str],
    subtree: bool,
    where: facts.FactWhere | None,
    page_size: int,
    page_token: str,
    versions: bool,
) -> pb.ListFactsRequest:
    """A page of facts."""
    return pb.ListFactsRequest(
        filter=fact_convert.fact_filter_to_pb(namespace, subtree=subtree, where=where),
        page_size=int32_to_pb(page_size),
        page_token=convert.text("page_token", page_token),
        show_versions=versions,
    )


def namespaces_page(
    *, prefix: Iterable[str], suffix: Iterable[str], max_depth: int, page_size: int, page_token: str
) -> pb.ListNamespacesRequest:
    """A page of namespaces."""
    return pb.ListNamespacesRequest(
        prefix=fact_convert.namespace_to_pb(prefix, "prefix"),
        suffix=fact_convert.namespace_to_pb(suffix, "suffix"),
        max_depth=int32_to_pb(max_depth),
        page_size=int32_to_pb(page_size),
        page_token=convert.text("page_token", page_token),
    )


def delete(
    namespace: Iterable[str],
    key: str,
    *,
    expected_revision: int | None,
    allow_missing: bool,
    request_id: str | None,
    ack: str,
) -> pb.DeleteFactRequest:
    """A removal of one fact."""
    return pb.DeleteFactRequest(
        namespace=fact_convert.namespace_to_pb(namespace),
        key=convert.text("key", key),
        expected_revision=expected_revision,
        allow_missing=allow_missing,
        request_id=request_id_to_pb(request_id),
        ack=_ack(ack),
    )


def delete_many(
    keys: Iterable[str] | None,
    *,
    namespace: Iterable[str],
    subtree: bool,
    where: facts.FactWhere | None,
    dry_run: bool,
    request_id: str | None,
) -> pb.DeleteFactsRequest:
    """A request to remove the facts with these keys, or all that match."""
    if keys is not None:
        where = ids_filter("keys", keys, "key", alone=where is None)
    return pb.DeleteFactsRequest(
        filter=fact_convert.fact_filter_to_pb(namespace, subtree=subtree, where=where),
        dry_run=dry_run,
        request_id=request_id_to_pb(request_id),
    )


def _names(names: Iterable[tuple[Iterable[str], str]]) -> list[pb.FactName]:
    return [_name(number, name) for number, name in enumerate(names)]


def _name(number: int, given: object) -> pb.FactName:
    if not isinstance(given, tuple) or len(given) != 2:
        raise invalid(f"names[{number}]", 'must be a namespace with a key, such as (("user", "ada"), "tea")')
    namespace, key = given
    return pb.FactName(
        namespace=fact_convert.namespace_to_pb(namespace, f"names[{number}].namespace"),
        key=convert.text(f"names[{number}].key", key),
    )


def _ack(given: str) -> Any:
    return convert.ACKS_TO_PB[convert.choice("ack", given, values.AckLevel)]
