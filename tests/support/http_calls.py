"""Calls over HTTP in every form, written against the published protocols rather than with our own code."""

import base64
import json
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

import grpc
import httpx
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass
from google.rpc import status_pb2
from grpc import aio

from tests.support.rpcs import Rpc
from tests.support.server import WAIT_S, Connection

FORMS = (
    "application/json",
    "application/proto",
    "application/connect+json",
    "application/connect+proto",
    "application/grpc-web",
    "application/grpc-web+json",
    "application/grpc-web-text",
    "text/event-stream",
)
JSON = "application/json"
_HEAD = struct.Struct(">BI")


@dataclass(frozen=True)
class Outcome:
    """How a call ended, and the messages that it returned."""

    code: str
    message: str = ""
    details: tuple[tuple[str, bytes], ...] = ()
    messages: tuple[Any, ...] = field(default=(), repr=False)

    @property
    def reason(self) -> str:
        """The reason of an error."""
        from google.rpc import error_details_pb2

        [value] = [value for kind, value in self.details if kind == "google.rpc.ErrorInfo"]
        return str(error_details_pb2.ErrorInfo.FromString(value).reason)


def streams(rpc: Rpc) -> bool:
    """Whether any side of a method streams."""
    return bool(rpc.method.server_streaming or rpc.method.client_streaming)


def forms_of(rpc: Rpc) -> list[str]:
    """The content types in which a method can be called; of two that differ in the answer alone, its content type."""
    single = ("application/json", "application/proto")
    chosen = [form for form in FORMS if "grpc-web" in form]
    if not streams(rpc):
        return [*single, *chosen]
    return [JSON, "text/event-stream", *(form for form in FORMS if "connect" in form), *chosen]


