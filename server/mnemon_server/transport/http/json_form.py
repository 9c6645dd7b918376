"""JSON as a form of protobuf messages. What is wrong with a request is said by field."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.transport.errors import MalformedMessageError

INLINE_BYTES_MAX = 16 << 10
"""Longer texts and messages are converted on a thread: a megabyte takes a quarter of a second."""
_PLAIN_PREFIX = "google.protobuf."
"""Types with a form of their own in JSON."""
_SHOWN_MAX = 200

# One, so that the event loop waits for at most one other thread to give up the interpreter lock.
_thread = ThreadPoolExecutor(1, "json")


async def message_of(kind: type[Message], text: bytes) -> Message:
    """The message that a JSON text describes.

    Raises:
        InvalidArgumentError: fields are unknown or have no value of their type; it names each.
        MalformedMessageError: it is not JSON, or not an object.
    """
    message: Message = await _converted(_read, kind, text)
    return message


async def text_of(message: Message, size: int) -> bytes:
    """A message of `size` bytes as JSON, without line breaks."""
    return _write(None, message) if size <= INLINE_BYTES_MAX else await _converted(_write, None, message)


async def _converted(convert: Any, kind: Any, given: Any) -> Any:
    if isinstance(given, bytes) and len(given) <= INLINE_BYTES_MAX:
        return convert(kind, given)
    return await asyncio.get_running_loop().run_in_executor(_thread, convert, kind, given)


def dumped(value: Any) -> bytes:
    """A JSON value as text without line breaks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _write(_: None, message: Message) -> bytes:
    return dumped(json_format.MessageToDict(message))


def _read(kind: type[Message], text: bytes) -> Message:
    try:
        decoded = text.decode()
        # The library takes an empty list for an empty object.
        if not decoded.lstrip().startswith("["):
            return json_format.Parse(decoded, kind())
        reason = ""
    except UnicodeDecodeError:
        raise MalformedMessageError("the body is not UTF-8") from None
    except json_format.ParseError as error:
        reason = str(error)
    # Looked for only now, and outside of `except`: what is refused is freed at once.
    raise _refusal(kind, decoded, reason)


def _refusal(kind: type[Message], text: str, reason: str) -> Exception:
    if not text.strip():
        return MalformedMessageError("the body is empty; an empty request is {}")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return MalformedMessageError(f"the body is not JSON: {error}"[:_SHOWN_MAX])
    if not isinstance(value, dict):
        return MalformedMessageError("the body must be a JSON object")
    descriptor: Any = kind.DESCRIPTOR
    violations = list(_violations(descriptor, value, ""))
    if violations:
        return InvalidArgumentError(violations)
    return MalformedMessageError(reason.partition("\n")[0][:_SHOWN_MAX])


def _violations(kind: Descriptor, value: dict[str, Any], path: str) -> Iterator[FieldViolation]:
    known = {name: field for field in kind.fields for name in (field.name, field.json_name)}
    for name, item in value.items():
        field = known.get(name)
        if field is None:
            names = ", ".join(sorted(field.json_name for field in kind.fields))
            yield FieldViolation(f"{path}{name}", f"is unknown; the fields here are {names}")
        elif item is not None:
            yield from _violations_of_field(field, item, f"{path}{field.name}")


def _violations_of_field(field: FieldDescriptor, item: Any, path: str) -> Iterator[FieldViolation]:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        if not isinstance(item, dict):
            yield FieldViolation(path, "must be an object")
            return
        inner = kind.fields_by_name["value"]
        for key, one in item.items():
            yield from _violations_of_value(inner, one, f"{path}.{key}")
    elif field.is_repeated:
        if not isinstance(item, list):
            yield FieldViolation(path, "must be a list")
            return
        for index, one in enumerate(item):
            yield from _violations_of_value(field, one, f"{path}[{index}]")
    else:
        yield from _violations_of_value(field, item, path)


def _violations_of_value(field: FieldDescriptor, item: Any, path: str) -> Iterator[FieldViolation]:
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
        yield from _violations(kind, item, f"{path}.")


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
