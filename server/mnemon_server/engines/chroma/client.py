"""Calls to a Chroma server over HTTP. Each has a deadline, and `close` ends those that still wait.

Chroma's own client is not used: it has no limit of time, and cannot be ended while a server hangs.
"""

import asyncio
import random
import ssl
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from mnemon_server.domain.errors import BackendConnectionError

_RETRY_DELAYS_S = (0.1, 0.2, 0.4)
_KEPT_CONNECTIONS_MAX = 8
_PING_S = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ChromaSettings:
    """The address of a Chroma server, and how long to wait for it."""

    host: str
    """A name, an address, or a whole URL, which then includes the port."""
    port: int = 8000
    ssl: bool = False
    call_timeout_s: float = 60.0
    """Maximum time for one request."""
    search_timeout_s: float = 1.0
    """Maximum time for a search, after which the records answer it."""

    @property
    def place(self) -> str:
        """The address in messages."""
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The address of the server."""
        scheme = "https" if self.ssl else "http"
        if "://" in self.host:
            given, _, rest = self.host.rstrip("/").partition("://")
            return f"{scheme if self.ssl else given}://{rest}"
        host = f"[{self.host}]" if ":" in self.host and not self.host.startswith("[") else self.host
        return f"{scheme}://{host}:{self.port}"


class RefusedError(Exception):
    """The server answered with an error. The message is for the log."""

    def __init__(self, status: int, error: str, message: str) -> None:
        """`error` is Chroma's name for it; empty if the answer is not from Chroma."""
        self.status, self.error = status, error
        super().__init__(f"HTTP status {status}: {error} {message}")


class BrokenOffError(BackendConnectionError):
    """The connection broke off, each time the request was sent."""


class ChromaClient:
    """A client of one server. Any thread may call it. It connects when it is first called."""

    def __init__(self, settings: ChromaSettings) -> None:
        self._url, self._place = f"{settings.url}/api/v2", settings.place
        self._lock = threading.Lock()
        self._closed = False
        self._http = _http(self._url, kept_max=_KEPT_CONNECTIONS_MAX)
        # A kept connection would hide that the server accepts no new ones.
        self._pings = _http(self._url, kept_max=0)
        # Only requests on an event loop can be ended from outside while they wait.
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chroma-client", daemon=True)
        self._thread.start()

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float) -> Any:
        """The JSON value of the answer; repeated three times if the connection fails.

        Raises:
            BackendConnectionError: the server cannot be reached, or does not answer in time.
            BrokenOffError: the connection failed each time.
            RefusedError: it answered with an error.
        """
        content = None if body is None else orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
        request = self._http.build_request(method, f"{self._url}{path}", content=content)
        answer = self._wait(self._repeated(request, timeout_s))
        if not answer.is_success:
            raise _refusal(answer)
        return orjson.loads(answer.content) if answer.content else None

    def ping(self) -> None:
        """Returns once the server has answered on a new connection. Raises BackendConnectionError."""
        request = self._pings.build_request("GET", f"{self._url}/heartbeat")
        try:
            answer = self._wait(_answer(self._pings, request, _PING_S))
        except TimeoutError:
            raise BackendConnectionError(f"Chroma at {self._place} does not answer") from None
        if not answer.is_success:
            raise BackendConnectionError(
                f"Chroma at {self._place} answers its heartbeat with HTTP status {answer.status_code}"
            )

    def close(self) -> None:
        """Ends running calls, and closes connections. Later calls raise BackendConnectionError."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, asking: Coroutine[Any, Any, httpx.Response]) -> httpx.Response:
        with self._lock:
            if self._closed:
                asking.close()
                raise BackendConnectionError("the vector index is closed")
            future = asyncio.run_coroutine_threadsafe(asking, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise BackendConnectionError("the vector index is closed") from None
        except httpx.TransportError:
            raise BrokenOffError(f"Chroma at {self._place} cannot be reached: check that it is running") from None

    async def _repeated(self, request: httpx.Request, timeout_s: float) -> httpx.Response:
        for delay in _RETRY_DELAYS_S:
            with suppress(httpx.TransportError):
                return await self._in_time(request, timeout_s)
            await asyncio.sleep(delay * random.uniform(0.75, 1.25))  # noqa: S311 - spreads retries
        return await self._in_time(request, timeout_s)

    async def _in_time(self, request: httpx.Request, timeout_s: float) -> httpx.Response:
        try:
            return await _answer(self._http, request, timeout_s)
        except TimeoutError:
            raise BackendConnectionError(f"Chroma at {self._place} did not answer within {timeout_s:g} s") from None

    async def _end(self) -> None:
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._http.aclose()
        await self._pings.aclose()


async def _answer(http: httpx.AsyncClient, request: httpx.Request, timeout_s: float) -> httpx.Response:
    async with asyncio.timeout(timeout_s):
        return await http.send(request)


def _http(url: str, *, kept_max: int) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        headers={"content-type": "application/json", "user-agent": "mnemon"},
        verify=ssl.create_default_context() if url.startswith("https") else False,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=kept_max),
        timeout=None,  # noqa: S113 - every call has a deadline
        trust_env=False,
    )


def _refusal(answer: httpx.Response) -> RefusedError:
    try:
        value = orjson.loads(answer.content)
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict) or "error" not in value:
        return RefusedError(answer.status_code, "", answer.text)
    return RefusedError(answer.status_code, str(value["error"]), str(value.get("message", "")))
