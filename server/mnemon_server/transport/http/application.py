"""Paths: calls of methods, pages, and preflights of browsers."""

import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from mnemon_server.transport.http.calls import NOTHING, HttpCalls, Refused
from mnemon_server.transport.http.cross_origin import CrossOrigin
from mnemon_server.transport.http.json_writer import dumped
from mnemon_server.transport.http.request import Receive, Request, Send


class Page(NamedTuple):
    """A page that is no call."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    code: int = 200
    headers: Mapping[str, str] = MappingProxyType({})


Pages = Mapping[str, Callable[[], Awaitable[Page]]]
"""The maker of each page, by path."""


class Application:
    """The ASGI application."""

    def __init__(self, calls: HttpCalls | None, pages: Pages, origins: CrossOrigin, *, local_hosts_only: bool) -> None:
        """Serves calls, unless `calls` is None, and pages.

        With `local_hosts_only`, requests must be addressed to an IP address or localhost. Without authentication, any
        website could otherwise reach a server on loopback: it would let its own name point there.
        """
        self._calls = calls
        self._pages = pages
        self._origins = origins
        self._local_hosts_only = local_hosts_only

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answers one request."""
        request = Request(scope, receive, send)
        headers = self._origins.headers(request)
        try:
            if self._local_hosts_only and not _is_local(request.headers.get("host", "")):
                raise Refused(421, "without authentication, this server must be addressed as localhost or by its IP")
            if request.method == "OPTIONS":
                allowed = self._origins.preflight(request, self._methods(request))
                await _respond(request, 204, {**headers, **allowed}, b"")
            elif (page := self._pages.get(request.path)) is not None:
                await self._show(request, page, headers)
            elif self._calls is not None:
                await self._calls.answer(request, headers)
            else:
                raise Refused(404, NOTHING)
        except Refused as refused:
            body = dumped({"code": "unknown", "message": str(refused)})
            headers = {**headers, **refused.headers, "content-type": "application/json"}
            await _respond(request, refused.code, headers, body)

    def _methods(self, request: Request) -> str:
        """The HTTP methods that the path of a request takes."""
        if request.path in self._pages:
            return "GET, HEAD"
        if self._calls is None:
            raise Refused(404, NOTHING)
        return self._calls.methods(request)

    async def _show(self, request: Request, page: Callable[[], Awaitable[Page]], headers: Mapping[str, str]) -> None:
        if request.method not in ("GET", "HEAD"):
            raise Refused(405, "use GET", {"allow": "GET, HEAD"})
        shown = await page()
        headers = {**headers, **shown.headers, "content-type": shown.content_type}
        await _respond(request, shown.code, headers, shown.body)


async def _respond(request: Request, code: int, headers: Mapping[str, str], body: bytes) -> None:
    # An answer without content has no length either.
    length = {} if code == 204 else {"content-length": str(len(body))}
    pairs = [(key.encode(), value.encode("latin-1")) for key, value in {**headers, **length}.items()]
    await request.send({"type": "http.response.start", "status": code, "headers": pairs})
    await request.send({"type": "http.response.body", "body": body, "more_body": False})


def _is_local(host: str) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    name = name.strip("[]").lower()
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost"
    return True
