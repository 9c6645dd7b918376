"""Serves MCP over this process's stdin and stdout, or over streamable HTTP."""

import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

PATH = "/mcp"
_GRACE_S = 2
"""How long answers may take once the server begins to stop; open streams are cut."""


async def serve_stdio(server: Server[Any]) -> None:
    """Serves until stdin ends; stdout carries only the protocol."""
    # A read of stdin cannot be cancelled; without this, an interrupt would wait for the next line.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    async with stdio_server() as (incoming, outgoing):
        requests, messages = anyio.create_memory_object_stream[SessionMessage | Exception]()

        async def relay() -> None:
            async with requests, incoming:
                async for message in incoming:
                    if isinstance(message, Exception):
                        await outgoing.send(_unreadable(message))
                    else:
                        await requests.send(message)

        async with anyio.create_task_group() as group:
            group.start_soon(relay)
            await server.run(messages, outgoing, server.create_initialization_options())


def _unreadable(error: Exception) -> SessionMessage:
    """The answer to a line that is no request; the library itself would only log it."""
    is_json = not isinstance(error, ValidationError) or error.errors()[0]["type"] != "json_invalid"
    code, said = (
        (types.INVALID_REQUEST, "the line is not a JSON-RPC message")
        if is_json
        else (types.PARSE_ERROR, "the line is not JSON")
    )
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=None, error=types.ErrorData(code=code, message=said)))


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
