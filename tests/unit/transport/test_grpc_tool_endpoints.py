"""Tools at an operator's gRPC endpoint: what is sent, what counts as an answer, and how calls fail."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from mnemon.v1 import tool_provider_pb2 as pb
from mnemon_server.domain.errors import MnemonError, ToolFailedError, ToolUnreachableError
from mnemon_server.domain.tools import ANSWER_BYTES_MAX, OperatorTool
from mnemon_server.services.tools.endpoints import ToolEndpoint
from mnemon_server.transport.tool_provider import GrpcEndpoint

from tests.support.ports import HeldPort
from tests.support.server import eventually
from tests.support.tool_messages import struct
from tests.support.tool_providers import Answer, echo, tool_provider

UNTOLD = "what only the endpoint knows"


@asynccontextmanager
async def endpoint(address: str, timeout_s: float = 10.0, **how: Any) -> AsyncIterator[ToolEndpoint]:
    """The endpoint as the server configures it."""
    tool = OperatorTool(name="weather", description="", parameters={}, grpc=address, timeout_s=timeout_s, **how)
    opened: ToolEndpoint = GrpcEndpoint(tool)
    try:
        yield opened
    finally:
        await opened.aclose()


async def asked(answer: Answer, arguments: Mapping[str, Any] | None = None, timeout_s: float = 10.0) -> str:
    """The answer of a call of the tool."""
    async with tool_provider(answer) as provider, endpoint(provider.address, timeout_s) as opened:
        return await opened.call("weather", arguments or {}, (), "")


def saying(content: str) -> Answer:
    """An answer with this content."""

    async def answer(request: pb.ProvideToolRequest, context: Any) -> str:
        return content

    return answer


def ending(code: grpc.StatusCode) -> Answer:
    """A call that ends with this status."""

    async def answer(request: pb.ProvideToolRequest, context: Any) -> str:
        await context.abort(code, UNTOLD)
        return ""

    return answer


async def test_name_arguments_namespace_and_request_id_are_sent() -> None:
    arguments = {"city": "Zürich 🎉", "days": 3, "share": 0.5, "at": None, "tags": ["a", {"b": True}]}
    async with tool_provider() as provider, endpoint(provider.address) as opened:
        assert await opened.call("weather", arguments, ("user", "ada"), "once") == "this is weather"
        await opened.call("weather", {}, (), "")
    first, second = provider.received
    assert first == pb.ProvideToolRequest(
        tool="weather", arguments=struct(arguments), namespace=["user", "ada"], request_id="once"
    )
    assert second.HasField("arguments")
    assert (list(second.namespace), second.request_id) == ([], "")


async def test_many_calls_run_concurrently() -> None:
    together = asyncio.Barrier(8)

    async def answer(request: pb.ProvideToolRequest, context: Any) -> str:
        await together.wait()
        return request.request_id

    async with tool_provider(answer) as provider, endpoint(provider.address) as opened:
        calls = [opened.call("weather", {}, (), f"{number}") for number in range(8)]
        assert await asyncio.gather(*calls) == [f"{number}" for number in range(8)]


@pytest.mark.parametrize("content", ["", "x" * ANSWER_BYTES_MAX, "é" * (ANSWER_BYTES_MAX // 2)], ids=len)
async def test_an_answer_has_up_to_a_mebibyte(content: str) -> None:
    assert await asked(saying(content)) == content


async def test_a_larger_answer_is_an_error() -> None:
    with pytest.raises(ToolFailedError, match="sent more than 1,048,576 bytes"):
        await asked(saying("x" * (ANSWER_BYTES_MAX + 1_000)))


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (grpc.StatusCode.UNAVAILABLE, ToolUnreachableError, "cannot be reached, or its endpoint closed"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, ToolUnreachableError, "did not answer within 10 s"),
        (grpc.StatusCode.INVALID_ARGUMENT, ToolFailedError, "answered with status INVALID_ARGUMENT"),
        (grpc.StatusCode.UNKNOWN, ToolFailedError, "answered with status UNKNOWN"),
        (grpc.StatusCode.CANCELLED, ToolFailedError, "answered with status CANCELLED"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, ToolFailedError, "is overloaded"),
    ],
)
async def test_a_status_becomes_an_error_without_its_text(
    code: grpc.StatusCode, kind: type[MnemonError], message: str
) -> None:
    with pytest.raises(kind, match=message) as caught:
        await asked(ending(code))
    assert type(caught.value) is kind
    assert "'weather'" in str(caught.value)
    assert UNTOLD not in str(caught.value)


async def test_a_crashing_service_becomes_an_error_without_its_text() -> None:
    async def answer(request: pb.ProvideToolRequest, context: Any) -> str:
        raise RuntimeError(UNTOLD)

    with pytest.raises(ToolFailedError) as caught:
        await asked(answer)
    assert UNTOLD not in str(caught.value)


async def test_a_call_without_an_answer_in_time_is_abandoned() -> None:
    ended = asyncio.Event()

    async def answer(request: pb.ProvideToolRequest, context: Any) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    with pytest.raises(ToolUnreachableError, match=r"did not answer within 0\.2 s"):
        await asked(answer, timeout_s=0.2)
    async with asyncio.timeout(60):
        await ended.wait()


async def test_a_missing_service_is_reported_at_once_and_used_again_once_it_is_back() -> None:
    port = HeldPort()
    async with endpoint(port.address) as opened:
        with pytest.raises(ToolUnreachableError, match="cannot be reached"):
            await opened.call("weather", {}, (), "")

        async def answers() -> bool:
            try:
                return await opened.call("weather", {}, (), "") == "this is weather"
            except ToolUnreachableError:
                return False

        async with tool_provider(echo, port.address):
            await eventually(answers)


async def test_a_plaintext_service_does_not_count_as_one_with_tls() -> None:
    async with tool_provider() as provider, endpoint(provider.address, tls=True) as opened:
        with pytest.raises(ToolUnreachableError):
            await opened.call("weather", {}, (), "")
    assert provider.received == []


async def test_a_proxy_in_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert await asked(saying("sunny")) == "sunny"
