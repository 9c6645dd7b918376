"""Statements of conversations by a scripted model: slow, wrong, away, or talking nonsense."""

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import mnemon
import pytest

from tests.support.extraction_calls import connect, extraction, known, say, settings_for, turn_on, until_known
from tests.support.extractors import PROBE, asked_of, model, repeating, said_in, statement
from tests.support.server import eventually, until, whole_server
from tests.support.tool_endpoints import Answer, RecordingHandler, saying, tool_server


async def test_messages_become_statements_of_their_user_that_go_with_them(tmp_path: Path) -> None:
    answer = {
        "statements": [
            statement("Ada moved to Oslo.", [1, 2], importance=0.8, valid_time="2026-03-01T00:00:00+01:00"),
            # A statement belongs to the user of the messages, even if the answer names another.
            statement("Ada has a cat.", [2], scope={"user": "bob"}, user="bob"),
        ],
        "summary": "Ada tells of her move.",
    }
    with tool_server(model(lambda _: answer, usage={"total_tokens": 321})) as served:
        async with whole_server(tmp_path, **settings_for(served.port)) as server, connect(server) as client:
            await turn_on(client)
            first, second = await say(client, "I moved to Oslo.", "With my cat.", persona="home", project="p")
            status = await extraction(client)
            assert (status.extracted_count, status.statement_count, status.waiting_count) == (2, 2, 0)
            assert (status.call_count, status.token_count, status.message) == (1, 321, "")
            moved, cat = (await known(client))["Ada moved to Oslo."], (await known(client))["Ada has a cat."]
            assert (
                (moved.user, moved.persona, moved.project)
                == ("ada", "home", "p")
                == (cat.user, cat.persona, cat.project)
            )
            assert (moved.importance, moved.source) == (0.8, "conversation")
            assert moved.metadata["episodic_event_ids"] == [first, second]
            assert moved.metadata["valid_time"].isoformat() == "2026-02-28T23:00:00+00:00"
            context = await client.conversations.context("c1", user="ada", persona="home", project="p")
            assert context.summary == "Ada tells of her move."
            [request] = served.received
            assert request.arguments["response_format"]["json_schema"]["strict"] is True
            assert request.arguments["messages"][0]["role"] == "system"
            # Neither ids nor names of users leave the server.
            assert not {"ada", first} & set(str(asked_of(request)).replace("'", " ").split())
            # A statement stands as long as one of its messages does.
            await client.timeline.delete_many([second])
            await until_known(client, {"Ada moved to Oslo."})
            await client.timeline.delete_many([first])
            await until_known(client, set())


async def test_a_batch_has_earlier_turns_the_summary_and_what_is_known_and_corrections_become_updates(
    tmp_path: Path,
) -> None:
    def script(asked: Mapping[str, Any]) -> Any:
        if "Oslo" in str(asked["messages"]):
            return {"statements": [statement("Ada lives in Oslo now.", importance=0.9)], "summary": "About Oslo."}
        [old] = [each["number"] for each in asked["known"] if each["content"] == "Ada lives in Oslo now."]
        return {"statements": [statement("Ada lives in Bergen now.", importance=0.2, updates=old)], "summary": None}

    with tool_server(model(script)) as served:
        async with whole_server(tmp_path, **settings_for(served.port)) as server, connect(server) as client:
            await turn_on(client)
            await say(client, "I live in Oslo.", persona="home")
            await extraction(client)
            await say(client, "Something else, in another persona.", persona="work")
            await say(client, "No: I live in Bergen now.", persona="home")

            async def is_updated() -> bool:
                return {*await known(client)} == {"Ada lives in Bergen now."}

            await eventually(is_updated)
            asked = next(asked_of(each) for each in served.received if "Bergen" in str(asked_of(each)["messages"]))
            assert [each["content"] for each in asked["earlier"]] == ["I live in Oslo."]
            assert asked["summary"] == "About Oslo."
            [decision] = [each async for each in client.conflicts.list_decisions(user="ada")]
            assert decision.relation is not None
            assert (decision.relation.type, decision.relation.judge) == ("updates", "scripted")
            # A correction does not lose because the model found it less important.
            assert (await known(client))["Ada lives in Bergen now."].importance == 0.9


