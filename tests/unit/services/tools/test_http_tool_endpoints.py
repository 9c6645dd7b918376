"""Tools at an operator's HTTP endpoint: what is sent, what counts as an answer, and how calls fail."""

import asyncio
import gzip
import json
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from mnemon_server.domain.errors import MnemonError, ToolFailedError, ToolUnreachableError
from mnemon_server.domain.tools import ANSWER_BYTES_MAX, OperatorTool
from mnemon_server.services.tools.http_endpoint import HttpEndpoint

from tests.support.tool_endpoints import Answer, ToolServer, saying, tool_server

UNTOLD = "what only the endpoint knows"


@asynccontextmanager
async def endpoint(url: str, timeout_s: float = 10.0) -> AsyncIterator[HttpEndpoint]:
    tool = OperatorTool(name="weather", description="", parameters={}, http=url, timeout_s=timeout_s)
    opened = HttpEndpoint(tool)
    try:
        yield opened
    finally:
        await opened.aclose()


async def asked(
    server: ToolServer,
    arguments: dict[str, Any] | None = None,
    namespace: tuple[str, ...] = (),
    request_id: str = "",
    timeout_s: float = 10.0,
) -> str:
    async with endpoint(server.url, timeout_s) as opened:
        return await opened.call("weather", arguments or {}, namespace, request_id)


async def failure(answer: Answer, kind: type[MnemonError], timeout_s: float = 10.0) -> str:
    with tool_server(answer) as server, pytest.raises(kind) as caught:
        await asked(server, timeout_s=timeout_s)
    assert type(caught.value) is kind
    assert UNTOLD not in str(caught.value)
    return str(caught.value)


async def test_the_arguments_are_posted_as_json_and_the_text_of_the_answer_is_returned() -> None:
    arguments = {"city": "Zürich 漢 🎉", "days": 3, "share": 0.5, "at": None, "tags": ["a", {"b": True}]}
    with tool_server(saying("föhn 🎉\r\n")) as server:
        assert await asked(server, arguments) == "föhn 🎉\r\n"
    (request,) = server.received
    assert request.path == "/tool"
    assert request.arguments == arguments
    assert request.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("content_type", "content"),
    [("application/json", '{"degrees": 21}'), ("text/html", "<p>21</p>"), ("Text/Plain", "21"), ("", "")],
)
async def test_texts_json_and_empty_bodies_are_answers(content_type: str, content: str) -> None:
    with tool_server(saying(content, 201, content_type)) as server:
        assert await asked(server) == content


async def test_the_request_id_and_the_namespace_are_sent() -> None:
    with tool_server(saying("ok")) as server:
        await asked(server, {}, ("user", "jürgen 🎉"), "a1-b2")
        await asked(server, {}, (), "bär\r\nX-Injected: 1")
        await asked(server)
    first, second, third = (request.headers for request in server.received)
    assert first["idempotency-key"] == "a1-b2"
    assert json.loads(first["mnemon-namespace"]) == ["user", "jürgen 🎉"]
    assert second["idempotency-key"] == "b%C3%A4r%0D%0AX-Injected%3A%201"
    assert "x-injected" not in second
    assert "idempotency-key" not in third and "mnemon-namespace" not in third


async def test_a_cookie_from_one_call_is_not_sent_with_the_next() -> None:
    with tool_server(saying("ok", Set_Cookie="session=of-the-first-user")) as server:
        async with endpoint(server.url) as opened:
            for _ in range(2):
                await opened.call("weather", {}, (), "")
    assert [request.headers.get("cookie") for request in server.received] == [None, None]


@pytest.mark.parametrize("status", [300, 400, 404, 418, 429, 500, 503])
async def test_another_status_is_an_error_that_does_not_repeat_the_body(status: int) -> None:
    message = await failure(saying(UNTOLD, status), ToolFailedError)
    assert message == f"the tool 'weather' failed: its endpoint answered with status {status}"


async def test_a_redirect_is_not_followed() -> None:
    with tool_server(saying("not for you")) as target:
        message = await failure(saying("", 307, Location=target.url), ToolFailedError)
    assert message.endswith("status 307")
    assert target.received == []


async def test_an_answer_of_exactly_a_mebibyte_is_accepted_and_one_byte_more_is_not() -> None:
    with tool_server(saying("x" * ANSWER_BYTES_MAX)) as server:
        assert len(await asked(server)) == ANSWER_BYTES_MAX
    message = await failure(saying("x" * (ANSWER_BYTES_MAX + 1)), ToolFailedError)
    assert message == "the tool 'weather' failed: it answered more than 1,048,576 bytes"


