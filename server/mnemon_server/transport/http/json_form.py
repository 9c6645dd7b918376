"""JSON as a form of protobuf messages. What is wrong with a request is said by field."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from json import scanner
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.transport.errors import MalformedMessageError
from mnemon_server.transport.http.json_writer import has_small_parts, written, written_in_steps

T = TypeVar("T")

INLINE_BYTES_MAX = 16 << 10
INLINE_VALUES_MAX = 1_000
"""Larger texts are read on a thread: each value takes microseconds."""
INLINE_ANSWER_BYTES_MAX = 4 << 10
"""Larger messages become JSON in steps or on a thread: of two bytes each, this is as many values."""
STEPPED_ANSWER_BYTES_MAX = 64 << 10
"""A page of records up to this size becomes JSON in steps: on a thread, it would wait for the interpreter lock for
longer than it takes."""
MEDIUM_BYTES_MAX = 128 << 10
VALUES_MAX = 1 << 17
"""The same number as fields in a protobuf message."""
_PLAIN_PREFIX = "google.protobuf."
"""Types with a form of their own in JSON."""
_SHOWN_MAX = 200
_VIOLATIONS_MAX = 100
_EXAMINED_MAX = 10_000
"""Number of values that are searched for faults; beyond it, only protobuf's first error is reported."""
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*+"?|,', re.DOTALL)
"""Texts, even without an end, and what separates values."""

# One each, so that the event loop waits for few threads to give up the interpreter lock, and requests of ordinary size
# wait for no large one.
_medium, _large = ThreadPoolExecutor(1, "json"), ThreadPoolExecutor(1, "json-large")


async def message_of(kind: type[Message], text: bytes) -> Message:
    """The message that a JSON text describes.

    Raises:
        InvalidArgumentError: fields are unknown or have no value of their type; it names each, up to a number.
        MalformedMessageError: it is not JSON, or not an object, or has more than VALUES_MAX values.
    """
    if len(text) <= INLINE_BYTES_MAX and text.count(b",") <= INLINE_VALUES_MAX:
        return _read(kind, text)
    return await _on_thread(len(text), _read, kind, text)


async def text_of(message: Message, size: int) -> bytes:
    """A message of `size` bytes as JSON, without line breaks."""
    if size <= INLINE_ANSWER_BYTES_MAX:
        return _write(message)
    if size <= STEPPED_ANSWER_BYTES_MAX and has_small_parts(message):
        return dumped(await written_in_steps(message))
    return await _on_thread(size, _write, message)


async def _on_thread(size: int, convert: Callable[..., T], *given: Any) -> T:
    threads = _medium if size <= MEDIUM_BYTES_MAX else _large
    return await asyncio.get_running_loop().run_in_executor(threads, convert, *given)