async def test_what_is_made_of_messages_is_trusted_as_the_least_trusted_of_them(tmp_path: Path) -> None:
    def script(asked: Mapping[str, Any]) -> Any:
        # The last message of each batch is the statement that is made of it.
        return {"statements": [statement(asked["messages"][-1]["content"], [1])], "summary": "A summary."}

    with tool_server(model(script)) as served:
        async with whole_server(tmp_path, **settings_for(served.port)) as server, connect(server) as client:
            await turn_on(client)
            for said, origin in (
                ("Ada likes tea.", "user"),
                ("Trains to Rome leave at nine.", "web"),
                ("Her cat is called Momo.", "user"),
            ):
                turn = {"role": "user", "content": said}
                await client.conversations.append("c1", [turn], user="ada", origin=origin, origin_name=f"{origin} x")
                await extraction(client)
            found = {content: (each.origin, each.origin_name) for content, each in (await known(client)).items()}
            assert found["Trains to Rome leave at nine."] == ("web", "web x")
            # The third batch was read after the second, so that it may repeat what that said.
            assert found["Her cat is called Momo."] == ("web", "web x")
            summaries = client.timeline.list(user="ada", event_types=["summary"])
            assert [each.origin async for each in summaries] == ["web", "web", "user"]
            shown = [[each["content"] for each in asked_of(each)["known"]] for each in served.received]
            assert "Trains to Rome leave at nine." not in shown[1]


async def test_what_is_trusted_less_does_not_confirm_a_statement(tmp_path: Path) -> None:
    with tool_server(model(lambda _: {"statements": [statement("Ada likes tea.", [1])], "summary": None})) as served:
        async with whole_server(tmp_path, **settings_for(served.port)) as server, connect(server) as client:
            await turn_on(client)
            told = []
            for origin in ("user", "web"):
                turn = {"role": "user", "content": f"{origin}: she likes tea."}
                [receipt] = await client.conversations.append(f"c-{origin}", [turn], user="ada", origin=origin)
                told.append(receipt.event_id)
                await extraction(client)
            await client.semantic.add("Ada likes tea.", user="ada", origin="web")
            found = (await known(client))["Ada likes tea."]
            assert (found.origin, found.metadata["episodic_event_ids"]) == ("user", told[:1])
            # It goes with the message that it was made of: nothing else stood for it.
            await client.timeline.delete_many(told[:1])
            await until_known(client, set())


def wrong(**changes: Any) -> dict[str, Any]:
    return {"statements": [{**statement("Ada likes boats."), **changes}], "summary": None}


NONSENSE: list[tuple[str, Any]] = [
    ("not_json", "Sure! Here are the statements."),
    ("not_json", "[" * 100_000),
    ("wrong_shape", []),
    ("wrong_shape", {"statements": {}}),
    ("wrong_shape", {"statements": [{"content": "Ada"}]}),
    ("wrong_shape", wrong(content=7)),
    ("wrong_shape", wrong(content=" ")),
    ("wrong_shape", wrong(content="\ud800")),
    ("wrong_shape", wrong(importance=3)),
    ("wrong_shape", wrong(messages=["1"])),
    ("wrong_shape", {"statements": [], "summary": 5}),
    ("unknown_id", wrong(messages=[2])),
    ("unknown_id", wrong(messages=[0])),
    ("unknown_id", wrong(messages=[])),
    ("unknown_id", wrong(updates=99)),
    ("too_long", wrong(content="boats " * 1_000)),
    ("too_long", {"statements": [statement(f"Ada has boat {n}.") for n in range(60)], "summary": None}),
    ("too_long", {"statements": [], "summary": "s" * 5_000}),
]


async def test_nonsense_is_told_retried_and_given_up_while_other_conversations_go_on(tmp_path: Path) -> None:
    """The model answers about most conversations with one kind of nonsense each, and about the last one well."""

    def script(asked: Mapping[str, Any]) -> Any:
        [said] = said_in(asked)
        if said in ("secret fine", PROBE):
            return repeating(asked)
        return NONSENSE[int(said.removeprefix("secret "))][1]

    with tool_server(model(script)) as served:
        settings = settings_for(served.port, extract_attempts_max=2, extract_calls_max=8)
        async with whole_server(tmp_path, **settings) as server, connect(server) as client:
            await turn_on(client)
            for number in range(len(NONSENSE)):
                await say(client, f"secret {number}", to=f"c{number}")
            await say(client, "secret fine", to="fine")
            status = await extraction(client)
            expected: dict[str, int] = {}
            for reason, _ in NONSENSE:
                expected[reason] = expected.get(reason, 0) + 2
            assert status.refused_counts == expected
            assert (status.extracted_count, status.statement_count) == (1, 1)
            assert (await client.bridge.status()).skipped_counts["not_extracted"] == len(NONSENSE)
            assert {*await known(client)} == {"secret fine"}
            # The messages are still there, and the next attempt includes the error.
            assert (await client.timeline.status()).event_count == len(NONSENSE) + 1
            of_first = [asked_of(each) for each in served.received if "secret 0" in str(asked_of(each)["messages"])]
            assert [each["refusal"] for each in of_first] == [None, "it is not JSON"]


