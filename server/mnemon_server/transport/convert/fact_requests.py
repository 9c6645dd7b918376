"""Requests to the fact service as values.

Each function raises InvalidArgumentError if a field cannot be read as a value, and then with everything that is wrong;
see `Reader`.
"""

from collections.abc import Mapping
from itertools import chain
from typing import NamedTuple

from mnemon.v1 import facts_pb2 as pb

from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.facts import (
    LIMIT_DEFAULT,
    FactFilter,
    FactIndex,
    FactQuery,
    PutFact,
    PutMode,
    key_violations,
)
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.records import AckLevel
from mnemon_server.domain.validation import request_id_violations, revision_violations
from mnemon_server.services.background.pause import Pause
from mnemon_server.services.facts.checks import (
    NAMES_MAX,
    filter_violations,
    names_violations,
    pattern_violations,
    put_violations,
    query_violations,
)
from mnemon_server.transport.convert.shared.filters import read_filter
from mnemon_server.transport.convert.shared.json_values import read_object
from mnemon_server.transport.convert.shared.namespaces import read_namespace
from mnemon_server.transport.convert.shared.reader import Reader, expected_revision, require
from mnemon_server.transport.convert.shared.vectors import vector_from_pb
from mnemon_server.wire.values import ACK_LEVELS, SEARCH_MODES, VIEWS

PUT_MODES: Mapping[int, PutMode] = {
    pb.PUT_MODE_UNSPECIFIED: PutMode.UPSERT,
    pb.PUT_MODE_UPSERT: PutMode.UPSERT,
    pb.PUT_MODE_CREATE: PutMode.CREATE,
    pb.PUT_MODE_UPDATE: PutMode.UPDATE,
}
_DEFAULT_INDEX = FactIndex()

Filtered = pb.SearchFactsRequest | pb.ListFactsRequest | pb.DeleteFactsRequest
Names = list[tuple[Namespace, str]]


class Page(NamedTuple):
    """Which facts a page is of, and how many it has at most."""

    where: FactFilter
    limit: int


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
    )
    reader.finish(put_violations(put, len(request.embedding)))
    return put


def read_name(request: pb.GetFactRequest) -> Namespace:
    """The namespace of the requested fact."""
    reader = Reader()
    namespace = read_namespace(reader, "namespace", request.namespace)
    reader.finish(key_violations(request.key))
    return namespace


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


def read_list(request: pb.ListFactsRequest) -> Page:
    """The page."""
    reader = Reader()
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
        where=read_filter(reader, "filter.filter", message.filter) if message.HasField("filter") else None,
    )
