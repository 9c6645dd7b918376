"""Both directions between the values of facts and the messages of the wire."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from google.protobuf import duration_pb2

from mnemon._messages import documents as convert
from mnemon._messages.documents import invalid
from mnemon._messages.json import object_from_pb, object_to_pb
from mnemon._messages.memories import time_to_pb
from mnemon._values import facts
from mnemon.v1 import facts_pb2 as pb


def namespace_to_pb(given: object, field: str = "namespace") -> list[str]:
    """Labels for the wire; a bare text is not a sequence of labels."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise invalid(field, f"must be a sequence of labels, such as ({str(given)[:80]!r},)")
    return [convert.text(f"{field}[{number}]", label) for number, label in enumerate(given)]


def fact_to_pb(fact: facts.Fact) -> pb.Fact:
    """A fact for the wire, without what only the server sets."""
    message = pb.Fact(
        namespace=namespace_to_pb(fact.namespace),
        key=convert.text("key", fact.key),
        value=object_to_pb("value", fact.value),
        metadata=convert.metadata_to_pb("metadata", fact.metadata),
        index=_index_to_pb(fact.index),
    )
    if fact.create_time is not None:
        message.create_time.CopyFrom(time_to_pb("create_time", fact.create_time))
    if fact.update_time is not None:
        message.update_time.CopyFrom(time_to_pb("update_time", fact.update_time))
    if fact.ttl is not None:
        message.ttl.CopyFrom(_duration_to_pb("ttl", fact.ttl))
    return message


def fact_from_pb(fact: pb.Fact) -> facts.Fact:
    """A fact of the wire."""
    return facts.Fact(
        namespace=tuple(fact.namespace),
        key=fact.key,
        value=object_from_pb(fact.value),
        metadata={key: convert.value_from_pb(key, value) for key, value in fact.metadata.items()},
        create_time=convert.time_from_pb(fact, "create_time"),
        update_time=convert.time_from_pb(fact, "update_time"),
        ttl=fact.ttl.ToTimedelta() if fact.HasField("ttl") else None,
        index=_index_from_pb(fact),
        revision=fact.revision,
        expire_time=convert.time_from_pb(fact, "expire_time"),
        versions=tuple(map(_version_from_pb, fact.versions)),
    )


def filter_to_pb(namespace: object, *, subtree: bool, where: object | None) -> pb.FactFilter:
    """Which facts are meant, for the wire."""
    message = pb.FactFilter(namespace=namespace_to_pb(namespace), subtree=subtree)
    if where is not None:
        message.where.CopyFrom(object_to_pb("where", where))
    return message


def receipt_from_pb(response: pb.PutFactResponse) -> facts.FactReceipt:
    """What the server promises of a put."""
    stored = fact_from_pb(response.fact) if response.HasField("fact") else None
    return facts.FactReceipt(convert.receipt_from_pb(response.receipt), stored)


def answer_from_pb(response: pb.SearchFactsResponse) -> facts.FactAnswer:
    """What a search for facts says."""
    return facts.FactAnswer(
        tuple(map(match_from_pb, response.results)), convert.diagnostics_from_pb(response.diagnostics)
    )


def match_from_pb(match: pb.FactMatch) -> facts.FactMatch:
    """A fact found."""
    scores: dict[str, Any] = {
        name: getattr(match, name) if match.HasField(name) else None
        for name in ("score", "similarity", "keyword_score")
    }
    return facts.FactMatch(fact_from_pb(match.fact), **scores)


def page_from_pb(response: pb.ListFactsResponse) -> facts.FactPage:
    """A page of facts."""
    return facts.FactPage(tuple(map(fact_from_pb, response.facts)), response.next_page_token)


def namespaces_from_pb(response: pb.ListNamespacesResponse) -> facts.NamespacePage:
    """A page of namespaces."""
    return facts.NamespacePage(tuple(tuple(each.labels) for each in response.namespaces), response.next_page_token)


def _version_from_pb(version: pb.FactVersion) -> facts.FactVersion:
    return facts.FactVersion(
        version.revision, object_from_pb(version.value), convert.time_from_pb(version, "update_time")
    )


def _index_to_pb(given: object) -> pb.FactIndex | None:
    if given is None:
        return None
    if given is False:
        return pb.FactIndex(off=True)
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise invalid("index", 'must be paths such as ["title", "messages[*].text"], False for none, or None')
    paths = [convert.text(f"index[{number}]", path) for number, path in enumerate(given)]
    if not paths:
        # On the wire that is the default, which nobody means who says none.
        raise invalid("index", "must name a path; False searches nothing, and None what is usual")
    return pb.FactIndex(paths=paths)


def _index_from_pb(fact: pb.Fact) -> facts.FactIndex:
    if fact.index.off:
        return False
    return tuple(fact.index.paths) or None


def _duration_to_pb(field: str, given: object) -> duration_pb2.Duration:
    if not isinstance(given, timedelta):
        raise invalid(field, f"must be a timedelta, not {type(given).__name__}")
    message = duration_pb2.Duration()
    message.FromTimedelta(given)
    return message
