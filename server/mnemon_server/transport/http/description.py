"""The OpenAPI document, a page that shows it, and the page in front of them."""

from collections.abc import Awaitable, Callable
from functools import partial
from importlib.resources import files
from types import MappingProxyType

from mnemon_server import __version__
from mnemon_server.transport.health import HealthServicer
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


_FRONT = """<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>Mnemon</title>
    <link rel="icon" href="data:,">
  </head>
  <body>
    <h1>{title}</h1>
    <p>A memory for AI agents. This server is {state}.</p>
    <ul>
{links}
    </ul>
    <p>A call is <code>POST /mnemon.v1.&lt;service&gt;/&lt;method&gt;</code> with a JSON object.</p>
  </body>
</html>
"""
_LINKS = MappingProxyType(
    {
        "/docs": "every method, with a form that calls it",
        "/openapi.json": "the same for programs (OpenAPI 3.1)",
        "/readyz": "whether calls are answered",
        "/healthz": "whether the process is alive",
    }
)


def front_page(health: HealthServicer, pages: Pages) -> Callable[[], Awaitable[Page]]:
    """The page at /: what runs here, and the other pages.

    Where the API's description is not among them, the version is not public either.
    """
    title = f"Mnemon {__version__}" if "/docs" in pages else "Mnemon"
    links = "\n".join(
        f'      <li><a href="{path[1:]}">{path}</a>: {text}</li>' for path, text in _LINKS.items() if path in pages
    )

    async def shown() -> Page:
        state = "ready" if health.is_serving else "starting or ending"
        text = _FRONT.format(title=title, state=state, links=links)
        return Page(text.encode(), "text/html; charset=utf-8", headers=_HEADERS)

    return shown


def _page(name: str, content_type: str) -> Callable[[], Awaitable[Page]]:
    return partial(_shown, Page((files(__package__) / "pages" / name).read_bytes(), content_type, headers=_HEADERS))


async def _shown(page: Page) -> Page:
    return page
