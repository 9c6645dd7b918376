"""The standard health service: it says whether to call this server, and whether to restart it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from typing import Any, NamedTuple

import grpc
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc

from mnemon_server.domain.errors import NotServingError
from mnemon_server.transport.interceptors.base import Exchange

OVERALL, LIVENESS, READINESS = "", "liveness", "readiness"
HEALTH_SERVICE = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
_CHECK_TIMEOUT_S = 10.0
_WARMING_INTERVAL_S = 0.1
_log = structlog.get_logger()


class Readiness(NamedTuple):
    """Whether calls are served, and whether also those that need a warm index."""

    ready: bool
    warm: bool = True


class HealthServicer(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """Answers for the whole server, each service, and for `liveness` and `readiness`.

    Liveness says that the process answers, whatever the store does: restarting heals no disk. The whole server is ready
    once every service is.
    """

    def __init__(self, services: Collection[str], *, indexed: Iterable[str] = ()) -> None:
        """Starts as NOT_SERVING, except for `liveness`; `indexed` are the services that need a warm index."""
        self._indexed = frozenset((OVERALL, READINESS, *indexed))
        ready_names = (OVERALL, READINESS, *services)
        self._statuses = {LIVENESS: _SERVING, **dict.fromkeys(ready_names, _NOT_SERVING)}
        self._changed = asyncio.Event()
        self._readiness = Readiness(ready=False)
        self._ending = False

    @property
    def readiness(self) -> Readiness:
        """The readiness that was set last."""
        return self._readiness

    @property
    def is_serving(self) -> bool:
        """True once every service is ready."""
        return bool(self._statuses[OVERALL] == _SERVING)

    def status(self, service: str) -> Any:
        """The status of one service; None if it is unknown."""
        return self._statuses.get(service)

    def set_ready(self, *, ready: bool, warm: bool = True) -> None:
        """Sets whether calls are served, and those that need a warm index; none are after `shut_down`."""
        self._readiness = Readiness(ready and not self._ending, warm)
        for name in self._statuses:
            if name != LIVENESS:
                serves = self._readiness.ready and (warm or name not in self._indexed)
                self._statuses[name] = _SERVING if serves else _NOT_SERVING
        self._wake()

    def shut_down(self) -> None:
        """Answers NOT_SERVING from now on, and ends all watches with it."""
        self._ending = True
        self.set_ready(ready=False)

    async def Check(self, request: Any, context: Exchange) -> Any:  # noqa: N802
        """The status of one service; NOT_FOUND if it is unknown."""
        status = self.status(request.service)
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return health_pb2.HealthCheckResponse(status=status)

    async def List(self, request: Any, context: Exchange) -> Any:  # noqa: N802
        """The status of every service."""
        statuses = {name: health_pb2.HealthCheckResponse(status=status) for name, status in self._statuses.items()}
        return health_pb2.HealthListResponse(statuses=statuses)

    async def Watch(self, request: Any, context: Exchange) -> AsyncIterator[Any]:  # noqa: N802
        """The status of one service now, and whenever it changes."""
        last = None
        while True:
            changed = self._changed
            status = self._statuses.get(request.service, _SERVICE_UNKNOWN)
            if status != last:
                yield health_pb2.HealthCheckResponse(status=status)
                last = status
            elif self._ending:
                raise NotServingError("the server is shutting down")
            else:
                await changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


async def keep_readiness(
    servicer: HealthServicer, check: Callable[[], Awaitable[Readiness]], *, interval_s: float
) -> None:
    """Asks `check` every `interval_s` seconds whether calls are served, until it is cancelled.

    While only the index is still warming up, it asks more often: clients are waiting to begin.
    """
    while True:
        readiness = await _ask(check)
        if readiness != servicer.readiness:
            _log.info("readiness", serving=readiness.ready, warm=readiness.warm)
            servicer.set_ready(ready=readiness.ready, warm=readiness.warm)
        warming = readiness.ready and not readiness.warm
        await asyncio.sleep(min(interval_s, _WARMING_INTERVAL_S) if warming else interval_s)


async def _ask(check: Callable[[], Awaitable[Readiness]]) -> Readiness:
    try:
        async with asyncio.timeout(_CHECK_TIMEOUT_S):
            return await check()
    except Exception as error:  # noqa: BLE001 - whatever it is, the store does not answer
        _log.error("the store's health is unknown", exc_info=error)
        return Readiness(ready=False)
