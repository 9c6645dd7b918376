"""The requests and answers of the other services that need more than their fields."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mnemon._arguments import check_number, check_whole
from mnemon._local_time import Moment, end_of, start_of
from mnemon._messages import convert
from mnemon._messages.convert import invalid
from mnemon._messages.filters import check_keywords, where_to_pb
from mnemon._messages.recall import messages_to_pb
from mnemon._messages.records import given_statement
from mnemon._messages.rules import field_to_pb, rule_to_pb
from mnemon._messages.translation import read, request
from mnemon._values import bridge, facts, filters, semantic, tenants
from mnemon._values import documents as values
from mnemon._values.rules import MergeRule
from mnemon.shared.errors import InvalidArgumentError
from mnemon.v1 import (
    bridge_pb2,
    common_pb2,
    conflicts_pb2,
    erase_pb2,
    extractor_pb2,
    facts_pb2,
    rules_pb2,
    tenant_pb2,
)

# Conflicts and rules


def reference_to_pb(field: str, given: object, expected_revision: int | None = None) -> conflicts_pb2.MemoryReference:
    """A statement that is stored, or given."""
    if isinstance(given, semantic.SemanticMemory):
        return conflicts_pb2.MemoryReference(memory=given_statement(field, given))
    if isinstance(given, str) and given:
        memory_id = convert.text(field, given)
        return conflicts_pb2.MemoryReference(memory_id=memory_id, expected_revision=expected_revision)
    raise invalid(field, "must be the id of a stored statement, or a SemanticMemory")


def unmerge(decision_id: str, *, memory_id: str, request_id: str | None) -> conflicts_pb2.UnmergeMemoryRequest:
    """A request to undo a decision, or the decision that made a statement."""
    if bool(decision_id) == bool(memory_id):
        raise invalid("target", "must be a decision_id, or the memory_id of what came of a merge; give one")
    kind = conflicts_pb2.UnmergeMemoryRequest
    return request(kind, decision_id=decision_id or None, memory_id=memory_id or None, request_id=request_id)


def update_rule(
    name: str, changes: MergeRule, *, update_mask: Iterable[str], **how: Any
) -> rules_pb2.UpdateRuleRequest:
    """A change of a rule; `how` are the other fields of the request."""
    if not hasattr(changes, "items"):
        raise invalid("changes", f"must be an object with the keys to be changed, not {type(changes).__name__}")
    if changes.get("name", name) != name:
        raise invalid("rule.name", f"must be {name!r}, or not be there: a rule cannot be given another name")
    if isinstance(update_mask, str):
        raise invalid("update_mask", f"must be several fields, such as [{update_mask!r}]")
    paths = [field_to_pb(convert.text("update_mask", each)) for each in update_mask]
    rule = rule_to_pb({**changes, "name": name})
    return request(rules_pb2.UpdateRuleRequest, rule=rule, update_mask=paths or None, **how)


# The timeline and the bridge


def range_to_pb(since: Moment | None, until: Moment | None) -> common_pb2.TimeRange | None:
    """A range of time; None if both ends are open. A day as the end counts to its last microsecond."""
    if since is None and until is None:
        return None
    return common_pb2.TimeRange(
        start_time=None if since is None else convert.moment_to_pb("since", since, start_of),
        end_time=None if until is None else convert.moment_to_pb("until", until, end_of),
    )


def window_to_pb(last_days: int | None, since: Moment | None, until: Moment | None) -> dict[str, Any]:
    """The window of a query, in days or as a range."""
    span = range_to_pb(since, until)
    if span is not None and last_days is not None:
        raise invalid("last_days", "says the window already; leave it out, or since and until")
    return {"range": span, "last_days": last_days}


def update_policy(
    policy: bridge.RoutingPolicy | None, changes: bridge.PolicyChanges, **how: Any
) -> bridge_pb2.UpdateRoutingPolicyRequest:
    """A change of all fields with a whole policy, otherwise of the given ones."""
    check_keywords(changes, bridge.PolicyChanges.__annotations__)
    changed = replace(policy or bridge.RoutingPolicy(), **changes)
    check_whole("content_max", changed.content_max)
    sent = {name: getattr(changed, name) for name in bridge.PolicyChanges.__annotations__}
    return request(
        bridge_pb2.UpdateRoutingPolicyRequest,
        policy=request(bridge_pb2.RoutingPolicy, **sent),
        update_mask=sorted(changes) if policy is None else list(sent),
        **how,
    )


def extraction_messages_to_pb(given: Sequence[Mapping[str, Any]]) -> list[extractor_pb2.ExtractionMessage]:
    """The turns of a conversation; other keys than role, name, content and time are not sent."""
    found = []
    for number, (turn, plain) in enumerate(zip(given, messages_to_pb(given), strict=True)):
        message = extractor_pb2.ExtractionMessage(
            role=plain.role, name=convert.text(f"messages[{number}].name", turn.get("name", "")), content=plain.content
        )
        if (time := turn.get("time")) is not None:
            message.message_time.CopyFrom(convert.moment_to_pb(f"messages[{number}].time", time))
        found.append(message)
    return found


# Facts


class FoundFacts:
    """Collects facts from several answers, since one holds at most 3 MiB."""

    def __init__(self) -> None:
        self._found: dict[tuple[tuple[str, ...], str], facts.Fact] = {}

    def take(self, response: facts_pb2.BatchGetFactsResponse) -> bool:
        """Takes an answer, and returns whether to ask for more."""
        for each in response.facts:
            fact = read(facts.Fact, each)
            self._found[fact.namespace, fact.key] = fact
        # A truncated answer holds at least one fact; otherwise asking again would never end.
        return bool(response.remaining and response.facts)

    def in_order(self, names: Iterable[facts_pb2.FactName]) -> tuple[facts.Fact, ...]:
        """The facts with these names, in their order."""
        asked = ((tuple(name.namespace), name.key) for name in names)
        return tuple(self._found[name] for name in asked if name in self._found)


def renewals_from_pb(
    request: facts_pb2.RenewFactsRequest, response: facts_pb2.RenewFactsResponse
) -> tuple[facts.RenewResult, ...]:
    """The result for each fact whose ttl was restarted."""
    return tuple(
        read(
            facts.RenewResult,
            result.renewal if result.HasField("renewal") else result,
            namespace=tuple(name.namespace),
            key=name.key,
        )
        for name, result in zip(request.names, response.results, strict=True)
    )


# Erasures, tenants and forecasts


def erase_to_pb(
    user: str,
    namespace: Iterable[str],
    kind: str,
    scope: values.Scope | None,
    where: filters.Filter | None,
    origin: str = "",
    origin_name: str = "",
    request_id: str | None = None,
    *,
    revoke_keys: bool = False,
    dry_run: bool = False,
) -> erase_pb2.EraseRequest:
    """The request; exactly one of user, namespace, origin and kind must be given."""
    labels = convert.namespace_to_pb("namespace", namespace)
    if [bool(user), bool(labels), bool(origin), bool(kind)].count(True) != 1:
        raise InvalidArgumentError.of("target", "must be one of user, namespace, origin and kind: say what to erase")
    if origin_name and not origin:
        raise InvalidArgumentError.of("origin", "is required with origin_name")
    source = {"origin": convert.text("origin", origin), "name": convert.text("origin_name", origin_name)}
    if not kind and (scope is not None or where is not None):
        raise InvalidArgumentError.of("kind", "is required with scope and where: erase one kind of record at a time")
    return erase_pb2.EraseRequest(
        user=convert.text("user", user) if user else None,  # type: ignore[arg-type] # None leaves it unset
        namespace=facts_pb2.FactNamespace(labels=labels) if labels else None,
        filter=_erase_filter(kind, scope, where) if kind else None,
        origin=erase_pb2.EraseOrigin(**source) if origin else None,
        dry_run=dry_run,
        request_id="" if dry_run else convert.request_id_to_pb(request_id),
        revoke_keys=revoke_keys,
    )


def _erase_filter(kind: str, scope: values.Scope | None, where: filters.Filter | None) -> erase_pb2.EraseFilter:
    return request(erase_pb2.EraseFilter, kind=kind, scope=scope, filter=where_to_pb(where))


def quotas_to_pb(quotas: tenants.Quotas | None) -> tenant_pb2.Quotas | None:
    """The quotas that are set."""
    if quotas is None:
        return None
    if not isinstance(quotas, tenants.Quotas):
        raise invalid("quotas", f"must be Quotas, such as Quotas(records=1000), not {type(quotas).__name__}")
    message = tenant_pb2.Quotas()
    for field in message.DESCRIPTOR.fields:
        if (given := getattr(quotas, field.name)) is not None:
            check = check_whole if field.cpp_type == field.CPPTYPE_INT64 else check_number
            setattr(message, field.name, check(f"quotas.{field.name}", given))
    return message