@asynccontextmanager
async def http_client(server: Connection) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server in this process."""
    async with httpx.AsyncClient(base_url=f"http://{server.server.http_address}", timeout=WAIT_S) as client:
        yield client


def path_of(rpc: Rpc) -> str:
    """The path of a method."""
    return f"/{rpc.method.containing_service.full_name}/{rpc.method.name}"


async def call_http(
    client: httpx.AsyncClient, rpc: Rpc, request: Any, form: str, *, first: bool = False, **headers: str
) -> Outcome:
    """Calls a method in a form; `first`: leaves once the first message has come."""
    sent_as = JSON if form == "text/event-stream" else form
    sent = {"content-type": sent_as, **({"accept": form} if sent_as != form else {}), **headers}
    async with client.stream("POST", path_of(rpc), content=body_of(request, sent_as), headers=sent) as response:
        received = b""
        async for part in response.aiter_bytes():
            received += part
            # Envoy answers a request in text in bytes, if the client does not ask for text.
            if first and _has_message(received, response.headers["content-type"]):
                break
    outcome = outcome_of(rpc, response, received, form)
    return replace(outcome, code="OK") if first and outcome.code == "OPEN" else outcome


async def call_grpc(channel: aio.Channel, rpc: Rpc, request: Any, *, first: bool = False, token: str = "") -> Outcome:
    """The same over gRPC. A request stream sends this request, or none."""
    kind = GetMessageClass(rpc.method.output_type)
    sides = rpc.method.client_streaming, rpc.method.server_streaming
    call = getattr(channel, "_".join("stream" if streams else "unary" for streams in sides))(
        path_of(rpc), request_serializer=lambda each: each.SerializeToString(), response_deserializer=kind.FromString
    )(
        iter([request]) if rpc.method.client_streaming else request,
        timeout=WAIT_S,
        metadata=[("authorization", f"Bearer {token}")] if token else None,
    )
    messages = []
    try:
        if rpc.method.server_streaming:
            async for message in call:
                messages.append(message)
                if first:
                    call.cancel()
                    break
        else:
            messages.append(await call)
    except aio.AioRpcError as error:
        packed = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
        return Outcome(error.code().name, error.details() or "", _details(packed), tuple(messages))
    return Outcome("OK", messages=tuple(messages))


def body_of(request: Any, form: str) -> bytes:
    """A request in the body of a form."""
    is_json = form.endswith("json")
    data = json_format.MessageToJson(request).encode() if is_json else request.SerializeToString()
    if form in ("application/json", "application/proto"):
        return data
    data = _HEAD.pack(0, len(data)) + data
    return base64.b64encode(data) if "text" in form else data


def outcome_of(rpc: Rpc, response: httpx.Response, received: bytes, form: str) -> Outcome:
    """What came back."""
    kind = GetMessageClass(rpc.method.output_type)
    shown = response.headers["content-type"]
    if shown == JSON and response.status_code != 200:
        return _outcome_of_error(json.loads(received))
    assert response.status_code == 200
    read: Any = kind.FromString
    if shown.endswith("json"):
        read = lambda data: json_format.Parse(data, kind())  # noqa: E731
    if "grpc-web" in shown and "grpc-status" in response.headers:
        # An error without a message before it has no body.
        assert not received
        return _outcome_of_trailers(response.headers, ())
    if "grpc-web" in shown or "connect" in shown:
        return _outcome_of_envelopes(received, read, text="text" in shown)
    if shown == "application/x-ndjson":
        lines = [json.loads(line) for line in received.splitlines()]
        error = lines.pop()["error"] if lines and "error" in lines[-1] else None
        messages = tuple(json_format.ParseDict(line, kind()) for line in lines)
        return _outcome_of_error(error, messages) if error else Outcome("OK", messages=messages)
    if shown == "text/event-stream":
        return _outcome_of_events(received, kind)
    assert shown == form
    return Outcome("OK", messages=(read(received),))


def _has_message(received: bytes, shown: str) -> bool:
    if "grpc-web-text" in shown:
        received = base64.b64decode(received[: len(received) // 4 * 4])
    if "connect" in shown or "grpc-web" in shown:
        return len(received) >= _HEAD.size and len(received) >= _HEAD.size + _HEAD.unpack_from(received)[1]
    return b"\n" in received


def _outcome_of_events(received: bytes, kind: Any) -> Outcome:
    messages = []
    for event in received.decode().split("\n\n")[:-1]:
        lines = dict(line.split(": ", 1) for line in event.split("\n"))
        if lines.get("event") == "error":
            return _outcome_of_error(json.loads(lines["data"]), tuple(messages))
        if "event" not in lines:
            messages.append(json_format.Parse(lines["data"], kind()))
            assert lines.get("id", "") == getattr(messages[-1], "cursor", "")
    return Outcome("OK", messages=tuple(messages))


def _outcome_of_envelopes(received: bytes, read: Any, *, text: bool) -> Outcome:
    if text:
        # Each part is padded on its own.
        received = b"".join(base64.b64decode(part + b"=" * (-len(part) % 4)) for part in _quads(received))
    messages = []
    while received:
        flags, size = _HEAD.unpack_from(received)
        data, received = received[_HEAD.size : _HEAD.size + size], received[_HEAD.size + size :]
        if flags == 0x80:
            lines = [line.partition(":") for line in data.decode().split("\r\n") if line]
            return _outcome_of_trailers({name: value.strip(" ") for name, _, value in lines}, tuple(messages))
        if flags == 0x02:
            end = json.loads(data)
            assert end["metadata"]["x-request-id"]
            return (
                _outcome_of_error(end["error"], tuple(messages))
                if "error" in end
                else Outcome("OK", messages=tuple(messages))
            )
        assert flags == 0
        messages.append(read(data))
    return Outcome("OPEN", messages=tuple(messages))


def _quads(received: bytes) -> list[bytes]:
    return [received[at : at + 4] for at in range(0, len(received), 4)]


def _outcome_of_trailers(trailers: Mapping[str, str], messages: tuple[Any, ...]) -> Outcome:
    assert trailers["x-request-id"]
    code = next(each for each in grpc.StatusCode if each.value[0] == int(trailers["grpc-status"]))
    packed = trailers.get("grpc-status-details-bin", "")
    details = _details(base64.b64decode(packed + "=" * (-len(packed) % 4)))
    return Outcome(code.name, unquote(trailers.get("grpc-message", "")), details, messages)


def _outcome_of_error(error: Any, messages: tuple[Any, ...] = ()) -> Outcome:
    details = tuple(
        (each["type"], base64.b64decode(each["value"] + "=" * (-len(each["value"]) % 4)))
        for each in error.get("details", ())
    )
    return Outcome(error["code"].upper(), error["message"], details, messages)


def _details(packed: bytes) -> tuple[tuple[str, bytes], ...]:
    found = status_pb2.Status.FromString(packed).details
    return tuple((each.type_url.rpartition("/")[2], each.value) for each in found)
