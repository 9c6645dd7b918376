"""How messages and the end of a call look in HTTP. Which form a request has is said by its content type."""

import base64
import binascii
import json
import math
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import grpc
from google.protobuf import json_format
from google.rpc import error_details_pb2, status_pb2

from mnemon_server.transport.errors import MalformedMessageError
from mnemon_server.transport.interceptors.base import Trailers
from mnemon_server.transport.status import DETAILS_KEY

_HEAD = struct.Struct(">BI")
_COMPRESSED, _CONNECT_END, _WEB_END = 0x01, 0x02, 0x80
_TYPE_PREFIX = "type.googleapis.com/"
_UNQUOTED = " !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"

HTTP_STATUSES = {
    grpc.StatusCode.OK: 200,
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.UNKNOWN: 500,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DATA_LOSS: 500,
    grpc.StatusCode.UNAUTHENTICATED: 401,
}
"""The HTTP statuses of the Connect protocol."""


@dataclass(frozen=True, slots=True)
class Status:
    """How a call ended."""

    code: grpc.StatusCode = grpc.StatusCode.OK
    message: str = ""
    trailers: Trailers = ()

    @property
    def is_ok(self) -> bool:
        """Whether it succeeded."""
        return self.code is grpc.StatusCode.OK

    def error(self) -> dict[str, Any]:
        """The error of the Connect protocol, with its details in binary, and in `debug` as a person reads them."""
        error: dict[str, Any] = {"code": connect_code(self.code), "message": self.message}
        details = [_detail(packed) for packed in self._details()]
        return {**error, "details": details} if details else error

    def headers(self) -> Iterator[tuple[str, str]]:
        """The metadata that HTTP has headers for."""
        if self.code is grpc.StatusCode.UNAUTHENTICATED:
            yield "www-authenticate", "Bearer"
        retry = error_details_pb2.RetryInfo()
        if any(packed.Unpack(retry) for packed in self._details()):
            yield "retry-after", str(math.ceil(retry.retry_delay.ToNanoseconds() / 1e9))

    def _details(self) -> Iterable[Any]:
        packed = next((value for key, value in self.trailers if key == DETAILS_KEY), b"")
        return status_pb2.Status.FromString(packed).details if isinstance(packed, bytes) else ()


def connect_code(code: grpc.StatusCode) -> str:
    """The name of a code in the Connect protocol."""
    # The one name that Connect spells in another way.
    return "canceled" if code is grpc.StatusCode.CANCELLED else code.name.lower()


def _detail(packed: Any) -> dict[str, Any]:
    readable = json_format.MessageToDict(packed)
    readable.pop("@type", None)
    value = base64.b64encode(packed.value).decode().rstrip("=")
    return {"type": packed.type_url.removeprefix(_TYPE_PREFIX), "value": value, "debug": readable}


class Form:
    """Plain messages, one in a body: the unary form of Connect. The status is that of HTTP."""

    encoding_header = "content-encoding"
    """Which says how requests are compressed."""
    always_ok = False
    """Whether the status is in the body, whatever happens."""

    def __init__(self, content_type: str, *, is_json: bool) -> None:
        self.content_type = content_type
        self.is_json = is_json

    def request(self, body: bytes) -> tuple[bytes, bool]:
        """The message in the body of a request, and whether it is compressed."""
        return body, True

    def message(self, data: bytes, cursor: str) -> bytes:
        """A message of the answer; `cursor` is its position in a feed, if it has one."""
        return data

    def end(self, status: Status) -> bytes:
        """The end of the body, after the last message."""
        return b""


class ConnectStream(Form):
    """The streaming form of Connect: envelopes, and a last one with the status as JSON."""

    encoding_header = "connect-content-encoding"
    always_ok = True

    def request(self, body: bytes) -> tuple[bytes, bool]:
        """The message in the one envelope."""
        flags, size = _HEAD.unpack_from(body) if len(body) >= _HEAD.size else (0, -1)
        if size != len(body) - _HEAD.size or flags not in (0, _COMPRESSED):
            raise MalformedMessageError("the body must be one message, in one envelope")
        return body[_HEAD.size :], bool(flags)

    def message(self, data: bytes, cursor: str) -> bytes:
        """The message in an envelope."""
        return _HEAD.pack(0, len(data)) + data

    def end(self, status: Status) -> bytes:
        """The last envelope."""
        end: dict[str, Any] = {} if status.is_ok else {"error": status.error()}
        texts = {key: [value] for key, value in status.trailers if isinstance(value, str)}
        text = json.dumps({**end, "metadata": texts} if texts else end).encode()
        return _HEAD.pack(_CONNECT_END, len(text)) + text


