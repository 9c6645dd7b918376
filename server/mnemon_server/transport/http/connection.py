"""A connection of HTTP/1.1. uvicorn parses and writes; what is here bounds what one may cost."""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from functools import cached_property

from httptools import HttpParserError
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from mnemon_server.transport.http.outgoing import Outgoing
from mnemon_server.transport.options import METADATA_BYTES_MAX

KEEP_ALIVE_S = 75
"""For which a connection may be idle between two requests; proxies usually close theirs sooner."""
PIPELINED_MAX = 16
"""Requests that wait for the answer to one before them. Browsers and proxies send none."""
HEADERS_MAX = 100
"""Lines of headers; each costs a microsecond."""
PARTS_FREE, PART_BYTES_MIN = 250, 16
"""A body may have this many parts of any size, half a millisecond; with more, their average size is bounded."""
DISCARDED_BYTES_MAX = 4 << 20
"""The bytes of a refused body that are still taken, so that the client can read why."""


class Connection(HttpToolsProtocol):
    """One connection, which requests reach as `scope["state"]["connection"]`."""

    def __init__(self, config: Config, state: ServerState, *, connections_max: int) -> None:
        super().__init__(config, state, {})
        self.on_lost: Callable[[], None] | None = None
        """Called if the client leaves while its request is being answered."""
        self.lost = asyncio.Event()
        """Set once it has ended."""
        self._connections_max = connections_max
        self._owes_since: float | None = None
        """Since when a request is incomplete, or has not begun on a new connection."""
        self._closing_since: float | None = None
        self._header_bytes: int | None = 0
        """Bytes received since the headers began; None while a body is received."""
        self._discarded = self._parts = self._body_bytes = 0
        self._refusal = b"400 Bad Request"

    @cached_property
    def peer(self) -> str:
        """The address of the client, as gRPC writes it."""
        if self.client is None:
            return "unix:"
        host, port = self.client[0], self.client[1]
        return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"

    @cached_property
    def auth_context(self) -> Mapping[str, tuple[bytes, ...]]:
        """The certificate of the client, which TLS has verified, under the name that gRPC has for it."""
        tls = self.transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True) if tls else None
        return {"x509_pem_cert": (ssl.DER_cert_to_PEM_cert(certificate).encode(),)} if certificate else {}

    @property
    def is_answering(self) -> bool:
        """Whether a request is being answered."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def end_late(self, now: float, *, seconds: float) -> None:
        """Closes the connection if its request takes longer to arrive, or if its client reads no answer."""
        if self.transport.is_closing():
            self._closing_since = self._closing_since or now
            if now - self._closing_since > seconds:
                self.transport.abort()
        elif self._owes_since is not None and now - self._owes_since > seconds:
            self._refuse(b"408 Request Timeout")

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn says
        """Takes the connection, unless there are too many."""
        super().connection_made(transport)
        self.transport = self.outgoing = Outgoing(transport)  # type: ignore[assignment] # which has all of its methods
        self._owes_since = self.loop.time()
        if len(self.connections) > self._connections_max:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the call of a client that has left."""
        answering = self.is_answering
        super().connection_lost(exc)
        self.lost.set()
        if answering and self.on_lost is not None:
            self.on_lost()

    def data_received(self, data: bytes) -> None:
        """Parses what arrives, and counts the bytes of headers."""
        while data and not self.transport.is_closing():
            part, received = data, self._header_bytes
            if received is not None:
                # What is beyond the limit is not even parsed.
                part = data[: METADATA_BYTES_MAX + 1 - received]
                self._header_bytes = received + len(part)
            data = data[len(part) :]
            super().data_received(part)
            if (self._header_bytes or 0) > METADATA_BYTES_MAX:
                self._refuse(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._owes_since = self.loop.time()
        self.scope["state"] = {"connection": self}

    def on_header(self, name: bytes, value: bytes) -> None:
        """One line of headers."""
        super().on_header(name, value)
        if len(self.headers) > HEADERS_MAX:
            self._refusal = b"431 Request Header Fields Too Large"
            raise HttpParserError

    def on_headers_complete(self) -> None:
        """Its headers are complete."""
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > METADATA_BYTES_MAX:
            self._refusal = b"431 Request Header Fields Too Large"
            raise HttpParserError
        self._header_bytes = None
        self._discarded = self._parts = self._body_bytes = 0
        super().on_headers_complete()
        if len(self.pipeline) > PIPELINED_MAX:
            raise HttpParserError

    def on_body(self, body: bytes) -> None:
        """A part of its body."""
        self._parts, self._body_bytes = self._parts + 1, self._body_bytes + len(body)
        if self._parts > PARTS_FREE and self._body_bytes < self._parts * PART_BYTES_MIN:
            raise HttpParserError
        if self.cycle.response_complete:
            self._discarded += len(body)
            if self._discarded > DISCARDED_BYTES_MAX:
                raise HttpParserError
        super().on_body(body)

    def on_message_complete(self) -> None:
        """All of it has arrived."""
        self._owes_since, self._header_bytes = None, 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuses what is not HTTP, or more of it than is allowed."""
        self._refuse(self._refusal)

    def _refuse(self, status: bytes) -> None:
        # During an answer, or before an earlier request's answer, a status line would become part of that answer.
        cycle: RequestResponseCycle | None = self.cycle
        is_own = cycle is not None and cycle.more_body and not cycle.response_started and not self.pipeline
        if not self.transport.is_closing() and (is_own or not self.is_answering):
            self.transport.write(b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        self.transport.close()
