"""Every call gets a request id and one line in the log, which never holds what users wrote."""

import asyncio
import logging
import time
from functools import partial

import structlog

from mnemon_server.domain.access import Principal
from mnemon_server.transport.interceptors.base import Call, Exchange, Method, current_call

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
