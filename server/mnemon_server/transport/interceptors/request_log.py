"""Every call gets a request id and one line in the log, which never holds what users wrote."""

import asyncio
import logging
import re
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

import grpc
import structlog
from grpc import aio

from mnemon_server.domain.access import Principal
from mnemon_server.services.shared.ids import new_id
from mnemon_server.transport.interceptors.base import (
    REQUEST_ID_KEY,
    Call,
    Context,
    Continuation,
    Method,
    MethodInterceptor,
    Single,
    current_call,
)

CREDENTIAL_KEY, CREDENTIAL_SCHEME = "authorization", "bearer"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_PATH_CHARACTERS_MAX = 128
_log = structlog.get_logger()


class RequestLog(MethodInterceptor):
    """The outermost interceptor. The id is the client's `x-request-id` if it sends one; trailers carry it back."""

    async def intercept_service(self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The wrapped handler, which the runtime calls in the same task; None if the method does not exist."""
        # The runtime makes the headers anew each time that it is asked for them, and here it has made them already.
        current_call.set(_call_of(handler_call_details.invocation_metadata))
        return await super().intercept_service(continuation, handler_call_details)

    def wrap_single(self, method: Method, inner: Single) -> Single:
        """Logs method, code, duration, request id and peer."""
        level = logging.DEBUG if method.exempt else logging.INFO
        log = _log.bind()
        path = method.path[:_PATH_CHARACTERS_MAX]

        async def call(request: Any, context: Context) -> Any:
            started = time.perf_counter()
            record = current_call.get()
            record.connection = str(context.peer())
            structlog.contextvars.bind_contextvars(request_id=record.request_id)
            context.set_trailing_metadata(((REQUEST_ID_KEY, record.request_id),))
            code = "UNKNOWN"
            try:
                response = await inner(request, context)
                code = "OK"
                return response
            except asyncio.CancelledError:
                code = "CANCELLED"
                raise
            except aio.AbortError:
                code = _name(context.code())
                raise
            finally:
                left = record.awaits_request and code == "CANCELLED"
                if log.is_enabled_for(level) and not left:
                    fields = {
                        "method": path,
                        "code": code,
                        "duration_ms": round((time.perf_counter() - started) * 1000, 3),
                        "peer": record.connection,
                        **_who(record.principal),
                        **{key: value for key in ("reason", "incident_id") if (value := getattr(record, key))},
                    }
                    # Once the answer is on its way: a line costs as much as the rest of a small call.
                    asyncio.get_running_loop().call_soon(partial(log.log, level, "rpc", **fields))

        return call

    def wrap_stream(self, method: Method, inner: Any) -> Single:
        """The same; the stream is already written by a coroutine."""
        return self.wrap_single(method, inner)


def _call_of(headers: Iterable[tuple[str, str | bytes]]) -> Call:
    call = Call("")
    for key, value in headers:
        if key == REQUEST_ID_KEY and isinstance(value, str) and _REQUEST_ID.fullmatch(value):
            call.request_id = value
        elif key == CREDENTIAL_KEY and isinstance(value, str):
            scheme, _, credential = value.partition(" ")
            if scheme.lower() == CREDENTIAL_SCHEME:
                call.credential = credential.strip()
    if not call.request_id:
        call.request_id = new_id().replace("-", "")
    return call


def _who(principal: Principal) -> dict[str, str]:
    return {"tenant": principal.tenant, "subject": principal.subject} if principal.subject else {}


def _name(code: Any) -> str:
    return code.name if isinstance(code, grpc.StatusCode) else str(code)
