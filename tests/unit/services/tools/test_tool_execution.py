"""Running the calls in a model's text: in order, each with its own result, in both protocols, with any tool."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from mnemon_server.domain.errors import (
    AnswerFullError,
    ConfigurationError,
    FactNotFoundError,
    InvalidArgumentError,
    MnemonError,
    ToolFailedError,
    ToolNotFoundError,
)
from mnemon_server.domain.facts import FactFilter
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.tool_calls import TEXT_BYTES_MAX, Fallback, ParseOptions, ProtocolStatistics
from mnemon_server.domain.tools import (
    CALLS_MAX,
    CallTool,
    ExecutedText,
    ExecuteText,
    OperatorTool,
    ToolContext,
    ToolKind,
    ToolOutput,
)
from mnemon_server.services.reading.answers import AnswerMemory, Room

from tests.support.tool_call_fuzzing import written, written_in_vcp
from tests.support.tool_endpoints import ToolServer, saying, tool_server
from tests.support.tool_runners import ADA, OpenedTools, open_tools
from tests.support.turns import Turns

HERS = Namespace(("user", "ada"))
FORECAST = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "maximum": 14},
        "daily": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["city"],
    "additionalProperties": False,
}
FILES = {
    "type": "object",
    "properties": {"command": {"enum": ["ReadFile", "DropFile"]}, "filePath": {"type": "string"}},
    "required": ["command", "filePath"],
}


@pytest.fixture
def server() -> Iterator[ToolServer]:
    with tool_server(saying("sunny")) as served:
        yield served


@pytest.fixture
async def forwarding(server: ToolServer, tmp_path: Path) -> AsyncIterator[OpenedTools]:
    """A tool runner with three custom tools, all at one endpoint."""
    schemas = {"weather": FORECAST, "files": FILES, "anything": {"type": "object"}}
    operators = [
        OperatorTool(name=name, description=f"About {name}.", parameters=schema, http=server.url)
        for name, schema in schemas.items()
    ]
    async with open_tools(tmp_path, operators) as opened:
        yield opened


async def executed(tools: OpenedTools, text: str, **fields: Any) -> ExecutedText:
    return await tools.runner.execute(ExecuteText(**{"text": text, "context": ADA, **fields}))


def outcomes(done: ExecutedText) -> list[str | type[Exception]]:
    """What each call returned, or the class of its error."""
    return [
        result.outcome.content if isinstance(result.outcome, ToolOutput) else type(result.outcome)
        for result in done.results
    ]


def error_of(done: ExecutedText, number: int = 0) -> str:
    outcome = done.results[number].outcome
    assert isinstance(outcome, MnemonError)
    return str(outcome)


async def contents(tools: OpenedTools, namespace: tuple[str, ...] = HERS) -> list[str]:
    page = await tools.facts.store.list(FactFilter(namespace=Namespace(namespace)), limit=1_000)
    return [fact.value["content"] for fact in page.facts]


# ABP


async def test_valid_and_invalid_calls_each_get_their_own_result_in_order(tools: OpenedTools) -> None:
    await tools.facts.put("tea", "likes tea", HERS)
    text = "".join(
        [
            "I will note that. ",
            written(("manage_memory", "create", {"content": "likes mate"})),
            written(("manage_memory", "update", {"content": "likes oolong", "id": "tea"})),
            written(("manage_memory", "update", {"content": "x", "id": "none"})),
            written(("manage_memory", "forget", {"id": "tea"})),
            written(("forget_memory", "", {"id": "tea"})),
            "[[ABP_TOOL:manage_memory]] no call [[END_ABP_TOOL]]",
            written(("search_memory", "search", {"query": "oolong", "limit": 1})),
            written(("manage_memory", "delete", {"id": "tea"})),
            written(("search_memory", "", {"query": "oolong", "colour": "red"})),
        ]
    )
    done = await executed(tools, text, artifact=True)
    created, updated, unknown, forbidden, no_tool, found, deleted, odd = outcomes(done)
    assert str(created).startswith("created memory ")
    assert updated == "updated memory tea"
    assert (unknown, forbidden, no_tool) == (FactNotFoundError, InvalidArgumentError, ToolNotFoundError)
    assert [match["value"] for match in json.loads(str(found))] == [{"content": "likes oolong"}]
    assert deleted == "Deleted memory tea"
    assert odd is InvalidArgumentError
    assert [result.call_id for result in done.results] == [call.id for call in done.parsed.calls]
    assert [result.tool for result in done.results] == [call.tool for call in done.parsed.calls]
    assert {result.command_number for result in done.results} == {0}
    assert [len(r.outcome.artifact) for r in done.results if isinstance(r.outcome, ToolOutput)] == [0, 0, 1, 0]
    assert len(done.parsed.problems) == 1
    assert await contents(tools) == ["likes mate"]


async def test_the_action_of_the_envelope_is_the_argument_unless_the_parameters_set_it(tools: OpenedTools) -> None:
    await tools.facts.put("tea", "likes tea", HERS)
    text = written(("manage_memory", "create", {"action": "delete", "id": "tea"}))
    assert outcomes(await executed(tools, text)) == ["Deleted memory tea"]


async def test_the_action_is_dropped_if_the_tool_has_no_such_argument(
    forwarding: OpenedTools, server: ToolServer
) -> None:
    text = written(("weather", "get", {"city": "rome"})) + written(("anything", "get", {"city": "rome"}))
    assert outcomes(await executed(forwarding, text)) == ["sunny", "sunny"]
    assert [request.arguments for request in server.received] == [{"city": "rome"}, {"city": "rome"}]


async def test_a_truncated_call_does_not_run(tools: OpenedTools) -> None:
    text = written(("manage_memory", "create", {"content": "x"}))
    done = await executed(tools, text.replace("[[END_ABP_TOOL]]", ""))
    assert (done.results, done.parsed.success) == ((), False)
    assert await contents(tools) == []


async def test_a_repaired_call_runs(tools: OpenedTools) -> None:
    done = await executed(
        tools, "[[ABP_TOOL:manage_memory]]{'action': 'create', 'parameters': {'content': 'x',}}[[END_ABP_TOOL]]"
    )
    assert str(outcomes(done)[0]).startswith("created memory ")
    assert done.parsed.calls[0].repairs


async def test_a_text_without_calls_runs_nothing(tools: OpenedTools) -> None:
    done = await executed(tools, "The answer is 4.")
    assert (done.results, done.parsed.fallback, done.parsed.error) == ((), Fallback.PLAIN_TEXT, "ABP parsing failed")


async def test_thinking_is_never_run(tools: OpenedTools) -> None:
    text = "<think>" + written(("manage_memory", "create", {"content": "x"})) + "</think>"
    assert (await executed(tools, text)).results == ()


async def test_the_options_apply_to_the_calls_that_run(tools: OpenedTools) -> None:
    text = '[[ABP_TOOL:manage_memory]]{"content": "x"}[[END_ABP_TOOL]]'
    assert (await executed(tools, text, options=ParseOptions(strict_envelope=True))).results == ()
    assert len((await executed(tools, text)).results) == 1


async def test_at_most_64_calls_run_and_the_others_are_reported(tools: OpenedTools) -> None:
    text = "".join(written(("manage_memory", "create", {"content": str(n)})) for n in range(CALLS_MAX + 2))
    done = await executed(tools, text)
    assert [isinstance(result.outcome, ToolOutput) for result in done.results] == [True] * CALLS_MAX + [False] * 2
    assert error_of(done, CALLS_MAX) == "text: at most 64 calls of a text are run; this one was not"
    assert await contents(tools) == [str(n) for n in range(CALLS_MAX)]


async def test_a_context_that_permits_too_much_fails_the_whole_text(tmp_path: Path) -> None:
    async with open_tools(tmp_path, actions_permitted=("create",)) as tools:
        context = ToolContext(config=ADA.config, actions_permitted=("delete",))
        with pytest.raises(InvalidArgumentError, match=r"^context\.actions_permitted: "):
            await executed(tools, written(("manage_memory", "create", {"content": "x"})), context=context)
        assert await contents(tools) == []


async def test_a_context_without_a_namespace_fails_the_calls_that_need_one(
    forwarding: OpenedTools, server: ToolServer
) -> None:
    text = written(("manage_memory", "create", {"content": "x"})) + written(("weather", "", {"city": "rome"}))
    done = await executed(forwarding, text, context=ToolContext())
    assert outcomes(done) == [ConfigurationError, "sunny"]
    assert "mnemon-namespace" not in server.received[0].headers


async def test_a_text_beyond_a_mebibyte_is_refused(tools: OpenedTools) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^text: must have at most 1048576 bytes"):
        await executed(tools, "x" * (TEXT_BYTES_MAX + 1))


async def test_a_repeated_text_does_nothing_twice(tools: OpenedTools) -> None:
    text = "".join(written(("manage_memory", "create", {"content": "x"})) for _ in range(2))
    first, again = [await executed(tools, text, request_id="r-1") for _ in range(2)]
    assert outcomes(first) == outcomes(again)
    assert len(set(outcomes(first))) == 2
    assert await contents(tools) == ["x", "x"]
    await executed(tools, text)
    assert len(await contents(tools)) == 4


# VCP


async def test_vcp_commands_run_one_by_one(tools: OpenedTools) -> None:
    await tools.facts.put("tea", "likes tea", HERS)
    fields = {
        "command1": "create",
        "content1": "12",
        "command2": "update",
        "id2": "tea",
        "content2": "likes oolong",
        "command3": "fly",
        "command4": "delete",
        "id4": "tea",
        "command6": "create",
        "content6": "behind the gap",
    }
    done = await executed(tools, written_in_vcp("manage_memory", fields))
    created, updated, unknown, deleted = outcomes(done)
    assert str(created).startswith("created memory ")
    assert (updated, unknown, deleted) == ("updated memory tea", InvalidArgumentError, "Deleted memory tea")
    assert [result.command_number for result in done.results] == [1, 2, 3, 4]
    assert len({result.call_id for result in done.results}) == 1
    assert done.parsed.fallback is Fallback.VCP
    assert await contents(tools) == ["12"]


async def test_a_vcp_call_without_commands_runs_with_its_fields(tools: OpenedTools) -> None:
    done = await executed(tools, written_in_vcp("manage_memory", {"action": "create", "content": "likes tea"}))
    assert str(outcomes(done)[0]).startswith("created memory ")
    done = await executed(tools, written_in_vcp("search_memory", {"query": "tea", "limit": "1", "filter": '{"a": 1}'}))
    assert outcomes(done) == ["[]"]
    done = await executed(tools, written_in_vcp("search_memory", {"query": "tea", "limit": "many"}))
    assert error_of(done) == "limit: must be a whole number of 1 to 1,000"


async def test_vcp_texts_are_converted_to_the_types_of_the_schema(forwarding: OpenedTools, server: ToolServer) -> None:
    fields = {"city": "12", "days": "5", "daily": "true", "tags": '["a", "b"]'}
    assert outcomes(await executed(forwarding, written_in_vcp("weather", fields))) == ["sunny"]
    assert server.received[0].arguments == {"city": "12", "days": 5, "daily": True, "tags": ["a", "b"]}
    done = await executed(forwarding, written_in_vcp("weather", {"city": "rome", "days": "50"}))
    assert error_of(done) == "days: must be at most 14"


async def test_abp_texts_stay_texts(forwarding: OpenedTools, server: ToolServer) -> None:
    done = await executed(forwarding, written(("weather", "", {"city": "rome", "days": "5"})))
    assert error_of(done) == "days: must be a whole number"
    assert server.received == []


async def test_commands_are_split_for_a_tool_that_takes_a_command(forwarding: OpenedTools, server: ToolServer) -> None:
    fields = {"command1": "ReadFile", "filePath1": "/a", "command2": "DropFile", "filePath2": "/b", "command3": "Fly"}
    done = await executed(forwarding, written_in_vcp("files", fields))
    assert outcomes(done) == ["sunny", "sunny", InvalidArgumentError]
    assert [request.arguments for request in server.received] == [
        {"command": "ReadFile", "filePath": "/a"},
        {"command": "DropFile", "filePath": "/b"},
    ]


async def test_a_tool_without_a_command_argument_gets_all_fields_in_one_call(
    forwarding: OpenedTools, server: ToolServer
) -> None:
    fields = {"command1": "ReadFile", "filePath1": "/a", "command2": "DropFile"}
    done = await executed(forwarding, written_in_vcp("anything", fields))
    assert [result.command_number for result in done.results] == [0]
    assert [request.arguments for request in server.received] == [fields]


# Custom tools


async def test_custom_tools_are_listed_by_name_after_the_memory_tools(forwarding: OpenedTools) -> None:
    listed = forwarding.runner.list_tools()
    assert [tool.name for tool in listed] == ["manage_memory", "search_memory", "anything", "files", "weather"]
    weather = listed[-1]
    assert (weather.description, weather.parameters, weather.kind) == ("About weather.", FORECAST, ToolKind.FORWARDED)


async def test_arguments_refused_by_the_schema_are_not_sent(forwarding: OpenedTools, server: ToolServer) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        await forwarding.output("weather", days=15, colour="red")
    said = "colour: is not a known name; known names: 'city', 'days', 'daily', 'tags'; city: must be given"
    assert sorted(str(caught.value).split("; c")) == sorted(f"days: must be at most 14; {said}".split("; c"))
    assert server.received == []


async def test_a_failing_endpoint_fails_only_its_own_call(forwarding: OpenedTools, server: ToolServer) -> None:
    server.answer = saying("out of order", 500)
    text = written(("weather", "", {"city": "rome"})) + written(("manage_memory", "create", {"content": "x"}))
    done = await executed(forwarding, text)
    assert outcomes(done)[0] is ToolFailedError
    assert await contents(forwarding) == ["x"]


async def test_an_endpoint_receives_the_namespace_and_an_id_of_each_call(
    forwarding: OpenedTools, server: ToolServer
) -> None:
    text = written(("weather", "", {"city": "rome"})) * 2
    for _ in range(2):
        await executed(forwarding, text, request_id="r-1")
    await executed(forwarding, text)
    await forwarding.output("weather", city="rome", request_id="r-1")
    ids = [request.headers.get("idempotency-key") for request in server.received]
    assert ids[0:2] == ids[2:4]
    assert ids[0] != ids[1]
    assert ids[4:] == [None, None, "r-1"]
    assert {request.headers["mnemon-namespace"] for request in server.received} == {'["user", "ada"]'}


@pytest.mark.parametrize(
    ("context", "namespace"),
    [
        (ToolContext(), None),
        (ToolContext(config={"thread_id": "7"}), None),
        (ToolContext(config={"configurable": {"user_id": "u"}}), ["user", "u"]),
        (ToolContext(namespace=("fixed", "{thread_id}"), config={"thread_id": "7"}), ["fixed", "7"]),
    ],
)
async def test_a_custom_tool_runs_without_a_namespace(
    forwarding: OpenedTools, server: ToolServer, context: ToolContext, namespace: list[str] | None
) -> None:
    await forwarding.output("anything", context)
    told = server.received[0].headers.get("mnemon-namespace")
    assert (told and json.loads(told)) == namespace


@pytest.mark.parametrize(
    ("setting", "config", "namespace"),
    [
        (("app", "{user_id}"), {"user_id": "u"}, ["app", "u"]),
        (("app", "{user_id}"), {"org_id": "acme"}, None),
        (("app",), {}, ["app"]),
    ],
)
async def test_a_custom_tool_receives_the_namespace_of_the_setting_if_its_keys_are_known(
    server: ToolServer, tmp_path: Path, setting: tuple[str, ...], config: dict[str, Any], namespace: list[str] | None
) -> None:
    tool = OperatorTool(name="anything", description="", parameters={"type": "object"}, http=server.url)
    async with open_tools(tmp_path, [tool], namespace=setting) as tools:
        await tools.output("anything", ToolContext(config=config))
    told = server.received[0].headers.get("mnemon-namespace")
    assert (told and json.loads(told)) == namespace


@pytest.mark.parametrize(
    "context",
    [ToolContext(namespace=("{user_id}",)), ToolContext(config={"user_id": ""}), ToolContext(namespace=("",))],
)
async def test_an_invalid_namespace_is_never_left_out(
    forwarding: OpenedTools, server: ToolServer, context: ToolContext
) -> None:
    with pytest.raises(ConfigurationError):
        await forwarding.output("anything", context)
    assert server.received == []


# Parsing


async def test_texts_are_counted_by_result(tools: OpenedTools) -> None:
    abp = written(("manage_memory", "create", {"content": "x"}))
    await executed(tools, abp)
    for text in (abp, written_in_vcp("a", {}), "[[ABP_TOOL:x]]", "plain"):
        await tools.runner.parse(text)
    assert tools.runner.statistics() == ProtocolStatistics(
        total=5, abp_success=2, abp_failed=2, vcp_fallback_success=1, vcp_fallback_failed=1, plain_text=1
    )
    assert len(await contents(tools)) == 1


async def test_the_event_loop_continues_while_a_text_is_parsed(tools: OpenedTools) -> None:
    hostile = "[[ABP_TOOL:t]]" + '{"a": 1,} ' * 1_500 + "[[END_ABP_TOOL]]"
    reading = asyncio.create_task(tools.runner.parse(hostile))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    await reading
    assert turns > 20


@pytest.mark.parametrize("artifact", [False, True])
async def test_the_searches_of_a_text_share_the_room_by_what_they_return(tools: OpenedTools, *, artifact: bool) -> None:
    for number in range(2):
        await tools.facts.put(str(number), {"content": "tea " * 20_000}, ("user", "ada"))
    room = Room(AnswerMemory(64 << 20), bytes_max=200_000, copies=2 if artifact else 1)
    text = written(("search_memory", "", {"query": "tea"})) * 5
    done = await tools.runner.execute(ExecuteText(text=text, context=ADA, artifact=artifact), room=room)
    assert [each is AnswerFullError for each in outcomes(done)] == [False, *[artifact] * 4]


async def test_other_calls_are_served_while_calls_without_room_fail(tools: OpenedTools) -> None:
    room = Room(AnswerMemory(1 << 20), bytes_max=1)
    assert [room.fits(record, 2) for record in "ab"] == [True, False]
    seen = []

    class Config(dict[str, Any]):
        """Notes in which turn of the loop each call reads it."""

        def items(self) -> Any:
            seen.append(turns.count)
            return super().items()

    text = written(("search_memory", "", {"query": "tea"})) * CALLS_MAX
    request = ExecuteText(text=text, context=ToolContext(config=Config(user_id="ada")))
    async with Turns() as turns:
        done = await tools.runner.execute(request, room=room)
    assert outcomes(done) == [AnswerFullError] * CALLS_MAX
    assert len(set(seen)) > 2


async def test_no_more_texts_are_parsed_at_once_than_there_are_threads(tools: OpenedTools) -> None:
    await asyncio.gather(*(tools.runner.parse("[[ABP_TOOL:t]]" + "{" * 5_000) for _ in range(20)))
    readers = [thread.name for thread in threading.enumerate() if thread.name.startswith("tools_")]
    assert 1 <= len(readers) <= 2


async def test_a_call_by_call_tool_equals_a_call_in_a_text(tools: OpenedTools) -> None:
    await tools.facts.put("tea", "likes tea", HERS)
    direct = await tools.runner.call(CallTool(tool="search_memory", arguments={"query": "tea"}, context=ADA))
    done = await executed(tools, written(("search_memory", "", {"query": "tea"})))
    assert outcomes(done) == [direct.content]
