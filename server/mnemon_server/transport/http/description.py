"""Serves the OpenAPI document, and a page that shows it."""

from collections.abc import Awaitable, Callable
from functools import partial
from importlib.resources import files
from types import MappingProxyType

from mnemon_server.transport.http.application import Page, Pages

_FILES = {
    "/openapi.json": ("openapi.json", "application/json"),
    "/docs": ("docs.html", "text/html; charset=utf-8"),
    "/docs.css": ("docs.css", "text/css; charset=utf-8"),
    "/docs.js": ("docs.js", "text/javascript; charset=utf-8"),
}
_HEADERS = MappingProxyType(
    {
        # Pages load nothing from other hosts, run only their own scripts, and cannot be framed.
        "content-security-policy": "default-src 'none'; connect-src 'self'; script-src 'self'; style-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "cache-control": "no-cache",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
)


def description() -> Pages:
    """The pages; `make generate` writes the OpenAPI document."""
    return {path: _page(name, content_type) for path, (name, content_type) in _FILES.items()}


def _page(name: str, content_type: str) -> Callable[[], Awaitable[Page]]:
    return partial(_shown, Page((files(__package__) / "pages" / name).read_bytes(), content_type, headers=_HEADERS))


async def _shown(page: Page) -> Page:
    return page
