"""The call in progress and its method, as the steps around it share them."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import grpc

from mnemon_server.domain.access import EVERYBODY, Credentials, Principal
from mnemon_server.domain.observation.figures import Trace
from mnemon_server.services.limits.accounts import Account
from mnemon_server.services.limits.outbox import Sending
from mnemon_server.services.reading.answers import NOBODY, Room
from mnemon_server.services.writing.writes import new_id

Piece = Callable[[], AbstractAsyncContextManager[None]]
Trailers = tuple[tuple[str, str | bytes], ...]


class Context(Protocol):
    """A call, as handlers see it."""

    def add_done_callback(self, callback: Any, /) -> None:
        """Calls `callback` with this once the call has ended."""


class Exchange(Context, Protocol):
    """The transport of a call, as the steps need it.

    gRPC's `aio.ServicerContext` fulfils this as it is, so that its calls pay for no adapter; those over HTTP have
    `transport/http/exchange.py`.
    """

    def peer(self) -> str:
        """The address of the client, as gRPC writes it, such as "ipv4:127.0.0.1:40000"."""

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """Properties of the TLS connection: `x509_pem_cert` is the client's verified certificate."""

    def time_remaining(self) -> float | None:
        """Seconds until the client's deadline; None if it has set none."""

    async def read(self) -> Any:
        """The bytes of the next request; `aio.EOF` if the client sends no further one."""

    async def write(self, message: Any, /) -> None:
        """Sends one of several answers, and waits while the client does not read."""

    def set_trailing_metadata(self, trailing_metadata: Any, /) -> None:
        """Sets what follows the answer."""

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()) -> NoReturn:
        """Ends the call with this status.

        Raises:
            AbortError: always; gRPC's own, as the steps around let it through.
        """

    def code(self) -> Any:
        """The status, once the call is aborted."""

    def cancelled(self) -> bool:
        """Whether the client has left, or its deadline has passed."""

    def done(self) -> bool:
        """Whether the call has ended."""


Single = Callable[[Any, Exchange], Awaitable[Any]]
"""Takes a request, or an iterator of them, and returns one response."""
Stream = Callable[[Any, Exchange], AsyncIterator[Any]]
"""Takes a request, or an iterator of them, and yields responses."""
Answer = Callable[[Any, Exchange], Awaitable[Any]]
"""Takes the bytes of a request, or an iterator of them; returns the bytes of one response, or writes a stream."""

REQUEST_ID_KEY = "x-request-id"
TRACEPARENT_KEY = "traceparent"
CREDENTIAL_KEY, CREDENTIAL_SCHEME = "authorization", "bearer "
_SCHEME = len(CREDENTIAL_SCHEME)

# Probes and descriptions must answer when everything else is full.
_HEALTH = "/grpc.health.v1."
_EXEMPT = (_HEALTH, "/grpc.reflection.")
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-0[0-3]")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")


@dataclass(slots=True)
class Call:
    """The state of the call in progress."""

    request_id: str
    connection: str = ""
    """The address of the client. The runtime makes it anew each time that it is asked for it."""
    authorization: str = ""
    """The header `authorization`, as it was sent; if there are several, each in a line."""
    certificate: bytes = b""
    """The certificate of the connection, in PEM; empty without one, or if certificates are not accepted."""
    principal: Principal = EVERYBODY
    account: Account = NOBODY
    """In which the call is counted."""
    room: Room | None = None
    """The room for the answer of a call that can be large."""
    sending: Sending | None = None
    """The messages of a stream that its client has not taken yet."""
    reason: str = ""
    incident_id: str = ""
    awaits_request: bool = False
    """Its request has not arrived yet. Clients may drop such calls as often as they like: the log leaves them out."""
    request_bytes: int = 0
    piece: Piece = nullcontext
    """Around a piece of long work, which gives way to short calls."""
    is_known: bool = False
    """Whether its credential was valid."""
    whole_tenant: bool = False
    """Whether its method concerns the whole tenant, including quarantined records."""
    records: tuple[str, ...] = ()
    """The ids that its request and answer name, if the audit log gets it."""
    traceparent: str = ""
    """The trace that the call belongs to, as W3C writes it; empty if it is not known to belong to one."""
    trace: Trace | None = None
    """Its trace, if it is traced here."""
    started: float = 0.0
    """By `time.perf_counter`."""

    @property
    def bearer(self) -> str:
        """The secret or token in the header `authorization`; empty without one."""
        lines = self.authorization.split("\n")
        found = [line[_SCHEME:].strip() for line in lines if line[:_SCHEME].lower() == CREDENTIAL_SCHEME]
        # Joined, several headers are invalid: a proxy may have verified a different one than we would pick.
        return ", ".join(found)

    @property
    def credentials(self) -> Credentials:
        """The caller's credentials."""
        return Credentials(self.bearer, self.certificate)

    @property
    def trailers(self) -> Trailers:
        """The trailers of every answer."""
        request_id = (REQUEST_ID_KEY, self.request_id)
        return (request_id, (TRACEPARENT_KEY, self.traceparent)) if self.traceparent else (request_id,)

    @property
    def caller(self) -> str:
        """The caller within the tenant; one with a name may have many connections."""
        return self.principal.subject or self.connection

    @property
    def holder(self) -> tuple[Hashable, ...]:
        """With whom its calls share what is limited: tenants, then the callers of a tenant; or all connections."""
        tenant, subject = self.principal.tenant, self.principal.subject
        return (tenant, (tenant, subject)) if subject else (self.connection,)


Observer = Callable[[Call, str], None]
"""Hears of a call that has ended, with the name of its code."""

current_call: ContextVar[Call] = ContextVar("current_call")


def request_bytes() -> int:
    """The size of this call's request on the wire. A message takes as long to tell its size as to be read: 60 ms for
    4 MB of small parts."""
    return current_call.get().request_bytes


def piece_of_work() -> AbstractAsyncContextManager[None]:
    """Around a piece of long work of the call in progress, which gives way to short calls."""
    return current_call.get().piece()


def end_trace(call: Call, code: str) -> None:
    """Ends the trace of a call, if it has one."""
    if call.trace is not None:
        call.trace.end(code)


@dataclass(frozen=True, slots=True)
class Method:
    """A method, with the handler of its servicer."""

    path: str
    handler: Any

    @property
    def exempt(self) -> bool:
        """Whether limits do not apply to it."""
        return self.path.startswith(_EXEMPT)

    @property
    def ends_itself(self) -> bool:
        """Whether its streams end by themselves at a shutdown, after a last message."""
        return self.path.startswith(_HEALTH)

    @property
    def single(self) -> bool:
        """Whether it takes one request and returns one response."""
        return not (self.handler.request_streaming or self.handler.response_streaming)


def call_of(headers: Iterable[tuple[str, str | bytes]]) -> Call:
    """A call with these headers. Its id is the client's `x-request-id` if it sends a sound one, otherwise a new one."""
    call = Call("")
    for key, value in headers:
        if key == REQUEST_ID_KEY and isinstance(value, str) and _REQUEST_ID.fullmatch(value):
            call.request_id = value
        elif key == TRACEPARENT_KEY and isinstance(value, str) and _TRACEPARENT.fullmatch(value):
            call.traceparent = value
        elif key == CREDENTIAL_KEY and isinstance(value, str):
            call.authorization = f"{call.authorization}\n{value}" if call.authorization else value
    if not call.request_id:
        call.request_id = new_id().replace("-", "")
    return call