async def test_an_endless_answer_is_abandoned_at_a_mebibyte() -> None:
    written = 0

    def endless(handler: BaseHTTPRequestHandler) -> None:
        nonlocal written
        handler.send_response(200)
        handler.send_header("Content-Type", "text/plain")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        while True:
            handler.wfile.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            written += 0x10000

    assert "more than" in await failure(endless, ToolFailedError)
    assert written < 64 * ANSWER_BYTES_MAX


async def test_compressed_answers_are_refused() -> None:
    bomb = gzip.compress(b"x" * (64 * ANSWER_BYTES_MAX))
    message = await failure(saying(bomb, Content_Encoding="gzip"), ToolFailedError)
    assert message.endswith("must not compress its answer")


@pytest.mark.parametrize("content_type", ["image/png", "application/octet-stream", "textual/x", ""])
async def test_a_binary_answer_is_refused(content_type: str) -> None:
    message = await failure(saying(UNTOLD, 200, content_type), ToolFailedError)
    assert message.endswith("must answer text/* or application/json")


async def test_an_answer_that_is_not_utf_8_is_refused() -> None:
    message = await failure(saying(b"\xff\xfe" + UNTOLD.encode()), ToolFailedError)
    assert message.endswith("must answer in UTF-8")


async def test_a_silent_endpoint_is_abandoned_after_the_timeout() -> None:
    begin = time.monotonic()
    with tool_server(lambda _: server.ended.wait() and None) as server, pytest.raises(ToolUnreachableError) as caught:
        await asked(server, timeout_s=0.2)
    assert str(caught.value) == "the tool 'weather' did not answer within 0.2 s"
    assert time.monotonic() - begin < 60


async def test_an_endpoint_that_answers_byte_by_byte_is_abandoned_after_the_timeout() -> None:
    def dripping(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/plain")
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        while not server.ended.wait(0.05):
            handler.wfile.write(b"x")

    with tool_server(dripping) as server, pytest.raises(ToolUnreachableError, match=r"did not answer within 0\.4 s"):
        await asked(server, timeout_s=0.4)


async def test_a_connection_that_breaks_before_the_answer_is_unreachable() -> None:
    def closing(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True

    assert "closed the connection" in await failure(closing, ToolUnreachableError)


async def test_a_truncated_answer_is_an_error() -> None:
    def half(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/plain")
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(UNTOLD.encode())
        handler.close_connection = True

    assert "closed the connection" in await failure(half, ToolUnreachableError)


async def test_a_port_without_a_listener_is_unreachable() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        async with endpoint(f"http://127.0.0.1:{held.getsockname()[1]}/") as opened:
            with pytest.raises(ToolUnreachableError, match=r"^the tool 'weather' cannot be reached"):
                await opened.call("weather", {}, (), "")


async def test_proxies_in_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with tool_server(saying("from the proxy")) as proxy, tool_server(saying("from the tool")) as server:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert await asked(server) == "from the tool"


async def test_calls_run_concurrently() -> None:
    both = asyncio.Event()
    loop = asyncio.get_running_loop()

    def together(handler: BaseHTTPRequestHandler) -> None:
        if len(server.received) == 2:
            loop.call_soon_threadsafe(both.set)
        asyncio.run_coroutine_threadsafe(both.wait(), loop).result(60)
        saying("ok")(handler)

    with tool_server(together) as server:
        async with endpoint(server.url) as opened:
            assert await asyncio.gather(*(opened.call("weather", {}, (), "") for _ in range(2))) == ["ok", "ok"]


async def test_a_cancelled_call_leaves_the_endpoint_usable() -> None:
    arrived = asyncio.Event()
    loop = asyncio.get_running_loop()

    def waiting(_: BaseHTTPRequestHandler) -> None:
        loop.call_soon_threadsafe(arrived.set)
        server.ended.wait()

    with tool_server(waiting) as server:
        async with endpoint(server.url) as opened:
            call = asyncio.create_task(opened.call("weather", {}, (), ""))
            await asyncio.wait_for(arrived.wait(), 60)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            server.answer = saying("again")
            assert await opened.call("weather", {}, (), "") == "again"


def test_the_first_call_loads_no_library_while_others_wait() -> None:
    with tool_server(saying("sunny")) as server:
        program = f"""
import asyncio, sys
from mnemon_server.domain.tools import OperatorTool
from mnemon_server.services.tools.http_endpoint import HttpEndpoint

async def main():
    endpoint = HttpEndpoint(OperatorTool(name="weather", description="", parameters={{}}, http={server.url!r}))
    loaded = set(sys.modules)
    print(await endpoint.call("weather", {{}}, (), ""), [name for name in sys.modules if name not in loaded])

asyncio.run(main())
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "sunny []\n"