class GrpcWeb(ConnectStream):
    """gRPC-Web: the same envelopes, and a last one with the trailers of gRPC."""

    encoding_header = "grpc-encoding"

    def end(self, status: Status) -> bytes:
        """The trailers."""
        lines = [("grpc-status", str(status.code.value[0])), ("grpc-message", quote(status.message, safe=_UNQUOTED))]
        lines += [(key, value if isinstance(value, str) else _base64(value)) for key, value in status.trailers]
        text = "".join(f"{key}: {value}\r\n" for key, value in lines).encode()
        return _HEAD.pack(_WEB_END, len(text)) + text


class GrpcWebText(GrpcWeb):
    """gRPC-Web in base64, for browsers that cannot read bytes from a stream."""

    def request(self, body: bytes) -> tuple[bytes, bool]:
        """The message in the one envelope."""
        try:
            return super().request(base64.b64decode(body, validate=True))
        except binascii.Error:
            raise MalformedMessageError("the body is not base64") from None

    def message(self, data: bytes, cursor: str) -> bytes:
        """The envelope in base64."""
        return base64.b64encode(super().message(data, cursor))

    def end(self, status: Status) -> bytes:
        """The trailers in base64."""
        return base64.b64encode(super().end(status))


class JsonLines(Form):
    """A message in each line, and an error after messages in a last one."""

    def message(self, data: bytes, cursor: str) -> bytes:
        """A line."""
        return data + b"\n"

    def end(self, status: Status) -> bytes:
        """The error."""
        return b"" if status.is_ok else json.dumps({"error": status.error()}).encode() + b"\n"


class EventStream(Form):
    """Server-sent events, whose ids are cursors; the last event is `end` or `error`."""

    def message(self, data: bytes, cursor: str) -> bytes:
        """An event."""
        return (f"id: {cursor}\n".encode() if cursor else b"") + b"data: " + data + b"\n\n"

    def end(self, status: Status) -> bytes:
        """The last event."""
        if status.is_ok:
            return b"event: end\ndata: {}\n\n"
        return b"event: error\ndata: " + json.dumps(status.error()).encode() + b"\n\n"


JSON_ERROR = Form("application/json", is_json=True)
_SINGLE = {"application/json": True, "application/proto": False}
_ENVELOPES: dict[str, type[ConnectStream]] = {
    "application/connect": ConnectStream,
    "application/grpc-web": GrpcWeb,
    "application/grpc-web-text": GrpcWebText,
}
ACCEPTED = ", ".join((*_SINGLE, *(f"{name}+{kind}" for name in _ENVELOPES for kind in ("proto", "json"))))
"""The content types of requests."""


def form_of(content_type: str, accept: str, *, streams: bool | None) -> Form | None:
    """The form of a call with these headers; None if the method has no such form.

    Args:
        content_type: that of the request.
        accept: which form of a stream the client wants.
        streams: whether the method streams; None if that is unknown.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind in _SINGLE:
        return _single(kind, accept, streams=streams)
    name, _, codec = kind.partition("+")
    form = _ENVELOPES.get(name)
    if (
        form is None
        or codec not in ("", "proto", "json")
        or (form is ConnectStream and (streams is False or not codec))
    ):
        return None
    return form(kind, is_json=codec == "json")


def _single(kind: str, accept: str, *, streams: bool | None) -> Form | None:
    if not streams:
        return Form(kind, is_json=_SINGLE[kind])
    if not _SINGLE[kind]:
        return None
    if "text/event-stream" in accept:
        return EventStream("text/event-stream", is_json=True)
    return JsonLines("application/x-ndjson", is_json=True)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode().rstrip("=")
