"""The steps around every method, in order: id, log line, guard; access; the request, a slot; deadline; messages."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import structlog
from grpc import aio

from mnemon_server.domain.access import Principal
from mnemon_server.domain.history import Author, current_author
from mnemon_server.services.background.offload import LARGE_BYTES
from mnemon_server.services.limits.accounts import Account
from mnemon_server.services.limits.outbox import FREE_BYTES, Sending
from mnemon_server.transport.interceptors.abort import abort, failure_of
from mnemon_server.transport.interceptors.access import Access, Admit
from mnemon_server.transport.interceptors.audit import NO_IDS, Audit
from mnemon_server.transport.interceptors.base import Answer, Call, Exchange, Method, Observer, current_call, end_trace
from mnemon_server.transport.interceptors.codec import Codec, Receiver
from mnemon_server.transport.interceptors.limiter import Limiter, Limits
from mnemon_server.transport.interceptors.stream_writer import StreamWriter
from mnemon_server.transport.interceptors.time_limit import DefaultDeadline
from mnemon_server.transport.interceptors.turns import Turns
from mnemon_server.transport.metrics.call_figures import CallFigures

if TYPE_CHECKING:
    # Its library takes long to load, and most servers trace nothing.
    from mnemon_server.transport.interceptors.tracing import Tracing


# Every call gets a request id and one line in the log, which never holds what users wrote.


_PATH_CHARACTERS_MAX = 128
_log = structlog.get_logger()


class MethodLog:
    """Logs method, code, duration, request id and peer of each call. Trailers carry the id and the trace back."""

    def __init__(self, method: Method) -> None:
        self._level = logging.DEBUG if method.exempt else logging.INFO
        self._log = _log.bind()
        self._path = method.path[:_PATH_CHARACTERS_MAX]

    def begin(self, context: Exchange) -> Call:
        """The call, which begins now."""
        call = current_call.get()
        call.started = time.perf_counter()
        call.connection = str(context.peer())
        context.set_trailing_metadata(call.trailers)
        return call

    def end(self, call: Call, code: str) -> None:
        """Writes the line of a call that has ended with this code."""
        left = call.awaits_request and code == "CANCELLED"
        if left or not self._log.is_enabled_for(self._level):
            return
        fields = {
            "method": self._path,
            "code": code,
            "duration_ms": round((time.perf_counter() - call.started) * 1000, 3),
            "peer": call.connection,
            **_who(call.principal),
            **{key: value for key in ("reason", "incident_id", "traceparent") if (value := getattr(call, key))},
        }
        # Once the answer is on its way: a line costs as much as the rest of a small call.
        asyncio.get_running_loop().call_soon(partial(self._log.log, self._level, "rpc", **fields))


def _who(principal: Principal) -> dict[str, str]:
    return {"tenant": principal.tenant, "subject": principal.log_name or principal.subject} if principal.subject else {}


Receive = Callable[[Exchange], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps that share something among the calls of all methods."""

    access: Access
    receiver: Receiver
    limiter: Limiter
    streams: StreamWriter
    deadline: DefaultDeadline
    codec: Codec
    audit: Audit | None = None
    figures: CallFigures | None = None
    tracing: "Tracing | None" = None


