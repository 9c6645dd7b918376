"""Builds the request of every call about merge rules; both clients share it."""

from collections.abc import Iterable, Mapping

from google.protobuf.field_mask_pb2 import FieldMask

from mnemon._enums import numbers_by_member
from mnemon._messages import documents as convert
from mnemon._messages import rules as rule_convert
from mnemon._messages.documents import invalid
from mnemon._messages.fields import int32_to_pb
from mnemon._messages.semantic import statement_to_pb
from mnemon._messages.semantic_requests import request_id_to_pb
from mnemon._values import rules, semantic
from mnemon.v1 import rules_pb2 as pb

_ORDERS = numbers_by_member(rules.RuleOrder, pb.DESCRIPTOR.enum_types_by_name["RuleOrder"])


def register(rule: rules.MergeRule, *, request_id: str | None) -> pb.RegisterRuleRequest:
    """A new rule."""
    return pb.RegisterRuleRequest(rule=rule_convert.rule_to_pb(rule), request_id=request_id_to_pb(request_id))


def get(name: str) -> pb.GetRuleRequest:
    """A read of one rule."""
    return pb.GetRuleRequest(name=convert.text("name", name))


def update(
    name: str,
    changes: rules.MergeRule,
    *,
    update_mask: Iterable[str],
    expected_revision: int | None,
    request_id: str | None,
) -> pb.UpdateRuleRequest:
    """A change of a rule."""
    if not isinstance(changes, Mapping):
        raise invalid("changes", f"must be an object with the keys to be changed, not {type(changes).__name__}")
    if changes.get("name", name) != name:
        raise invalid("rule.name", f"must be {name!r}, or not be there: a rule cannot be given another name")
    if isinstance(update_mask, str):
        raise invalid("update_mask", f"must be several fields, such as [{update_mask!r}]")
    paths = [rule_convert.field_to_pb(convert.text("update_mask", each)) for each in update_mask]
    return pb.UpdateRuleRequest(
        rule=rule_convert.rule_to_pb({**changes, "name": name}),
        update_mask=FieldMask(paths=paths) if paths else None,
        expected_revision=expected_revision,
        request_id=request_id_to_pb(request_id),
    )


def delete(
    name: str, *, force: bool, allow_missing: bool, expected_revision: int | None, request_id: str | None
) -> pb.DeleteRuleRequest:
    """A removal of a rule."""
    return pb.DeleteRuleRequest(
        name=convert.text("name", name),
        force=force,
        allow_missing=allow_missing,
        expected_revision=expected_revision,
        request_id=request_id_to_pb(request_id),
    )


def list_page(*, order: str, page_size: int, page_token: str) -> pb.ListRulesRequest:
    """A page of rules."""
    return pb.ListRulesRequest(
        order=_ORDERS[convert.choice("order", order, rules.RuleOrder)],
        page_size=int32_to_pb(page_size),
        page_token=convert.text("page_token", page_token),
    )


def find_matching(
    candidate: semantic.SemanticMemory, existing: semantic.SemanticMemory | None
) -> pb.FindMatchingRuleRequest:
    """A request for the rule that applies."""
    for field, given in (("candidate", candidate), ("existing", existing or candidate)):
        if not isinstance(given, semantic.SemanticMemory):
            raise invalid(field, "must be a SemanticMemory")
    return pb.FindMatchingRuleRequest(
        candidate=statement_to_pb(candidate), existing=None if existing is None else statement_to_pb(existing)
    )


def resolve(name: str) -> pb.ResolveRuleRequest:
    """A request for one rule with all that it inherits."""
    return pb.ResolveRuleRequest(name=convert.text("name", name))


def load(
    given: Iterable[rules.MergeRule], *, replace_all: bool, lenient: bool, request_id: str | None
) -> pb.LoadRulesRequest:
    """Rules to take."""
    return pb.LoadRulesRequest(
        rules=rule_convert.rules_to_pb(given),
        replace_all=replace_all,
        lenient=lenient,
        request_id=request_id_to_pb(request_id),
    )


def reset(*, request_id: str | None) -> pb.ResetRulesRequest:
    """A request to reset the rules to those of a new vault."""
    return pb.ResetRulesRequest(request_id=request_id_to_pb(request_id))
