"""Converts the values of facts to protobuf messages, and back."""

from collections.abc import Iterable
from datetime import timedelta

from google.protobuf import duration_pb2

from mnemon._messages import documents as convert
from mnemon._messages.documents import invalid
from mnemon._messages.json import object_from_pb, object_to_pb
from mnemon._messages.memories import filter_to_pb, time_to_pb
from mnemon._namespaces import label_of, likely_labels
from mnemon._status import error_from_item
from mnemon._values import facts, filters
from mnemon.v1 import facts_pb2 as pb


def namespace_to_pb(given: object, field: str = "namespace") -> list[str]:
    """Labels of a namespace; a bare text is not a sequence of labels."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise invalid(field, f"must be a sequence of labels, such as {likely_labels(str(given)[:80])!r}")
    return [convert.text(f"{field}[{number}]", label_of(label)) for number, label in enumerate(given)]


def fact_to_pb(fact: facts.Fact) -> pb.Fact:
    """A fact as a message, without the fields that only the server sets."""
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
        message.ttl.CopyFrom(duration_to_pb("ttl", fact.ttl))
    return message


def fact_from_pb(fact: pb.Fact) -> facts.Fact:
    """The fact of a message."""
    return facts.Fact(
        namespace=tuple(fact.namespace),
        key=fact.key,
        value=object_from_pb(fact.value),
        metadata=convert.metadata_from_pb(fact.metadata),
        create_time=convert.time_from_pb(fact, "create_time"),
        update_time=convert.time_from_pb(fact, "update_time"),
        ttl=fact.ttl.ToTimedelta() if fact.HasField("ttl") else None,
        index=_index_from_pb(fact),
        revision=fact.revision,
        expire_time=convert.time_from_pb(fact, "expire_time"),
        versions=tuple(map(_version_from_pb, fact.versions)),
        embeddings=tuple(tuple(embedding.values) for embedding in fact.embeddings),
    )


def fact_filter_to_pb(namespace: object, *, subtree: bool, where: object | None) -> pb.FactFilter:
    """The filter of facts, as a message."""
    asked = filters.as_fact_filter(where)
    return pb.FactFilter(
        namespace=namespace_to_pb(namespace),
        subtree=subtree,
        filter=None if asked is None else filter_to_pb(asked),
    )


def receipt_from_pb(response: pb.PutFactResponse) -> facts.FactReceipt:
    """The server's receipt for a put."""
    stored = fact_from_pb(response.fact) if response.HasField("fact") else None
    return facts.FactReceipt(convert.receipt_from_pb(response.receipt), stored)


def answer_from_pb(response: pb.SearchFactsResponse) -> facts.FactAnswer:
    """The answer of a search for facts."""
    return facts.FactAnswer(
        tuple(map(match_from_pb, response.results)),
        convert.diagnostics_from_pb(response.diagnostics),
        response.truncated,
    )


class FoundFacts:
    """Collects facts from several answers, since one holds at most 3 MiB."""

    def __init__(self) -> None:
        self._found: dict[tuple[tuple[str, ...], str], facts.Fact] = {}

    def take(self, response: pb.BatchGetFactsResponse) -> bool:
        """Takes an answer, and returns whether to ask for more."""
        for each in response.facts:
            fact = fact_from_pb(each)
            self._found[fact.namespace, fact.key] = fact
        # A truncated answer holds at least one fact; otherwise asking again would never end.
        return bool(response.remaining and response.facts)

    def in_order(self, names: Iterable[pb.FactName]) -> tuple[facts.Fact, ...]:
        """Those with these names, in their order."""
        asked = ((tuple(name.namespace), name.key) for name in names)
        return tuple(self._found[name] for name in asked if name in self._found)


def match_from_pb(match: pb.FactMatch) -> facts.FactMatch:
    """A fact found."""
    fact, score = fact_from_pb(match.fact), match.score
    if not match.HasField("score"):
        return facts.FactMatch(fact)
    return facts.FactMatch(
        fact,
        score.relevance,
        score.vector if score.HasField("vector") else None,
        score.keyword if score.HasField("keyword") else None,
    )


def renewals_from_pb(request: pb.RenewFactsRequest, response: pb.RenewFactsResponse) -> tuple[facts.RenewResult, ...]:
    """The result for each fact whose ttl was restarted."""
    each = zip(request.names, response.results, strict=True)
    return tuple(_renewal_from_pb(tuple(name.namespace), name.key, result) for name, result in each)


def page_from_pb(response: pb.ListFactsResponse) -> facts.FactPage:
    """A page of facts."""
    return facts.FactPage(tuple(map(fact_from_pb, response.facts)), response.next_page_token)


def namespaces_from_pb(response: pb.ListNamespacesResponse) -> facts.NamespacePage:
    """A page of namespaces."""
    return facts.NamespacePage(tuple(tuple(each.labels) for each in response.namespaces), response.next_page_token)


def _renewal_from_pb(namespace: facts.Namespace, key: str, result: pb.RenewFactResult) -> facts.RenewResult:
    if result.WhichOneof("outcome") == "error":
        return facts.RenewResult(namespace, key, error=error_from_item(result.error))
    return facts.RenewResult(namespace, key, convert.time_from_pb(result.renewal, "expire_time"))


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
        # In the message, an empty list means the default, but the caller means no path.
        raise invalid("index", "must name a path; False searches nothing, and None what is usual")
    return pb.FactIndex(paths=paths)


def _index_from_pb(fact: pb.Fact) -> facts.FactIndex:
    if fact.index.off:
        return False
    return tuple(fact.index.paths) or None


def duration_to_pb(field: str, given: object) -> duration_pb2.Duration:
    if not isinstance(given, timedelta):
        raise invalid(field, f"must be a timedelta, not {type(given).__name__}")
    message = duration_pb2.Duration()
    message.FromTimedelta(given)
    return message
