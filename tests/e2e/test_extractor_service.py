"""Statements of conversations by an operator's own gRPC service."""

from pathlib import Path
from typing import Any

import grpc
import mnemon
import pytest
from mnemon.v1 import extractor_pb2 as pb
from mnemon_server.domain.errors import ConfigurationError

from tests.support.extractors import PROBE, ExtractorService, extractor_service, repeat
from tests.support.server import Connection, eventually, whole_server


def settings_for(service: ExtractorService, **settings: Any) -> dict[str, Any]:
    """Settings of a server whose extractor is this service."""
    return {"extract_service": service.address, "extract_quiet_s": 0.0, "extract_retry_s": 0.01, **settings}


def connect(server: Connection) -> mnemon.AsyncClient:
    return mnemon.AsyncClient(str(server.server.address))


async def say(client: mnemon.AsyncClient, *texts: str, to: str = "c1") -> list[str]:
    turns = [{"role": "user", "content": text, "name": "Ann"} for text in texts]
    return [each.event_id for each in await client.conversations.append(to, turns, user="ada", persona="home")]


async def until_known(client: mnemon.AsyncClient, contents: set[str]) -> None:
    async def is_so() -> bool:
        return {each.content async for each in client.semantic.list(user="ada")} == contents

    await eventually(is_so)


async def test_a_service_gets_the_conversation_with_its_key_and_its_answer_is_saved(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("sesame\n")
    key.chmod(0o600)

    async def answer(request: pb.ExtractStatementsRequest, context: Any) -> pb.ExtractStatementsResponse:
        ids = [each.message_id for each in request.messages]
        made = {"content": "Ada moved to Oslo.", "importance": 0.7, "message_ids": ids}
        made["valid_time"] = "2026-03-01T00:00:00Z"
        message = pb.ExtractStatementsResponse(summary="About Oslo.", token_count=77)
        message.statements.add(content=made["content"], importance=0.7, message_ids=ids).valid_time.FromJsonString(
            made["valid_time"]
        )
        return message

    async with extractor_service(answer) as service:
        settings = settings_for(service, extract_service_key_file=key)
        async with whole_server(tmp_path / "data", **settings) as server, connect(server) as client:
            await client.bridge.update_policy(extract="service")
            ids = await say(client, "I moved", "to Oslo")
            await until_known(client, {"Ada moved to Oslo."})
            [memory] = [each async for each in client.semantic.list(user="ada")]
            assert (memory.persona, memory.importance) == ("home", 0.7)
            assert memory.metadata["episodic_event_ids"] == ids
            assert memory.metadata["valid_time"].isoformat() == "2026-03-01T00:00:00+00:00"
            found = (await client.bridge.status()).extraction
            assert found is not None
            assert (found.call_count, found.token_count, found.extracted_count) == (1, 77, 2)
            [request] = service.received
            assert (request.scope.user, request.conversation_id) == ("ada", "c1")
            assert [(each.role, each.name, each.content) for each in request.messages] == [
                ("user", "Ann", "I moved"),
                ("user", "Ann", "to Oslo"),
            ]
            assert service.credentials == ["Bearer sesame"]
            await say(client, "Oslo is fine.")

            async def is_asked() -> bool:
                return len(service.received) == 2

            await eventually(is_asked)
            again = service.received[1]
            assert [each.content for each in again.earlier_messages] == ["I moved", "to Oslo"]
            assert again.summary == "About Oslo."
            assert [each.memory_id for each in again.known_statements] == [memory.memory_id]


@pytest.mark.parametrize(
    ("reason", "response"),
    [
        ("unknown_id", {"statements": [{"content": "Ada has a boat.", "message_ids": ["another"]}]}),
        ("unknown_id", {"statements": [{"content": "Ada has a boat."}]}),
        ("too_long", {"statements": [{"content": "boat " * 1_000, "message_ids": ["?"]}]}),
        ("wrong_shape", {"statements": [{"content": " ", "message_ids": ["?"]}]}),
        ("wrong_shape", {"statements": [{"content": "x", "importance": float("nan"), "message_ids": ["?"]}]}),
        ("rejected", grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
async def test_what_a_service_answers_wrongly_is_told_and_given_up(tmp_path: Path, reason: str, response: Any) -> None:
    async def answer(request: pb.ExtractStatementsRequest, context: Any) -> pb.ExtractStatementsResponse:
        if request.messages[0].content in (PROBE, "fine"):
            return await repeat(request, context)
        if isinstance(response, grpc.StatusCode):
            await context.abort(response)
        message = pb.ExtractStatementsResponse(**response)
        for each in message.statements:
            if each.message_ids == ["?"]:
                each.message_ids[:] = [request.messages[0].message_id]
        return message

    async with extractor_service(answer) as service:
        settings = settings_for(service, extract_attempts_max=2)
        async with whole_server(tmp_path, **settings) as server, connect(server) as client:
            await client.bridge.update_policy(extract="service")
            await say(client, "nonsense")
            await say(client, "fine", to="c2")

            async def is_given_up() -> bool:
                return (await client.bridge.status()).skipped_counts == {"not_extracted": 1}

            await eventually(is_given_up)
            await until_known(client, {"fine"})
            found = (await client.bridge.status()).extraction
            assert found is not None
            assert (found.refused_counts, found.waiting_count) == ({reason: 2}, 0)
            refusals = [each.refusal_message for each in service.received if each.messages[0].content == "nonsense"]
            assert refusals[0] == "" and refusals[1]


@pytest.mark.parametrize(
    "status", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INTERNAL]
)
async def test_a_service_that_fails_or_is_away_delays_and_loses_nothing(
    tmp_path: Path, status: grpc.StatusCode
) -> None:
    async def failing(request: pb.ExtractStatementsRequest, context: Any) -> pb.ExtractStatementsResponse:
        await context.abort(status)
        raise AssertionError

    async with extractor_service(failing) as service:
        settings = settings_for(service, extract_attempts_max=1)
        async with whole_server(tmp_path, **settings) as server, connect(server) as client:
            await client.bridge.update_policy(extract="service")
            await say(client, "one")

            async def is_told() -> bool:
                status = await client.bridge.status()
                return status.state == "degraded" and "the extractor's service" in status.message

            await eventually(is_told)
            service.answer = repeat
            await until_known(client, {"one"})

            async def is_counted() -> bool:
                # A moment after the statement.
                found = (await client.bridge.status()).extraction
                return found is not None and (found.extracted_count, found.refused_counts) == (1, {})

            await eventually(is_counted)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"extract_endpoint": "http://127.0.0.1:1/v1"}, "needs extract_model"),
        ({"extract_endpoint": "localhost", "extract_model": "m"}, "is not the URL of an endpoint"),
        (
            {"extract_endpoint": "http://127.0.0.1:1/v1", "extract_model": "m", "extract_prompt_file": Path("none")},
            "read",
        ),
        ({"extract_service": "extractor"}, "is not an address"),
        ({"extract_service": "unix:extractor"}, "must be HOST:PORT"),
        ({"extract_service": "example.com:1", "extract_service_key_file": Path("key")}, "others could read the key"),
    ],
)
async def test_invalid_settings_are_refused_at_the_start(tmp_path: Path, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        async with whole_server(tmp_path, **settings):
            pass