def dumped(value: Any) -> bytes:
    """A JSON value as text without line breaks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _write(message: Message) -> bytes:
    return dumped(written(message))


def _read(kind: type[Message], text: bytes) -> Message:
    value = _value(text)
    try:
        return json_format.ParseDict(value, kind())
    except json_format.ParseError as error:
        reason = str(error)
    # Looked for only now, and outside of `except`: what is refused is freed at once.
    raise _refusal(kind, value, reason)


def _value(text: bytes) -> dict[str, Any]:
    """The object that a text describes. Raises MalformedMessageError if it describes none."""
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        raise MalformedMessageError("the body is not UTF-8") from None
    if not decoded.strip():
        raise MalformedMessageError("the body is empty; an empty request is {}")
    is_dense = decoded.count(",") > INLINE_VALUES_MAX
    if is_dense and _has_too_many_values(decoded):
        raise MalformedMessageError(f"the body has more than {VALUES_MAX:,} values")
    try:
        value = (_PATIENT if is_dense else _QUICK).decode(decoded)
    except (ValueError, RecursionError) as error:
        raise MalformedMessageError(f"the body is not JSON: {error}"[:_SHOWN_MAX]) from None
    if not isinstance(value, dict):
        raise MalformedMessageError("the body must be a JSON object")
    return value


def _has_too_many_values(text: str) -> bool:
    """Counts the commas between values, not the commas in strings."""
    commas = 0
    for match in _STRUCTURE.finditer(text):
        commas += match[0] == ","
        if commas >= VALUES_MAX:
            return True
    return False


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        [name, *_] = (name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise MalformedMessageError(f"the body has duplicate members: {name}"[:_SHOWN_MAX])
    return found


class _Patient(json.JSONDecoder):
    """Lets other threads run between values; the scanner in C would read a whole text first."""

    def __init__(self) -> None:
        super().__init__(object_pairs_hook=_object)
        make: Any = vars(scanner)["py_make_scanner"]
        self.scan_once = make(self)


_QUICK, _PATIENT = json.JSONDecoder(object_pairs_hook=_object), _Patient()


def _refusal(kind: type[Message], value: dict[str, Any], reason: str) -> Exception:
    descriptor: Any = kind.DESCRIPTOR
    examined = iter(range(_EXAMINED_MAX))
    violations = list(islice(_violations(descriptor, value, "", examined), _VIOLATIONS_MAX))
    if violations:
        return InvalidArgumentError(violations)
    return MalformedMessageError(reason.partition("\n")[0][:_SHOWN_MAX])


def _violations(
    kind: Descriptor, value: dict[str, Any], path: str, examined: Iterator[int]
) -> Iterator[FieldViolation]:
    known = {name: field for field in kind.fields for name in (field.name, field.json_name)}
    for name, item in value.items():
        field = known.get(name)
        if field is None:
            names = ", ".join(sorted(field.json_name for field in kind.fields))
            yield FieldViolation(f"{path}{name}", f"is unknown; the fields here are {names}")
        elif item is not None:
            yield from _violations_of_field(field, item, f"{path}{field.name}", examined)


def _violations_of_field(
    field: FieldDescriptor, item: Any, path: str, examined: Iterator[int]
) -> Iterator[FieldViolation]:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        if not isinstance(item, dict):
            yield FieldViolation(path, "must be an object")
            return
        inner = kind.fields_by_name["value"]
        for key, one in item.items():
            yield from _violations_of_value(inner, one, f"{path}.{key}", examined)
    elif field.is_repeated:
        if not isinstance(item, list):
            yield FieldViolation(path, "must be a list")
            return
        for index, one in enumerate(item):
            yield from _violations_of_value(field, one, f"{path}[{index}]", examined)
    else:
        yield from _violations_of_value(field, item, path, examined)


def _violations_of_value(
    field: FieldDescriptor, item: Any, path: str, examined: Iterator[int]
) -> Iterator[FieldViolation]:
    if next(examined, None) is None:
        return
    kind = field.message_type
    if kind is None or kind.full_name.startswith(_PLAIN_PREFIX):
        owner: Any = field.containing_type
        try:
            json_format.ParseDict({field.json_name: [item] if _is_list(field) else item}, GetMessageClass(owner)())
        except (ValueError, TypeError, json_format.ParseError):
            yield FieldViolation(path, f"must be {_expected(field)}")
    elif not isinstance(item, dict):
        yield FieldViolation(path, "must be an object")
    else:
        yield from _violations(kind, item, f"{path}.", examined)


def _is_list(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


_WHOLE = ("a whole number", (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64))
_NATURAL = ("a whole number that is not negative", (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64))
_NUMBER = ("a number", (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE))
_OF_MESSAGES = {
    "google.protobuf.Timestamp": 'a time such as "2026-01-31T12:00:00Z"',
    "google.protobuf.Duration": 'a duration in seconds, such as "1.5s"',
    "google.protobuf.FieldMask": 'names of fields, separated by commas, such as "content,metadata"',
}


def _expected(field: FieldDescriptor) -> str:
    """What a field takes, in words."""
    if field.message_type is not None:
        return _OF_MESSAGES.get(field.message_type.full_name, "an object")
    if field.enum_type is not None:
        names = ", ".join(value.name for value in field.enum_type.values if value.number)
        return f"one of {names}"
    for text, kinds in (_WHOLE, _NATURAL, _NUMBER):
        if field.cpp_type in kinds:
            return text
    if field.type == FieldDescriptor.TYPE_BYTES:
        return "bytes in base64"
    return "true or false" if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL else "a text"
