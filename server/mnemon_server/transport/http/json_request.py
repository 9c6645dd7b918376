"""JSON requests as protobuf. It is done at once, and so bounded before: large ones belong on a thread."""

from codecs import BOM_UTF8
from json.decoder import JSONDecoder
from typing import Any, NoReturn

from google.protobuf.message import Message

from mnemon_server.transport.errors import MalformedMessageError
from mnemon_server.transport.http.json_reader import message_bytes

VALUES_MAX = 1 << 17
"""The same number as fields in a protobuf message."""
LEVELS_MAX = 100
"""The maximum nesting of lists and objects: no message is deeper, and Python reads up to a thousand."""
_SHOWN_MAX = 200
_SPACE = b" \t\r\n"


def request_bytes(kind: type[Message], text: bytes) -> bytes:
    """The request of a type that a text describes.

    Raises:
        MalformedMessageError: it is not a JSON object, or names a member twice, or has too many values or levels.
        InvalidArgumentError: fields are unknown, or have no value of their type.
    """
    descriptor: Any = kind.DESCRIPTOR
    return message_bytes(descriptor, object_of(text))


def object_of(text: bytes) -> dict[str, Any]:
    """The object that a text describes, as `json.loads` reads it; but NaN and Infinity are no numbers of JSON."""
    if not text.strip():
        raise MalformedMessageError("the body is empty; an empty request is {}")
    if _count(text) > VALUES_MAX:
        raise MalformedMessageError(f"the body has more than {VALUES_MAX:,} values")
    if text.startswith(BOM_UTF8):
        raise MalformedMessageError("the body begins with a byte-order mark, which JSON does not have: leave it out")
    try:
        value = _DECODER.decode(text.decode())
    except UnicodeDecodeError:
        raise MalformedMessageError("the body is not UTF-8") from None
    except RecursionError:
        raise MalformedMessageError(f"the body is more than {LEVELS_MAX} levels deep") from None
    except ValueError as error:
        raise MalformedMessageError(f"the body is not JSON: {error}"[:_SHOWN_MAX]) from None
    if not isinstance(value, dict):
        raise MalformedMessageError("the body must be a JSON object")
    return value


def _count(text: bytes) -> int:
    """The number of values: each is the first in its list or object, or follows a comma. 0 if it is certainly small."""
    if _marks(text) <= VALUES_MAX:
        return 0
    # Marks in texts do not count, and an empty list has no first value.
    plain = text.replace(rb"\\", b"").replace(rb"\"", b"")
    if (texts := plain.count(b'"') // 2) > 2 * VALUES_MAX:
        return texts // 2  # Each value has a name at most.
    outside = b'"'.join(plain.split(b'"')[::2]).translate(None, _SPACE)
    return _marks(outside) - outside.count(b"[]") - outside.count(b"{}")


def _marks(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise MalformedMessageError(f"the body has duplicate members: {name}"[:_SHOWN_MAX])
        found[name] = value
    return found


_DECODER = JSONDecoder(object_pairs_hook=_distinct, parse_constant=_refuse)
