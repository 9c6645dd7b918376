"""Converts merge rules as JSON values to protobuf messages, and back.

The keys of a rule are the names of the message's fields; a length of time is a number of seconds, under the name with
the suffix "_s", and a value of an enumeration is its name in lower case with hyphens.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor as Kinds
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from mnemon._enums import words_by_number
from mnemon._messages.convert import invalid
from mnemon.shared.errors import FieldViolation, InvalidArgumentError
from mnemon.v1 import rules_pb2 as pb

_Part = TypeVar("_Part", bound=Message)

_NANOSECONDS = 10**9
_SECONDS_MAX = 315_576_000_000
_DURATIONS = {"detection.time_window_s": "detection.time_window"}
_DURATION_KEYS = {field: key for key, field in _DURATIONS.items()}
_OUTPUT_ONLY = "revision"
_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1


def rule_to_pb(rule: object) -> pb.MergeRuleConfig:
    """A rule as a message. Raises InvalidArgumentError with the path of every invalid key and value."""
    message, violations = _filled(rule, "rule")
    _refuse(violations)
    return message


def rules_to_pb(given: object) -> list[pb.MergeRuleConfig]:
    """Rules as messages. Raises InvalidArgumentError as `rule_to_pb` does, with paths such as "rules[0].merge"."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise invalid("rules", "must be several rules, such as export() returns")
    filled = [_filled(rule, f"rules[{index}]") for index, rule in enumerate(given)]
    _refuse([violation for _, violations in filled for violation in violations])
    return [message for message, _ in filled]


def part_to_pb(message: _Part, given: object, path: str) -> _Part | None:
    """A part of a rule, such as its "detection", as a message; None if the rule lacks it."""
    if given is None:
        return None
    _refuse(list(_fill(message, given, path)))
    return message


def field_to_pb(path: str) -> str:
    """The path of the field that a key of a rule stands for, such as "detection.time_window"."""
    return _DURATIONS.get(path, path)


def field_from_pb(path: str) -> str:
    """The key of a rule that the path of a field stands for, such as "detection.time_window_s"."""
    return _DURATION_KEYS.get(path, path)


def rule_from_pb(message: Message) -> dict[str, Any]:
    """A rule's message, or a part of one, as JSON values."""
    return {
        _key(field): _value_from_pb(field, value) for field, value in message.ListFields() if field.name != _OUTPUT_ONLY
    }


class _MisfitError(Exception):
    """A value that is invalid for a field; `expected` ends the sentence "must be"."""

    def __init__(self, expected: str) -> None:
        super().__init__(expected)
        self.expected = expected


def _filled(rule: object, path: str) -> tuple[pb.MergeRuleConfig, list[FieldViolation]]:
    message = pb.MergeRuleConfig()
    return message, list(_fill(message, rule, path))


def _refuse(violations: Sequence[FieldViolation]) -> None:
    if violations:
        said = "; ".join(f"{each.field}: {each.description}" for each in violations)
        raise InvalidArgumentError(said, reason="INVALID_ARGUMENT", violations=violations)


def _fill(message: Message, values: object, path: str) -> Iterator[FieldViolation]:
    """Writes valid values, and yields the violations of the others."""
    fields = {_key(field): field for field in message.DESCRIPTOR.fields if field.name != _OUTPUT_ONLY}
    if not isinstance(values, Mapping):
        yield FieldViolation(path, f"must be an object with keys: {', '.join(fields)}")
        return
    for key, value in values.items():
        here = f"{path}.{key}"
        field = fields.get(key)
        if field is None:
            yield FieldViolation(here, f"is not a key; the keys are {', '.join(fields)}")
        elif _is_part(field):
            part = getattr(message, field.name)
            part.SetInParent()
            yield from _fill(part, value, here)
        else:
            try:
                _set(message, field, value)
            except _MisfitError as misfit:
                hint = "; leave it out to inherit it" if value in (None, [], ()) else f", not {_shown(value)}"
                yield FieldViolation(here, f"must be {misfit.expected}{hint}")


def _set(message: Message, field: Any, value: object) -> None:
    target = getattr(message, field.name)
    if _is_map(field):
        target.update(_numbers(value))
    elif hasattr(target, "extend"):
        target.extend(_several(field, value))
    elif field.message_type is not None:
        target.CopyFrom(_duration(value))
    else:
        setattr(message, field.name, _single(field, value))


def _numbers(value: object) -> dict[str, float]:
    expected = "an object of names with numbers"
    if not isinstance(value, Mapping) or not all(_is_text(key) for key in value):
        raise _MisfitError(expected)
    return {key: _number(item, expected) for key, item in value.items()}


def _several(field: Any, value: object) -> list[Any]:
    # A message cannot distinguish an empty list from a missing one.
    if not isinstance(value, list | tuple) or not value:
        item = f"of {_choices(field)}" if field.enum_type else "texts"
        raise _MisfitError(f"a list of one or more {item}")
    return [_single(field, item) for item in value]


def _single(field: Any, value: object) -> Any:
    if field.enum_type is not None:
        for number, word in words_by_number(field.enum_type).items():
            if word == value:
                return number
        raise _MisfitError(f"one of {_choices(field)}")
    match field.cpp_type:
        case Kinds.CPPTYPE_BOOL:
            if isinstance(value, bool):
                return value
            raise _MisfitError("true or false")
        case Kinds.CPPTYPE_INT32:
            if isinstance(value, int) and not isinstance(value, bool) and _INT32_MIN <= value <= _INT32_MAX:
                return value
            raise _MisfitError("a whole number of 32 bits")
        case Kinds.CPPTYPE_DOUBLE:
            return _number(value, "a number")
    if not _is_text(value):
        raise _MisfitError("text")
    return value


def _number(value: object, expected: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _MisfitError(expected)
    try:
        return float(value)
    except OverflowError:
        raise _MisfitError(expected) from None


def _duration(value: object) -> Duration:
    seconds = _number(value, "a number of seconds")
    if not math.isfinite(seconds) or abs(seconds) > _SECONDS_MAX:
        raise _MisfitError("a number of seconds, at most 10,000 years")
    # Exact, and rounded once, so that a duration comes back as the same number.
    whole, rest = divmod(round(Fraction(seconds) * _NANOSECONDS), _NANOSECONDS)
    return Duration(seconds=whole, nanos=rest)


def _is_text(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(value.encode() or True)
    except UnicodeEncodeError:
        return False


def _choices(field: Any) -> str:
    return ", ".join(words_by_number(field.enum_type).values()) if field.enum_type else ""


def _shown(value: object) -> str:
    # A list or an object may have any size; in YAML it can even be larger than its file.
    return json.dumps(value)[:80] if isinstance(value, str | int | float) else type(value).__name__


def _value_from_pb(field: Any, value: Any) -> Any:
    if _is_map(field):
        return dict(value)
    if isinstance(value, Duration):
        return (value.seconds * _NANOSECONDS + value.nanos) / _NANOSECONDS
    if isinstance(value, Message):
        return rule_from_pb(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(field, item) for item in value]
    return _plain(field, value)


def _plain(field: Any, value: Any) -> Any:
    # A value that a later server adds is shown by its number.
    return words_by_number(field.enum_type).get(value, str(value)) if field.enum_type else value


def _key(field: Any) -> str:
    return f"{field.name}_s" if _is_duration(field) else str(field.name)


def _is_duration(field: Any) -> bool:
    return field.message_type is not None and field.message_type.full_name == Duration.DESCRIPTOR.full_name


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _is_part(field: Any) -> bool:
    return field.message_type is not None and not _is_map(field) and not _is_duration(field)
