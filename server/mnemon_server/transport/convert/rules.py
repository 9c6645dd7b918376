"""Merge rules as messages. `rule_requests.py` reads them, and a rule comes back as it was.

The keys of a rule are the names of the message's fields. A length of time is a number of seconds, under the name with
"_s" after it, and a value of an enumeration is its name in lower case with hyphens. An unset field is left out.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeVar

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from mnemon.v1 import rules_pb2 as pb

from mnemon_server.domain.rules import (
    DeletedRule,
    LoadedRules,
    ResolvedRule,
    RuleDict,
    RulePage,
    RuleReceipt,
)
from mnemon_server.services.rules.inheritance import resolved_to_dict
from mnemon_server.wire import values

Receipt = TypeVar("Receipt", pb.RegisterRuleResponse, pb.GetRuleResponse, pb.UpdateRuleResponse)

SECONDS = "_s"
_DURATIONS = {"detection.time_window": f"detection.time_window{SECONDS}"}
_DURATIONS_TO_PB = {key: path for path, key in _DURATIONS.items()}
NANOSECONDS = 10**9


def fill_rule(target: pb.MergeRuleConfig, rule: RuleDict, revision: int = 0) -> None:
    """Writes a rule into a message of its own, with its revision if it is stored."""
    _fill_values(target, rule)
    target.revision = revision


def fill_receipt(message: Receipt, receipt: RuleReceipt) -> Receipt:
    """The message with a rule as it is stored, and the registry's version."""
    fill_rule(message.rule, receipt.rule, receipt.revision)
    message.registry_version = receipt.version
    message.warnings.extend(receipt.warnings)
    return message


def page_to_pb(page: RulePage, next_page_token: str) -> pb.ListRulesResponse:
    """A page of rules."""
    message = pb.ListRulesResponse(next_page_token=next_page_token, registry_version=page.version)
    for stored in page.rules:
        fill_rule(message.rules.add(), stored.rule, stored.revision)
    return message


def export_to_pb(rules: Iterable[RuleDict], version: int) -> pb.ExportRulesResponse:
    """All rules."""
    message = pb.ExportRulesResponse(registry_version=version)
    for rule in rules:
        fill_rule(message.rules.add(), rule)
    return message


def fill_resolved(target: pb.MergeRuleConfig, rule: ResolvedRule) -> None:
    """Writes a rule with all that it inherits, so that it no longer extends another."""
    fill_rule(target, resolved_to_dict(rule))


def resolved_to_pb(rule: ResolvedRule) -> pb.ResolveRuleResponse:
    """A rule with all that it inherits, and from where."""
    message = pb.ResolveRuleResponse(ancestors=rule.ancestors)
    fill_resolved(message.rule, rule)
    for field, origin in rule.origins.items():
        message.origins.add(field=field_to_pb(field), rule=origin)
    return message


def deleted_to_pb(deleted: DeletedRule) -> pb.DeleteRuleResponse:
    """The result of the removal of a rule."""
    message = pb.DeleteRuleResponse(registry_version=deleted.version)
    values.fill_receipt(message.receipt, deleted.receipt)
    return message


def loaded_to_pb(loaded: LoadedRules) -> pb.LoadRulesResponse:
    """The result of loading rules."""
    return pb.LoadRulesResponse(
        registered_count=loaded.registered_count,
        updated_count=loaded.updated_count,
        deleted_count=loaded.deleted_count,
        registry_version=loaded.version,
        warnings=loaded.warnings,
    )


def field_from_pb(path: str) -> str:
    """The key of a rule that the path of a field stands for; any other text is returned as it is."""
    return _DURATIONS.get(path, path)


def field_to_pb(path: str) -> str:
    """The path of the field that a key of a rule stands for."""
    return _DURATIONS_TO_PB.get(path, path)


def _fill_values(target: Message, values: Mapping[str, Any]) -> None:
    known: Mapping[str, Any] = target.DESCRIPTOR.fields_by_name
    for key, value in values.items():
        field = known[key if key in known else key.removesuffix(SECONDS)]
        match value:
            case Mapping() if _is_map(field):
                getattr(target, field.name).update(value)
            case Mapping():
                part = getattr(target, field.name)
                part.SetInParent()
                _fill_values(part, value)
            case str() | bool():
                setattr(target, field.name, _number(field.enum_type, value))
            case Sequence():
                getattr(target, field.name).extend(_number(field.enum_type, item) for item in value)
            case _ if field.message_type is not None:
                getattr(target, field.name).CopyFrom(_duration(value))
            case _:
                setattr(target, field.name, value)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _number(enum: EnumDescriptor | None, value: Any) -> Any:
    if enum is None:
        return value
    return enum.values_by_name[enum_prefix(enum) + value.upper().replace("-", "_")].number


def enum_prefix(enum: EnumDescriptor) -> str:
    """The prefix of the names of an enumeration's values, taken from the first one, which is always UNSPECIFIED."""
    return enum.values_by_number[0].name.removesuffix("UNSPECIFIED")


def _duration(seconds: float) -> Duration:
    """The length of time, rounded once: read as a number of seconds, it is the same number again."""
    whole, rest = divmod(round(Fraction(seconds) * NANOSECONDS), NANOSECONDS)
    return Duration(seconds=whole, nanos=rest)
