"""Extractors of conversations that a test scripts: an OpenAI-compatible model over HTTP, and a service over gRPC."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from grpc import aio
from mnemon.v1 import extractor_pb2 as pb
from mnemon.v1 import extractor_pb2_grpc

from tests.support.tool_endpoints import Answer, Received, RecordingHandler, saying

Script = Callable[[Mapping[str, Any]], Any]
"""Makes the answer to a request to the model: an object to send as JSON, or a text to send unchanged."""
PROBE = "Hello! I like tea."
"""The message by which the server finds out whether an extractor answers at all."""


def asked_of(request: Received) -> dict[str, Any]:
    """What the model was asked."""
    return json.loads(request.arguments["messages"][-1]["content"])  # type: ignore[no-any-return]


def said_in(asked: Mapping[str, Any]) -> list[str]:
    """The contents of the messages to extract from."""
    return [message["content"] for message in asked["messages"]]


def chat(content: Any, **more: Any) -> str:
    """The answer of a chat model."""
    text = content if isinstance(content, str) else json.dumps(content)
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}], **more})


def model(script: Script, **more: Any) -> Answer:
    """A model that answers by a script."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        assert isinstance(handler, RecordingHandler)
        said = script(asked_of(handler.request_received))
        saying(chat(said, **more), content_type="application/json")(handler)

    return answer


def statement(content: str, messages: Sequence[int] = (1,), **more: Any) -> dict[str, Any]:
    """A statement of a model's answer."""
    fields = {"importance": 0.5, "valid_time": None, "updates": None}
    return {"content": content, "messages": list(messages), **fields, **more}


def repeating(asked: Mapping[str, Any]) -> Any:
    """One statement for each message, which says the same."""
    found = [statement(text, [number]) for number, text in enumerate(said_in(asked), 1)]
    return {"statements": found, "summary": None}


ServiceAnswer = Callable[[pb.ExtractStatementsRequest, Any], Awaitable[pb.ExtractStatementsResponse]]


@dataclass
class ExtractorService(extractor_pb2_grpc.ExtractorServiceServicer):
    """The service. `answer` returns the answer, or ends the call with a status."""

    answer: ServiceAnswer
    address: str = ""
    received: list[pb.ExtractStatementsRequest] = field(default_factory=list)
    credentials: list[str] = field(default_factory=list)

    async def ExtractStatements(  # noqa: N802
        self, request: pb.ExtractStatementsRequest, context: Any
    ) -> pb.ExtractStatementsResponse:
        """See the proto."""
        self.received.append(request)
        self.credentials.append(dict(context.invocation_metadata()).get("authorization", ""))
        return await self.answer(request, context)


async def repeat(request: pb.ExtractStatementsRequest, context: Any) -> pb.ExtractStatementsResponse:
    """One statement for each message, which says the same."""
    statements = [{"content": each.content, "message_ids": [each.message_id]} for each in request.messages]
    return pb.ExtractStatementsResponse(statements=statements)


@asynccontextmanager
async def extractor_service(
    answer: ServiceAnswer = repeat, address: str = "127.0.0.1:0"
) -> AsyncIterator[ExtractorService]:
    """Serves on a free port of loopback, or at an address."""
    service = ExtractorService(answer)
    server = aio.server(options=[("grpc.so_reuseport", 0)])
    extractor_pb2_grpc.add_ExtractorServiceServicer_to_server(service, server)
    port = server.add_insecure_port(address)
    service.address = f"127.0.0.1:{port}"
    await server.start()
    try:
        yield service
    finally:
        await server.stop(None)