async def test_an_extractor_that_answers_nothing_correctly_gives_up_no_messages(tmp_path: Path) -> None:
    with tool_server(model(lambda _: "nonsense")) as served:
        settings = settings_for(served.port, extract_attempts_max=2)
        async with whole_server(tmp_path, **settings) as server, connect(server) as client:
            await turn_on(client)
            await say(client, "I moved to Oslo.")
            status = await extraction(client)
            assert "not even about a harmless message: it is not JSON" in status.message
            assert (status.waiting_count, status.extracted_count, status.refused_counts) == (1, 0, {"not_json": 1})
            served.answer = model(repeating)
            await until_known(client, {"I moved to Oslo."})
            assert (await extraction(client)).waiting_count == 0


def refusing(status: int) -> Answer:
    """Refuses everything but the harmless message."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        assert isinstance(handler, RecordingHandler)
        if said_in(asked_of(handler.request_received)) == [PROBE]:
            model(repeating)(handler)
        else:
            saying("{}", status, "application/json")(handler)

    return answer


async def test_what_the_endpoint_itself_rejects_is_given_up_and_wrong_keys_are_not(tmp_path: Path) -> None:
    with tool_server(refusing(401)) as served:
        settings = settings_for(served.port, extract_attempts_max=2)
        async with whole_server(tmp_path, **settings) as server, connect(server) as client:
            await turn_on(client)
            await say(client, "one")
            status = await extraction(client)
            assert "status 401" in status.message
            assert (status.waiting_count, status.refused_counts) == (1, {})
            served.answer = refusing(400)

            async def is_given_up() -> bool:
                return (await client.bridge.status()).skipped_counts == {"not_extracted": 1}

            await eventually(is_given_up)
            assert (await extraction(client)).refused_counts == {"rejected": 2}


async def test_an_extractor_that_is_away_delays_and_loses_nothing(tmp_path: Path) -> None:
    with tool_server(model(repeating)) as served:
        port = served.port
    async with whole_server(tmp_path, **settings_for(port)) as server, connect(server) as client:
        await turn_on(client)
        await say(client, "one")
        await say(client, "two", to="c2")
        # All other events are handled in the meantime.
        await client.timeline.add("task", "Ada must call the bank.", user="ada", importance=0.9)
        await until_known(client, {"Ada must call the bank."})
        status = await client.bridge.status()
        assert status.extraction is not None
        assert status.extraction.waiting_count == 2

        async def is_told() -> bool:
            status = await client.bridge.status()
            return status.state == "degraded" and "the extractor cannot be reached" in status.message

        await eventually(is_told)
    async with whole_server(tmp_path, **settings_for(port)) as server, connect(server) as client:
        with tool_server(model(repeating), port) as served:
            await until_known(client, {"Ada must call the bank.", "one", "two"})
            found = await extraction(client)
            assert (found.extracted_count, found.statement_count, found.refused_counts) == (2, 2, {})
            assert (await client.bridge.status()).state == "ready"


async def test_a_slow_extractor_is_late_and_holds_nothing_up(tmp_path: Path) -> None:
    with tool_server(lambda _: served.ended.wait() and None) as served:
        settings = settings_for(served.port, extract_timeout_s=0.3)
        async with whole_server(tmp_path, **settings) as server, connect(server) as client:
            await turn_on(client)
            await say(client, "one")
            await client.timeline.add("task", "Ada must call the bank.", user="ada", importance=0.9)
            await until_known(client, {"Ada must call the bank."})
            assert "did not answer within 0.3 s" in (await extraction(client)).message
            served.answer = model(repeating)
            await until_known(client, {"Ada must call the bank.", "one"})
            served.ended.set()


def gated(gate: threading.Event, asked: threading.Event, script: Callable[[Mapping[str, Any]], Any]) -> Answer:
    """A model that answers once the gate is open, and tells that it was asked."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.set()
        gate.wait(60)
        model(script)(handler)

    return answer


