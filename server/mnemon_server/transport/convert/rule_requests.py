"""Requests to the rules service as values: rules as JSON values, whose form `rules.py` describes.

Each function raises InvalidArgumentError with every field that has no such form; the registry checks what a rule says.
Requests that only name a rule need no conversion.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from mnemon.v1 import rules_pb2 as pb

from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.rules import RULES_MAX, RuleOrder
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.transport.convert.rules import NANOSECONDS, SECONDS, enum_prefix, field_from_pb
from mnemon_server.transport.convert.semantic_requests import read_statement
from mnemon_server.transport.convert.shared.reader import Reader, require

RULE_ORDERS: Mapping[int, RuleOrder] = {
    pb.RULE_ORDER_UNSPECIFIED: RuleOrder.REGISTRATION,
    pb.RULE_ORDER_REGISTRATION: RuleOrder.REGISTRATION,
    pb.RULE_ORDER_MATCHING: RuleOrder.MATCHING,
}
DURATION_NS_MIN, DURATION_NS_MAX = 1_000, 315_576_000_000 * NANOSECONDS
DURATION_RANGE = "must be more than 0, a microsecond to 10,000 years, with 0 to 999,999,999 nanoseconds"


class Page(NamedTuple):
    """In which order rules are listed, and how many a page has at most."""

    order: RuleOrder
    limit: int


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


def read_list(request: pb.ListRulesRequest) -> Page:
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
