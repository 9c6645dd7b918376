"""Merge rules as values and as messages.

The keys of a rule are the names of the message's fields. A length of time is a number of seconds, under the name with
"_s" after it, and a value of an enumeration is its name in lower case with hyphens. An unset field is left out.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple, TypeVar

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from mnemon.v1 import rules_pb2 as pb

from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.rules import (
    RULES_MAX,
    DeletedRule,
    LoadedRules,
    ResolvedRule,
    RuleDict,
    RuleOrder,
    RulePage,
    RuleReceipt,
)
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.services.rules.inheritance import resolved_to_dict
from mnemon_server.transport.convert.semantic import read_statement
from mnemon_server.transport.convert.shared.fields import filled
from mnemon_server.transport.convert.shared.reader import Page, Reader, require
from mnemon_server.wire.enums import members_of

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
    return filled(pb.DeleteRuleResponse(), deleted, registry_version=deleted.version)


def loaded_to_pb(loaded: LoadedRules) -> pb.LoadRulesResponse:
    """The result of loading rules."""
    return filled(pb.LoadRulesResponse(), loaded, registry_version=loaded.version)


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


RULE_ORDERS = members_of(pb.RuleOrder, RuleOrder, RuleOrder.REGISTRATION)
DURATION_NS_MIN, DURATION_NS_MAX = 1_000, 315_576_000_000 * NANOSECONDS
DURATION_RANGE = "must be more than 0, a microsecond to 10,000 years, with 0 to 999,999,999 nanoseconds"


class Update(NamedTuple):
    """Changes to a rule, and the keys to change: all that are set if the mask is empty."""

    changes: dict[str, Any]
    mask: list[str]


def read_rule(request: pb.RegisterRuleRequest | pb.UpdateRuleRequest) -> dict[str, Any]:
    """The rule."""
    require(request, "rule")
    reader = Reader()
    rule = _rule(reader, "rule", request.rule)
    reader.finish()
    return rule


def read_update(request: pb.UpdateRuleRequest) -> Update:
    """The change of a rule."""
    return Update(read_rule(request), [field_from_pb(path) for path in request.update_mask.paths])


def read_list(request: pb.ListRulesRequest) -> Page[RuleOrder]:
    """The page."""
    reader = Reader()
    page = Page(reader.enum("order", request.order, RULE_ORDERS), reader.page_size(request.page_size))
    reader.finish()
    return page


def read_pair(request: pb.FindMatchingRuleRequest) -> tuple[SemanticMemory, SemanticMemory | None]:
    """The statement to find a rule for, and the statement that it conflicts with."""
    require(request, "candidate")
    reader = Reader()
    candidate = read_statement(reader, "candidate", request.candidate)
    existing = read_statement(reader, "existing", request.existing) if request.HasField("existing") else None
    reader.finish()
    return candidate, existing


def read_load(request: pb.LoadRulesRequest) -> list[dict[str, Any]]:
    """The rules to load."""
    if len(request.rules) > RULES_MAX:
        raise InvalidArgumentError.of("rules", f"must be at most {RULES_MAX:,}")
    reader = Reader()
    rules = [_rule(reader, f"rules[{index}]", rule) for index, rule in enumerate(request.rules)]
    reader.finish()
    return rules


def read_values(reader: Reader, path: str, message: Message) -> dict[str, Any]:
    """The fields that are set in a rule, or in one of its parts, as JSON values."""
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        here = f"{path}.{field.name}"
        match value:
            case Duration():
                found[f"{field.name}{SECONDS}"] = _seconds(reader, here, value)
            case Message():
                found[field.name] = read_values(reader, here, value)
            case Mapping():
                found[field.name] = dict(value)
            case Sequence() if not isinstance(value, str):
                found[field.name] = [
                    _plain(reader, f"{here}[{index}]", field.enum_type, item) for index, item in enumerate(value)
                ]
            case _:
                found[field.name] = _plain(reader, here, field.enum_type, value)
    return found


def _rule(reader: Reader, path: str, message: pb.MergeRuleConfig) -> dict[str, Any]:
    """The rule, without what only the server sets."""
    rule = read_values(reader, path, message)
    rule.pop("revision", None)
    return rule


def _plain(reader: Reader, path: str, enum: EnumDescriptor | None, value: Any) -> Any:
    return value if enum is None else reader.enum(path, value, _names(enum))


@cache
def _names(enum: EnumDescriptor) -> Mapping[int, str]:
    """How rules write the values of an enumeration, by number; UNSPECIFIED is left out."""
    prefix = enum_prefix(enum)
    values = enum.values_by_number.items()
    return {number: value.name.removeprefix(prefix).lower().replace("_", "-") for number, value in values if number}


def _seconds(reader: Reader, path: str, message: Duration) -> float:
    """The number that this length of time was: it is rounded once."""
    # A rule refuses the same, but under its key, which is not the name of the field.
    nanoseconds = message.seconds * NANOSECONDS + message.nanos
    if not (DURATION_NS_MIN <= nanoseconds <= DURATION_NS_MAX and 0 <= message.nanos < NANOSECONDS):
        reader.note(path, DURATION_RANGE)
    return nanoseconds / NANOSECONDS