async def test_what_is_pruned_while_it_is_with_the_extractor_becomes_no_statement(tmp_path: Path) -> None:
    gate, asked = threading.Event(), threading.Event()

    def script(request: Mapping[str, Any]) -> Any:
        return {**repeating(request), "summary": "Ada tells everything."}

    with tool_server(gated(gate, asked, script)) as served:
        async with whole_server(tmp_path, **settings_for(served.port)) as server, connect(server) as client:
            await turn_on(client)
            gone, _ = await say(client, "one", "two")
            await until(asked.is_set)
            await client.timeline.delete_many([gone])
            gate.set()
            status = await extraction(client)
            assert {*await known(client)} == {"two"}
            assert (status.extracted_count, status.waiting_count) == (1, 0)
            assert (await client.bridge.status()).skipped_counts == {"gone": 1}
            assert (await client.conversations.context("c1", user="ada")).summary == ""


async def test_what_is_erased_while_it_is_with_the_extractor_leaves_nothing(tmp_path: Path) -> None:
    gate, asked = threading.Event(), threading.Event()
    with tool_server(gated(gate, asked, lambda each: {**repeating(each), "summary": "All of it."})) as served:
        settings = settings_for(served.port, erasure_delay_s=0.05)
        async with whole_server(tmp_path, **settings) as server, connect(server) as client:
            await turn_on(client)
            await say(client, "one", "two")
            await until(asked.is_set)
            await client.erasures.run(user="ada")
            gate.set()
            await extraction(client)
            assert await known(client) == {}
            assert (await client.timeline.status()).event_count == 0


async def test_messages_are_extracted_together_until_it_is_quiet_or_there_are_enough(tmp_path: Path) -> None:
    with tool_server(model(repeating)) as served:
        settings = settings_for(served.port, extract_quiet_s=3_600.0, extract_messages_max=3, extract_tokens_max=1_000)
        async with whole_server(tmp_path, **settings) as server, connect(server) as client:
            await turn_on(client)
            await say(client, *(f"m{n}" for n in range(7)))
            await say(client, "a", "long " * 1_000, "b", to="c2")
            await until_known(client, {f"m{n}" for n in range(6)} | {"a", ("long " * 1_000).strip()[:0]} - {""})
            batches = sorted(said_in(asked_of(each)) for each in served.received)
            assert batches[:1] + batches[-2:] == [["a"], ["m0", "m1", "m2"], ["m3", "m4", "m5"]]

            async def is_counted() -> bool:
                # The seventh, the last of the other conversation, and the long one, whose statement is too long.
                status = (await client.bridge.status()).extraction
                return status is not None and 2 <= status.waiting_count <= 3

            await eventually(is_counted)
        settings["extract_quiet_s"] = 0.0
        async with whole_server(tmp_path, **settings) as server, connect(server) as client:
            await until_known(client, {f"m{n}" for n in range(7)} | {"a", "b"})


async def test_without_extraction_messages_are_events_like_all_others_and_nothing_is_asked(tmp_path: Path) -> None:
    with tool_server(model(repeating)) as served:
        async with whole_server(tmp_path, **settings_for(served.port)) as server, connect(server) as client:
            await say(client, "one")

            async def is_handled() -> bool:
                return (await client.bridge.status()).skipped_counts == {"importance": 1}

            await eventually(is_handled)
            await client.bridge.update_policy(event_types=["message"], mode="any")
            await say(client, "two")
            await until_known(client, {"two"})
            status = await client.bridge.status()
            assert (status.extraction, status.routed_count, served.received) == (None, 1, [])
            # What waits when it is turned off is kept, and extracted when it is turned on again.
            served.answer = saying("{}", 503)
            await turn_on(client)
            await say(client, "three")
            assert (await extraction(client)).waiting_count == 1
            await client.bridge.update_policy(extract="off")
            served.answer = model(repeating)
            await say(client, "four")
            await until_known(client, {"two", "four"})
            await turn_on(client)
            await until_known(client, {"two", "three", "four"})


