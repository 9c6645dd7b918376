"""Previews of what an extractor would make of messages, and what is refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mnemon
import pytest
from mnemon.v1 import bridge_pb2 as pb

from tests.support.extraction_calls import connect, extraction, known, say, settings_for, turn_on
from tests.support.extractors import chat, model, repeating, statement
from tests.support.server import whole_server
from tests.support.tool_endpoints import saying, tool_server


async def test_a_preview_shows_what_a_save_would_do_and_saves_nothing(tmp_path: Path) -> None:
    def script(asked: Mapping[str, Any]) -> Any:
        numbers = {each["content"]: each["number"] for each in asked["known"]}
        said = [
            statement("Ada likes tea."),
            statement("Ada lives in Bergen now.", updates=numbers.get("Ada lives in Oslo now.")),
            statement("Ada has a dog."),
        ]
        return {"statements": said, "summary": "Ada tells of herself."}

    with tool_server(model(script, usage={"total_tokens": 9})) as served:
        async with whole_server(tmp_path, **settings_for(served.port)) as server, connect(server) as client:
            tea = await client.semantic.add("Ada likes tea.", user="ada")
            oslo = await client.semantic.add("Ada lives in Oslo now.", user="ada", importance=0.5)
            before = [each.sequence async for each in client.changes.list()]
            turns = [{"role": "user", "content": "I live in Bergen now, with a dog, and like tea."}]
            preview = await client.bridge.preview_extraction(user="ada", messages=turns)
            duplicate, update, new = preview.statements
            assert (duplicate.duplicate, duplicate.memory.memory_id) == (True, tea.memory.memory_id)
            assert update.updates == oslo.memory.memory_id
            assert update.decision is not None
            assert (update.decision.existing_id, update.decision.relation.judge) == (oslo.memory.memory_id, "scripted")
            assert (update.decision.decision_id, update.decision.candidate_id, update.memory.memory_id) == ("", "", "")
            assert (update.memory.content, update.memory.importance) == ("Ada lives in Bergen now.", 0.5)
            assert (new.decision, new.duplicate, new.memory.user) == (None, False, "ada")
            assert (preview.summary, preview.message_count, preview.token_count) == ("Ada tells of herself.", 1, 9)
            assert {*await known(client)} == {"Ada likes tea.", "Ada lives in Oslo now."}
            assert [each.sequence async for each in client.changes.list()] == before
            await say(client, "stored")
            stored = await client.bridge.preview_extraction(user="ada", conversation_id="c1")
            assert [*stored.statements[2].message_ids] == [
                each.event_id async for each in client.conversations.messages("c1", user="ada")
            ]
            served.answer = model(lambda _: "nonsense")
            refused = await client.bridge.preview_extraction(user="ada", messages=turns)
            assert (refused.refusal, refused.refusal_message, refused.statements) == ("not_json", "it is not JSON", ())


async def test_what_is_wrong_with_a_preview_or_a_policy_is_told(tmp_path: Path) -> None:
    async with whole_server(tmp_path) as server, connect(server) as client:
        turns = [{"role": "user", "content": "Hello"}]
        with pytest.raises(mnemon.InvalidArgumentError) as refused:
            await client.bridge.preview_extraction(messages=turns, conversation_id="c1", last=201)
        assert {each.field for each in refused.value.violations} == {"scope.user", "conversation_id", "last"}
        with pytest.raises(mnemon.ConfigurationError, match="extract_endpoint is empty"):
            await client.bridge.preview_extraction(user="ada", messages=turns)
        with pytest.raises(mnemon.InvalidArgumentError, match="this server has no extract_service"):
            await client.bridge.update_policy(extract="service")
        request = pb.UpdateRoutingPolicyRequest(policy={"extract": 9}, update_mask={"paths": ["extract"]})
        with pytest.raises(Exception, match=r"policy\.extract"):
            await server.bridge.UpdateRoutingPolicy(request)
    with tool_server(saying("{}", 503)) as served:
        async with whole_server(tmp_path, **settings_for(served.port)) as server, connect(server) as client:
            with pytest.raises(mnemon.ToolUnreachableError, match="status 503"):
                await client.bridge.preview_extraction(user="ada", messages=turns)
            nothing = await client.bridge.preview_extraction(user="ada", conversation_id="none")
            assert (nothing.message_count, nothing.statements) == (0, ())
    # Without the setting, what the policy asks for waits.
    with tool_server(model(repeating)) as served:
        async with whole_server(tmp_path, **settings_for(served.port)) as server, connect(server) as client:
            await turn_on(client)
    async with whole_server(tmp_path) as server, connect(server) as client:
        await say(client, "one")
        assert "no extract_endpoint" in (await extraction(client)).message


async def test_the_answer_of_a_chat_endpoint_that_is_none_is_refused(tmp_path: Path) -> None:
    for number, answer in enumerate((saying("<html>"), saying("{}"), saying(chat({})[:-20]))):
        with tool_server(answer) as served:
            async with (
                whole_server(tmp_path / f"{number}", **settings_for(served.port)) as server,
                connect(server) as client,
            ):
                preview = await client.bridge.preview_extraction(
                    user="ada", messages=[{"role": "user", "content": "Hi"}]
                )
                assert preview.refusal in ("not_json", "wrong_shape")
