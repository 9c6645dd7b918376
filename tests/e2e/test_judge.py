"""A server with a judge of conflicts, which answers by a script, is away, slow, or answers nonsense."""

import asyncio
import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import mnemon
import pytest
from mnemon_server.domain.errors import ConfigurationError

from tests.support.server import Connection, whole_server
from tests.support.tool_endpoints import Answer, RecordingHandler, saying, tool_server

DETECTION = {"detection": {"signals": ["relation"], "required_signals": ["relation"]}}
KNOWN, NEW = "Ada is an only child.", "Ada's sister came to visit."
"""The relation model takes them for unrelated."""
REASON = "the Volvo was sold"


def judging(relation: str = "contradicts", confidence: float = 0.9) -> Answer:
    """Answers that all pairs have this relation."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        assert isinstance(handler, RecordingHandler)
        pairs = json.loads(handler.request_received.arguments["messages"][-1]["content"])
        answers = [
            {"pair": pair["pair"], "relation": relation, "confidence": confidence, "reason": REASON} for pair in pairs
        ]
        saying(chat({"answers": answers}), content_type="application/json")(handler)

    return answer


def chat(content: Any) -> str:
    """The answer of a chat model."""
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": json.dumps(content)}}]})


def settings_for(port: int, **settings: Any) -> dict[str, Any]:
    """Settings of a server whose judge is there."""
    return {"judge_endpoint": f"http://127.0.0.1:{port}/v1", "judge_model": "scripted", **settings}


def connect(server: Connection) -> mnemon.AsyncClient:
    return mnemon.AsyncClient(str(server.server.address))


async def save(
    client: mnemon.AsyncClient, content: str, cosine: float = 1.0, *, rule: str = "", request_id: str = ""
) -> Any:
    """Saves a statement whose embedding has this cosine to that of the others."""
    dimension = (await client.server_info()).embedding_model.dimension
    embedding = [cosine, (1.0 - cosine * cosine) ** 0.5, *[0.0] * (dimension - 2)]
    return await client.semantic.add(
        content, user="ada", embedding=embedding, conflict_policy="resolve", rule=rule, request_id=request_id
    )


async def save_both(client: mnemon.AsyncClient) -> Any:
    """Saves the two statements; returns the answer to the second."""
    await save(client, KNOWN)
    return await save(client, NEW, 0.4)


async def test_the_judge_decides_and_its_answer_is_kept_with_the_decision(tmp_path: Path) -> None:
    with tool_server(judging()) as served:
        async with whole_server(tmp_path, **settings_for(served.port)) as server, connect(server) as client:
            await client.rules.update("default", DETECTION)
            await save(client, KNOWN)
            assert served.received == []  # the index proposed nothing
            saved = await save(client, NEW, 0.4)
            assert saved.decision is not None
            expected = mnemon.StatementRelation(mnemon.RelationType.CONTRADICTS, 0.9, "scripted", REASON)
            assert saved.decision.relation == expected
            [kept] = [each async for each in client.conflicts.list_decisions(user="ada")]
            assert kept.relation == expected
            [request] = served.received
            assert request.arguments["model"] == "scripted"
            asked = json.loads(request.arguments["messages"][-1]["content"])
            assert asked == [{"pair": 0, "known": KNOWN, "new": NEW}]
            # The log outlives the statements, so it has no words of the judge.
            changes = [each async for each in client.changes.list()]
            assert any("conflict" in change.type for change in changes)
            assert REASON not in str(changes)


@pytest.mark.parametrize(("confidence", "detection"), [(0.9, DETECTION), (0.2, DETECTION), (0.6, {})])
async def test_the_judge_may_say_that_statements_are_unrelated(
    tmp_path: Path, confidence: float, detection: dict[str, Any]
) -> None:
    with tool_server(judging("unrelated", confidence)) as served:
        async with whole_server(tmp_path, **settings_for(served.port)) as server, connect(server) as client:
            await client.rules.update("default", detection)
            await save(client, "Ada drinks milk.")
            assert (await save(client, "Ada never drinks milk.", 0.9)).decision is None
            assert len(served.received) == 1
            assert len([each async for each in client.semantic.list()]) == 2


async def test_a_repeated_request_gets_the_decision_that_was_made_and_asks_nobody(tmp_path: Path) -> None:
    with tool_server(judging()) as served:
        async with whole_server(tmp_path, **settings_for(served.port)) as server, connect(server) as client:
            await client.rules.update("default", DETECTION)
            await save(client, KNOWN)
            first = await save(client, NEW, 0.4, request_id="r1")
            served.answer = judging("unrelated")
            again = await save(client, NEW, 0.4, request_id="r1")
            assert (again.decision, again.receipt.replayed) == (first.decision, True)
            assert first.decision.relation.judge == "scripted"
            assert len(served.received) == 1


async def test_the_judge_is_not_asked_where_its_answer_would_decide_nothing(tmp_path: Path) -> None:
    with tool_server(judging()) as served:
        async with whole_server(tmp_path, **settings_for(served.port)) as server, connect(server) as client:
            await save(client, KNOWN)
            await client.rules.update("default", {"detection": {"signals": ["semantic", "keyword"]}})
            assert (await save(client, NEW, 0.4)).decision is None
            await client.rules.update("default", DETECTION)
            assert (await save(client, KNOWN)).duplicate
            await save(client, "Ada likes boats.", -1.0)  # nothing is similar
            await client.semantic.add("Ada drives.", user="ada")  # conflicts are ignored
            assert served.received == []


@pytest.mark.parametrize(
    "answer",
    [
        saying("{}", 401),
        saying("<html>"),
        saying(chat({"answers": [{"pair": 0, "relation": "perhaps", "confidence": 1}]})),
        saying(chat({"answers": [{"pair": 0, "relation": "same", "confidence": 7}]})),
        saying(chat({"answers": [{"pair": 0, "relation": "same"}]})),
        saying(chat({"answers": [{"pair": 9, "relation": "same", "confidence": 1}]})),
        saying(chat({"answers": {}})),
        saying(chat(None)),
        saying('{"choices": []}'),
    ],
)
async def test_without_a_usable_answer_the_relation_model_decides(tmp_path: Path, answer: Answer) -> None:
    with tool_server(answer) as served:
        async with whole_server(tmp_path, **settings_for(served.port)) as server, connect(server) as client:
            await client.rules.update("default", DETECTION)
            assert (await save_both(client)).decision is None
            saved = await save(client, "Ada never drives to the office.")
            assert saved.decision is not None
            assert saved.decision.relation.judge == ""
            assert (await client.semantic.status()).judge_failed_count == 2


async def test_a_slow_judge_delays_a_save_until_its_time_and_other_writes_not_at_all(tmp_path: Path) -> None:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    with tool_server(judging()) as served:

        def hang(handler: BaseHTTPRequestHandler) -> None:
            loop.call_soon_threadsafe(asked.set)
            served.ended.wait()
            handler.close_connection = True

        served.answer = hang
        settings = settings_for(served.port, judge_timeout_s=4.0)
        async with whole_server(tmp_path, **settings) as server, connect(server) as client:
            await client.rules.update("default", DETECTION)
            await save(client, KNOWN)
            waiting = asyncio.create_task(save(client, NEW, 0.4))
            await asked.wait()
            await client.semantic.add("Ada likes boats.", user="ada")
            assert not waiting.done()
            assert (await waiting).decision is None
            served.ended.set()


async def test_beyond_its_budget_the_judge_is_not_asked(tmp_path: Path) -> None:
    with tool_server(judging("unrelated")) as served:
        settings = settings_for(served.port, judge_calls_per_minute=1.0, judge_pairs_max=2)
        async with whole_server(tmp_path, **settings) as server, connect(server) as client:
            for number in range(4):
                await client.semantic.add(
                    f"{KNOWN} {number}", user="ada", embedding=[1.0, *[0.0] * (await _rest(client))]
                )
            await client.rules.update("default", DETECTION)
            await save(client, NEW, 0.9)
            await save(client, "Ada walks.", 0.9)
            [request] = served.received
            assert len(json.loads(request.arguments["messages"][-1]["content"])) == 2


async def _rest(client: mnemon.AsyncClient) -> int:
    return (await client.server_info()).embedding_model.dimension - 1


async def test_a_preview_asks_the_judge_as_the_save_would(tmp_path: Path) -> None:
    with tool_server(judging("updates")) as served:
        async with whole_server(tmp_path, **settings_for(served.port)) as server, connect(server) as client:
            await client.rules.update("default", DETECTION)
            await save(client, KNOWN)
            vector = (0.4, 0.9165, *[0.0] * (await _rest(client) - 1))
            statement = mnemon.SemanticMemory(NEW, user="ada", embedding=vector)
            preview = await client.conflicts.preview(statement)
            assert preview.decision is not None
            assert preview.decision.relation.judge == "scripted"
            assert [each async for each in client.conflicts.list_decisions(user="ada")] == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"judge_endpoint": "http://127.0.0.1:1/v1"}, "needs judge_model"),
        ({"judge_endpoint": "localhost", "judge_model": "m"}, "is not the URL of an endpoint"),
    ],
)
async def test_invalid_settings_are_refused_at_the_start(tmp_path: Path, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        async with whole_server(tmp_path, **settings):
            pass