class Pipeline:
    """The steps of a call, whether it came over gRPC (`grpc_calls.py`) or HTTP."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self.conversions = steps.codec.conversions
        """For messages that the transport reads and writes."""

    def wrapped(self, method: Method) -> Answer:
        """The steps around a method, to be made once: no call pays for the wrapping.

        It needs `current_call`. To the transport, every method takes a stream of requests and answers from a coroutine.
        """
        steps = self._steps
        receive = None if method.handler.request_streaming else steps.receiver.receive
        answer = _received(self._answer(method), receive, steps.limiter.limits(method), steps.limiter.large)
        begin = steps.tracing.of(method) if steps.tracing else None
        answer = steps.access.watched(method, answer)
        answer = _reaching(answer) if steps.access.concerns_tenant(method) else answer
        door = method.path.removeprefix("/")
        return _guarded(answer, MethodLog(method), door, steps.access.of(method), begin, self._observers(method))

    def _observers(self, method: Method) -> tuple[Observer, ...]:
        """The listener that each ended call of a method is reported to, besides the log."""
        steps = self._steps
        audit = steps.audit.of(method) if steps.audit else None
        figures = steps.figures.of(method) if steps.figures else None
        found = audit, figures.note if figures else None, end_trace if steps.tracing else None
        return tuple(each for each in found if each is not None)

    def _answer(self, method: Method) -> Answer:
        """From bytes to bytes, or from bytes to a stream that is written."""
        steps, handler = self._steps, method.handler
        if handler.response_streaming:
            stream = steps.codec.stream(method, handler.unary_stream or handler.stream_stream)
            return steps.streams.answer(method, stream)
        behaviour = handler.unary_unary or handler.stream_unary
        ids = steps.audit.id_readers(method) if steps.audit else NO_IDS
        answer = steps.codec.single(method, behaviour, ids)
        # A long upload is not a fault.
        return answer if handler.request_streaming else steps.deadline.limited(answer)


def _reaching(answer: Answer) -> Answer:
    """The answer of a method that concerns the whole tenant."""

    async def call(requests: Any, context: Exchange) -> Any:
        current_call.get().whole_tenant = True
        return await answer(requests, context)

    return call


def _received(answer: Answer, receive: Receive | None, limits: Limits | None, large: Turns) -> Answer:
    """The answer to a request that has arrived, and has a slot until it is answered.

    Quotas are checked before: what they refuse is never read.

    Args:
        answer: answers the request, or an iterator of them.
        receive: reads the request; None if there may be several, which `answer` reads.
        limits: the limits of calls in progress; None: no limits.
        large: gives the turns in which large answers are sent.
    """
    if limits is None:
        return answer if receive is None else _unlimited(answer, receive)
    accounts, slots = limits.accounts, limits.slots
    single, stores = limits.single, limits.stores

    async def call(requests: Any, context: Exchange) -> Any:
        record, held = current_call.get(), 0
        account = record.account = accounts.of(record.principal.tenant, record.caller)
        account.begin(single=single, stores=stores)
        try:
            request, record.piece = requests, limits.piece
            if stores and receive is None:
                request = _while_space(account, requests)
            if receive is not None:
                request = await receive(context)
                account.hold(len(request))
                held = len(request)
            holder = record.holder
            slots.take(*holder)
            try:
                response = await answer(request, context)
            finally:
                slots.give_back(*holder)
            if single and len(response) > FREE_BYTES:
                _send(response, context, Sending(limits.outbox, holder, account), record)
                if len(response) > LARGE_BYTES and (turn := large.take("")) is not None:
                    await turn
            return response
        finally:
            account.end(single=single, held=held)
            if record.room is not None:
                record.room.close()

    return call


def _send(response: bytes, context: Exchange, sending: Sending, call: Call) -> None:
    """From now on, the answer takes memory of the outbox only, until the client has taken it or has left.

    Raises:
        TooManyRequestsError: answers that are not read yet take all of it, or the caller's share.
    """
    sending.require(len(response))
    context.add_done_callback(lambda _: sending.clear())
    if call.room is not None:
        call.room.close()


async def _while_space(account: Account, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The messages of a stream, as long as what they contain may be stored."""
    async for message in messages:
        account.require_space()
        yield message
        del message  # See `StreamWriter`.


def _unlimited(answer: Answer, receive: Receive) -> Answer:
    async def call(_: Any, context: Exchange) -> Any:
        return await answer(await receive(context), context)

    return call


def _guarded(
    answer: Answer,
    log: MethodLog,
    door: str,
    admit: Admit | None,
    begin: Callable[[Call], None] | None,
    observers: tuple[Observer, ...],
) -> Answer:
    """The answer, or the status of its error; the line of the call, and what others get of it."""

    async def call(requests: Any, context: Exchange) -> Any:
        if begin is not None:
            begin(current_call.get())
        record, code, failure = log.begin(context), "UNKNOWN", None
        try:
            try:
                if admit is not None and (examined := admit(record, context)) is not None:
                    await examined
                principal = record.principal
                current_author.set(Author(principal.log_name or principal.subject, door, record.request_id))
                response = await answer(requests, context)
            except (aio.AbortError, asyncio.CancelledError):
                # Already a status, or no one waits for one. Swallowing a cancellation would leak the call's memory.
                raise
            except Exception as error:  # noqa: BLE001 - this is the one place that catches everything
                failure = failure_of(error)
            else:
                code = "OK"
                return response
            await abort(context, failure)
        except asyncio.CancelledError:
            # The call has failed, even if the client or a stop did not wait for its status.
            code = "CANCELLED" if failure is None else failure.code.name
            raise
        except aio.AbortError:
            code = _name(context.code())
            raise
        finally:
            log.end(record, code)
            for observe in observers:
                observe(record, code)

    return call


def _name(code: Any) -> str:
    return code.name if isinstance(code, grpc.StatusCode) else str(code)
