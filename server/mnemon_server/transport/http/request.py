"""A request over HTTP: its headers, and its body, which is read only once it is asked for."""

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import cached_property
from typing import Any
from urllib.parse import parse_qs

from mnemon_server.transport.errors import MalformedMessageError, MessageTooLargeError
from mnemon_server.transport.http.connection import Connection

QUERY_PARAMETERS = ("message", "encoding", "base64", "compression", "connect")
"""The parameters of a GET in the Connect protocol."""

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Request:
    """A request of a client."""

    def __init__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        """The headers in order; names in lower case."""
        self.headers = dict(self.fields)
        self.connection: Connection = scope["state"]["connection"]
        self._send = send
        self._receive = receive
        self._query: bytes = scope["query_string"]

    @cached_property
    def query(self) -> Mapping[str, str]:
        """The values in the query of the address, by name."""
        found = parse_qs(self._query.decode("latin-1"), keep_blank_values=True)
        return {name: values[0] for name, values in found.items()}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Sends a part of the answer. Its head waits for what follows."""
        if message["type"] == "http.response.start":
            self.connection.outgoing.hold()
            await self._send(message)
        else:
            await self._send(message)
            self.connection.outgoing.release()

    async def body(self, bytes_max: int, hold: Callable[[int], Awaitable[None]]) -> bytes:
        """The whole body; `hold` takes memory for each part of it.

        Raises:
            MessageTooLargeError: it has more bytes than that. If its length is known beforehand, none is read.
            CancelledError: the client has left.
        """
        length = self.headers.get("content-length", "")
        if length.isdecimal() and int(length) > bytes_max:
            raise too_large(bytes_max)
        parts, size = [], 0
        while True:
            event = await self._receive()
            if event["type"] == "http.disconnect":
                raise asyncio.CancelledError
            size += len(event["body"])
            if size > bytes_max:
                raise too_large(bytes_max)
            await hold(len(event["body"]))
            parts.append(event["body"])
            if not event["more_body"]:
                return b"".join(parts)

    def message_of_query(self) -> bytes:
        """The message of a GET, as in the Connect protocol: in the address, plain or in base64.

        Raises:
            MalformedMessageError: it is not base64, or the query has other parameters.
        """
        if unknown := next((name for name in self.query if name not in QUERY_PARAMETERS), None):
            raise MalformedMessageError(
                f"{unknown[:80]!r} is not one of the parameters {', '.join(QUERY_PARAMETERS)}; fields of the request "
                'belong into message, as in ?encoding=json&message={"view":"VIEW_IDS"}'
            )
        message = self.query.get("message", "" if self.query.get("encoding") == "proto" else "{}")
        if self.query.get("base64") != "1":
            return message.encode("latin-1") if self.query.get("encoding") == "proto" else message.encode()
        try:
            return base64.b64decode(message + "=" * (-len(message) % 4), "-_", validate=True)
        except (ValueError, binascii.Error):
            raise MalformedMessageError("message is not base64, in the alphabet for addresses") from None


def too_large(bytes_max: int) -> MessageTooLargeError:
    """The error of a body that has, or holds, more bytes than that."""
    return MessageTooLargeError(
        f"the body is larger than the {bytes_max:,} bytes that this server allows; send less at a time, or use gRPC"
    )
