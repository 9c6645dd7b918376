"""Serves MCP over this process's stdin and stdout, or over streamable HTTP."""

import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

PATH = "/mcp"
_GRACE_S = 2
"""How long answers may take once the server begins to stop; open streams are cut."""


async def serve_stdio(server: Server[Any]) -> None:
    """Serves until stdin ends; stdout carries only the protocol."""
    # A read of stdin cannot be cancelled; without this, an interrupt would wait for the next line.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


async def serve_http(server: Server[Any], host: str, port: int, report: Callable[[str], None]) -> None:
    """Serves on a loopback address until SIGTERM or SIGINT, and calls `report` with the URL.

    With a port of 0, the system chooses one. Requests from web pages, whatever name they use for this machine, are
    refused by their headers. Raises OSError if the address is in use.
    """
    signal.signal(signal.SIGTERM, _leave)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listening:
        app = server.streamable_http_app(streamable_http_path=PATH, host=host)
        config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=_GRACE_S)
        shown = f"[{host}]" if family is socket.AF_INET6 else host
        report(f"http://{shown}:{listening.getsockname()[1]}{PATH}")
        await uvicorn.Server(config).serve(sockets=[listening])


def _leave(*_: object) -> None:
    # uvicorn repeats the signal once it has stopped.
    sys.exit(0)
