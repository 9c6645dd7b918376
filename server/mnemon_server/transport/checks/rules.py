"""Checks of the rules service's requests: why a rule is no rule as JSON values. What it may say, the rules say."""

from collections.abc import Iterator, Sequence

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from mnemon.v1 import rules_pb2 as pb

from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.domain.rules import RULES_MAX
from mnemon_server.domain.validation import refuse
from mnemon_server.transport.convert import semantic_requests
from mnemon_server.transport.convert.rules import RULE_ORDERS
from mnemon_server.transport.convert.shared.reading import page_size_violations, unknown

DURATION_NS_MIN, DURATION_NS_MAX = 1_000, 315_576_000_000 * 10**9
DURATION_RANGE = "must be more than 0, a microsecond to 10,000 years, with 0 to 999,999,999 nanoseconds"


def check_rule(request: pb.RegisterRuleRequest | pb.UpdateRuleRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    if not request.HasField("rule"):
        raise InvalidArgumentError.of("rule", "is required")
    refuse(shape_violations("rule", request.rule))


def check_list_rules(request: pb.ListRulesRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    refuse([*unknown("order", request.order, RULE_ORDERS), *page_size_violations(request.page_size)])


def check_find_matching_rule(request: pb.FindMatchingRuleRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    if not request.HasField("candidate"):
        raise InvalidArgumentError.of("candidate", "is required")
    refuse(semantic_requests.shape_violations(request.candidate, "candidate"))


def check_load_rules(request: pb.LoadRulesRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    if len(request.rules) > RULES_MAX:
        raise InvalidArgumentError.of("rules", f"must be at most {RULES_MAX:,}")
    refuse(
        violation for index, rule in enumerate(request.rules) for violation in shape_violations(f"rules[{index}]", rule)
    )


def shape_violations(path: str, message: Message) -> Iterator[FieldViolation]:
    """Why a rule, or a part of one, has no form as JSON values."""
    for field, value in message.ListFields():
        here = f"{path}.{field.name}"
        if isinstance(value, Duration):
            yield from _duration_violations(here, value)
        elif isinstance(value, Message):
            yield from shape_violations(here, value)
        elif field.enum_type is not None:
            known = [number for number in field.enum_type.values_by_number if number]
            several = isinstance(value, Sequence)
            for index, number in enumerate(value if several else [value]):
                yield from unknown(f"{here}[{index}]" if several else here, number, known)


def _duration_violations(field: str, message: Duration) -> Iterator[FieldViolation]:
    # What a rule refuses of it, too: under its key, which is not the name of the field.
    nanoseconds = message.seconds * 10**9 + message.nanos
    if not (DURATION_NS_MIN <= nanoseconds <= DURATION_NS_MAX and 0 <= message.nanos < 10**9):
        yield FieldViolation(field, DURATION_RANGE)