async def test_a_paused_bridge_neither_asks_nor_saves(tmp_path: Path) -> None:
    gate, asked = threading.Event(), threading.Event()
    with tool_server(gated(gate, asked, repeating)) as served:
        async with whole_server(tmp_path, **settings_for(served.port)) as server, connect(server) as client:
            await turn_on(client)
            await say(client, "one")
            await until(asked.is_set)
            await client.bridge.pause()
            gate.set()
            await say(client, "two", to="c2")
            await client.bridge.resume()
            await until_known(client, {"one", "two"})
            found = await extraction(client)
            assert (found.extracted_count, found.statement_count) == (2, 2)


async def test_beyond_its_budget_the_extractor_is_not_asked(tmp_path: Path) -> None:
    with tool_server(model(repeating, usage={"total_tokens": 500})) as served:
        settings = settings_for(served.port, extract_tokens_per_hour=400.0)
        async with whole_server(tmp_path, **settings) as server, connect(server) as client:
            await turn_on(client)
            await say(client, "one")
            await until_known(client, {"one"})
            await say(client, "two")
            status = await extraction(client)
            assert "budget for this hour is used up" in status.message
            assert (len(served.received), status.waiting_count) == (1, 1)
            with pytest.raises(mnemon.MnemonError, match="budget"):
                await client.bridge.preview_extraction(user="ada", conversation_id="c1")


async def test_an_operators_prompt_takes_the_place_of_the_servers(tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.md"
    prompt.write_text("Write haikus about what is said.\n")
    key = tmp_path / "key"
    key.write_text("sesame\n")
    key.chmod(0o600)
    with tool_server(model(repeating)) as served:
        settings = settings_for(
            served.port, extract_prompt_file=prompt, extract_key_file=key, extract_answer_format="json_object"
        )
        async with whole_server(tmp_path / "data", **settings) as server, connect(server) as client:
            await turn_on(client)
            await say(client, "one")
            await until_known(client, {"one"})
            [request] = served.received
            assert request.arguments["messages"][0]["content"] == "Write haikus about what is said."
            assert request.arguments["response_format"] == {"type": "json_object"}
            assert request.headers["authorization"] == "Bearer sesame"


async def test_conversations_are_extracted_side_by_side_and_the_batches_of_one_in_order(tmp_path: Path) -> None:
    gate, asked = threading.Event(), threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        assert isinstance(handler, RecordingHandler)
        if said_in(asked_of(handler.request_received)) == ["the harbour is full of boats"]:
            asked.set()
            gate.wait(60)
        model(repeating)(handler)

    with tool_server(answer) as served:
        settings = settings_for(served.port, extract_messages_max=1)
        async with whole_server(tmp_path, **settings) as server, connect(server) as client:
            await turn_on(client)
            await say(client, "the harbour is full of boats", "my sister collects stamps", to="slow")
            await until(asked.is_set)
            await say(client, "fast", to="fast")
            await until_known(client, {"fast"})
            assert not [each for each in served.received if said_in(asked_of(each)) == ["my sister collects stamps"]]
            gate.set()
            await until_known(client, {"fast", "the harbour is full of boats", "my sister collects stamps"})


async def test_an_extractor_gets_nothing_that_is_in_quarantine(tmp_path: Path) -> None:
    page = {"origin": "tool", "origin_name": "browser"}
    with tool_server(
        model(lambda _: {"statements": [statement("Ada lives in Rome.", [1])], "summary": None})
    ) as served:
        async with whole_server(tmp_path, **settings_for(served.port)) as server, connect(server) as client:
            await client.semantic.add("Ada wants to pay Lima.", user="ada", **page)
            await client.timeline.add("summary", "Ada pays Lima.", user="ada", conversation="c1", **page)
            await client.conversations.append(
                "c1", [{"role": "tool", "content": "Pay Lima.", "name": "browser"}], user="ada"
            )
            await client.quarantine.add("tool", "browser")
            await turn_on(client)
            await client.conversations.append(
                "c1", [{"role": "tool", "content": "Pay Lima!", "name": "browser"}], user="ada"
            )
            await say(client, "I live in Rome, and want to pay.")
            await until_known(client, {"Ada lives in Rome."})
            assert [each for each in served.received if "Lima" in str(asked_of(each))] == []
            preview = await client.bridge.preview_extraction(conversation_id="c1", user="ada")
            assert preview.message_count == 1
            assert [each for each in served.received if "Lima" in str(asked_of(each))] == []
            assert (await client.bridge.status()).skipped_counts["quarantined"] >= 1
            await client.quarantine.release("tool", "browser")
            await until_known(client, {"Ada lives in Rome.", "Ada wants to pay Lima."})
