"""Calls any method of the API with JSON, and says what came back."""

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from mnemon_server.transport.server import DESCRIPTORS

METHODS: Mapping[str, MethodDescriptor] = {
    f"{service.name}/{method.name}": method for service in DESCRIPTORS for method in service.methods
}
TIMEOUT_S = 30.0
_VOLATILE = re.compile(
    r"(.*[a-z](Time|Latency|Lag|Cursor|Token|Sequence|Bytes|PendingCount)"
    r"|changeId|commitId|publicKey|pendingCount|pending|duration|latency|cursor|sequence|vaultId|state|message|retainedSince|calls|embeddingSeconds|bytesInFlight)"
)
"""Fields that differ between two equal tenants, or from one moment to the next."""
_MADE = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{16,64}\b|\b20\d\d-\d\d-\d\dT[\d:.]+(Z|\+00:00)")
"""Ids and times that the server has chosen."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The end of a call, and what it returned."""

    code: str
    text: str
    messages: tuple[Any, ...] = ()
    """JSON."""

    @property
    def is_ok(self) -> bool:
        """Whether the call succeeded."""
        return self.code == "OK"

    def says(self, word: str) -> bool:
        """Whether a word occurs anywhere in it."""
        return word in self.text or word in str(self.messages)

    def likened(self, names: Mapping[str, str]) -> "Answer":
        """The same answer with what differs between callers of the same kind replaced: names, ids, times."""
        # If several keys have the same name, the first one counts.
        known = {name: f"<{key}>" for key, name in reversed([*names.items()]) if name}
        # The longest first: one may be a part of another.
        pattern = re.compile("|".join(map(re.escape, sorted(known, key=len, reverse=True))) or "(?!)")

        def text(said: str) -> str:
            return _MADE.sub("<made>", pattern.sub(lambda found: known[found[0]], said))

        return Answer(self.code, text(self.text), tuple(_likened(each, text) for each in self.messages))


def call(
    channel: grpc.Channel,
    name: str,
    messages: Sequence[dict[str, Any]],
    secret: str,
    *,
    until: str = "",
    timeout_s: float = TIMEOUT_S,
) -> Answer:
    """Calls a method, such as "MemoryService/GetMemory". A stream is left once an answer has the text `until` in it."""
    stream = _start(channel, name, messages, secret, timeout_s)
    received = []
    try:
        for message in stream:
            received.append(json_format.MessageToDict(message))
            if until and until in str(received[-1]):
                stream.cancel()
                break
    except grpc.RpcError as error:
        return Answer(error.code().name, str(error.details()), tuple(received))
    return Answer("OK", "", tuple(received))


class Stream:
    """An open call that answers with a stream."""

    def __init__(self, answers: Any) -> None:
        self._answers = answers

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.cancel()

    def __next__(self) -> Any:
        return next(self._answers)

    def end_within(self, seconds: float) -> str:
        """The code with which it ends; "OPEN" if it does not end in time."""
        timer = threading.Timer(seconds, self._answers.cancel)
        timer.start()
        try:
            for _ in self._answers:
                pass
        except grpc.RpcError as error:
            return "OPEN" if error.code() is grpc.StatusCode.CANCELLED else str(error.code().name)
        finally:
            timer.cancel()
        return "OK"


def opened(channel: grpc.Channel, name: str, message: dict[str, Any], secret: str) -> Stream:
    """Opens a stream, which the caller closes."""
    return Stream(_start(channel, name, [message], secret, None))


def filled(value: Any, names: Mapping[str, str]) -> Any:
    """JSON with its placeholders replaced."""
    match value:
        case str():
            return re.sub(r"\{(\w+)\}", lambda found: names[found[1]], value) if "{" in value else value
        case dict():
            return {filled(key, names): filled(each, names) for key, each in value.items()}
        case list() | tuple():
            return [filled(each, names) for each in value]
    return value


def _start(
    channel: grpc.Channel, name: str, messages: Sequence[dict[str, Any]], secret: str, timeout_s: float | None
) -> Any:
    method = METHODS[name]
    request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    make = channel.stream_stream(
        f"/{method.containing_service.full_name}/{method.name}", request.SerializeToString, response.FromString
    )
    sent = [json_format.ParseDict(each, request()) for each in messages]
    return make(iter(sent), timeout=timeout_s, metadata=(("authorization", f"Bearer {secret}"),) if secret else None)


def _likened(value: Any, text: Callable[[str], str]) -> Any:
    match value:
        case str():
            return text(value)
        case dict():
            return {text(key): _likened(each, text) for key, each in value.items() if not _VOLATILE.fullmatch(key)}
        case list():
            # The order may be that of names, which differ. That of results shows in their scores.
            return sorted((_likened(each, text) for each in value), key=repr)
    return value
