"""The tool service over gRPC: the list of tools, how they are called, and custom tools."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct, Value
from google.rpc import error_details_pb2
from mnemon.shared.tool_definitions import NOTHING_DELETED
from mnemon.v1 import common_pb2, errors_pb2
from mnemon.v1 import tools_pb2 as pb
from mnemon_server.domain.errors import ConfigurationError

from tests.support.fact_messages import refused
from tests.support.memory_messages import metadata
from tests.support.server import Connection, bare_server, detail, failure_of, reason, until, violations, whole_server
from tests.support.tool_endpoints import saying, tool_server
from tests.support.tool_messages import call, context, everything, put, recall, remember, struct
from tests.support.tool_providers import tool_provider

CREATE, UPDATE, DELETE = pb.MEMORY_ACTION_CREATE, pb.MEMORY_ACTION_UPDATE, pb.MEMORY_ACTION_DELETE
INVALID, MISSING = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
UNCONFIGURED = (grpc.StatusCode.FAILED_PRECONDITION, "CONFIGURATION")
CITY = (
    '{"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}'
)


@pytest.fixture
def tools(connection: Connection) -> Any:
    """The stub of its tool service."""
    return connection.tools


async def listed(tools: Any, **request: Any) -> dict[str, pb.Tool]:
    """The tools by name, in their order."""
    return {tool.name: tool for tool in (await tools.ListTools(pb.ListToolsRequest(**request))).tools}


def tools_file(folder: Path, *tools: str) -> Path:
    """A file with these tools, each with one required argument."""
    file = folder / "tools.toml"
    file.write_text("\n".join(f"[[tool]]\n{tool}\ndescription = 'Tells it.'\nparameters = '{CITY}'" for tool in tools))
    return file


# The list of tools


async def test_both_memory_tools_are_listed_with_their_schemas(tools: Any) -> None:
    found = await listed(tools)
    assert [*found] == ["manage_memory", "search_memory"]
    assert {tool.kind for tool in found.values()} == {pb.TOOL_KIND_MEMORY}
    manage, search = (MessageToDict(tool.parameters) for tool in found.values())
    assert manage["properties"]["action"]["enum"] == ["create", "update", "delete"]
    assert (search["required"], search["properties"]["limit"]["maximum"]) == (["query"], 1_000)
    assert list(found["manage_memory"].actions_permitted) == [CREATE, UPDATE, DELETE]
    assert list(found["search_memory"].actions_permitted) == []


async def test_a_description_depends_on_permitted_actions_and_instructions(tools: Any) -> None:
    found = await listed(tools, actions_permitted=[CREATE], manage_instructions="Only on Sundays.")
    manage, search = found.values()
    assert list(manage.actions_permitted) == [CREATE]
    assert manage.description.endswith("Only on Sundays.")
    assert "id" not in MessageToDict(manage.parameters)["properties"]
    assert search.description == (await listed(tools))["search_memory"].description
    silent = await listed(tools, manage_instructions="", search_instructions="")
    assert all("\n" not in tool.description for tool in silent.values())
    error = await failure_of(tools.ListTools(pb.ListToolsRequest(actions_permitted=[CREATE, 0, 9])))
    assert violations(error) == {"actions_permitted[1]", "actions_permitted[2]"}
    unknown = call(tools, "search_memory", {"query": "x"}, context(actions_permitted=[9]))
    assert violations(await failure_of(unknown)) == {"context.actions_permitted[0]"}


async def test_the_server_limits_the_actions_and_sets_the_namespace(tmp_path: Path) -> None:
    settings = {"tool_actions_permitted": ("create", "update"), "tool_namespace": ("{user_id}", "memories")}
    async with whole_server(tmp_path, **settings) as connected:
        assert list((await listed(connected.tools))["manage_memory"].actions_permitted) == [CREATE, UPDATE]
        key = await remember(connected.tools, "Ada has a cat.")
        [fact] = await everything(connected.facts)
        assert (tuple(fact.namespace), fact.key) == (("ada", "memories"), key)
        deletion = call(connected.tools, "manage_memory", {"action": "delete", "id": key})
        assert violations(await failure_of(deletion)) == {"action"}
        more = context(actions_permitted=[DELETE])
        asked = call(connected.tools, "manage_memory", {"action": "delete", "id": key}, more)
        assert violations(await failure_of(asked)) == {"context.actions_permitted"}
        assert await refused(remember(connected.tools, "x", context({"org_id": "acme"}))) == UNCONFIGURED


# Calls


async def test_a_memory_is_created_found_changed_and_deleted(connection: Connection) -> None:
    tools, facts = connection.tools, connection.facts
    about = context(metadata=metadata(source="chat"))
    key = await remember(tools, "Ada prefers window seats.", about)
    await put(facts, ("user", "ada"), "other", {"content": "Ada drinks tea.", "category": "drinks"})
    best, other = await recall(tools, "Ada's window seats")
    assert (best["key"], best["namespace"], best["value"]) == (
        key,
        ["user", "ada"],
        {"content": "Ada prefers window seats."},
    )
    assert best["score"] > other["score"]
    assert [found["key"] for found in await recall(tools, "Ada", filter={"category": "drinks"})] == ["other"]
    assert [found["key"] for found in await recall(tools, "Ada", filter={"source": {"$eq": "chat"}})] == [key]
    updated = await call(tools, "manage_memory", {"action": "update", "id": key, "content": "Ada prefers aisle seats."})
    assert updated.content == f"updated memory {key}"
    deleted = [await call(tools, "manage_memory", {"action": "delete", "id": key}) for _ in range(2)]
    assert [output.content for output in deleted] == [f"Deleted memory {key}", NOTHING_DELETED.format(key)]
    assert [fact.key for fact in await everything(facts)] == ["other"]
    gone = call(tools, "manage_memory", {"action": "update", "id": key, "content": "x"})
    assert await refused(gone) == (MISSING, "FACT_NOT_FOUND")


async def test_an_unknown_tool_is_not_found_and_the_known_ones_are_named(tools: Any) -> None:
    error = await failure_of(call(tools, "format_disk", {}))
    assert (error.code(), reason(error)) == (MISSING, "TOOL_NOT_FOUND")
    assert "'manage_memory', 'search_memory'" in str(error.details())
    resource = detail(error, error_details_pb2.ResourceInfo)
    assert (resource.resource_type, resource.resource_name) == ("mnemon.Tool", "format_disk")


@pytest.mark.parametrize(
    ("tool", "arguments", "field"),
    [
        ("manage_memory", {}, "content"),
        ("manage_memory", {"content": 5}, "content"),
        ("manage_memory", {"content": "x", "action": "fly"}, "action"),
        ("manage_memory", {"content": "x", "id": "y"}, "id"),
        ("manage_memory", {"action": "update", "content": "x"}, "id"),
        ("manage_memory", {"action": "delete"}, "id"),
        ("manage_memory", {"content": "x", "namespace": ["user", "bob"]}, "namespace"),
        ("search_memory", {}, "query"),
        ("search_memory", {"query": "x", "limit": 0}, "limit"),
        ("search_memory", {"query": "x", "limit": 2.5}, "limit"),
        ("search_memory", {"query": "x", "filter": {"rank": {"$near": 1}}}, "filter.rank"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_arguments_that_violate_the_schema_are_refused(
    shared: Connection, tool: str, arguments: dict[str, Any], field: str
) -> None:
    assert violations(await failure_of(call(shared.tools, tool, arguments))) == {field}
    assert await everything(shared.facts) == []


async def test_a_context_without_a_namespace_is_a_configuration_error(tools: Any) -> None:
    for about in (
        context({}),
        context({"user_id": ""}),
        context({"user_id": "a\0b"}),
        context({"user_id": 7.5}),
        context(namespace=["{team}"]),
        context(namespace=["user-{user_id}"]),
    ):
        assert await refused(remember(tools, "x", about)) == UNCONFIGURED
        assert await refused(call(tools, "search_memory", {"query": "x"}, about)) == UNCONFIGURED


async def test_a_repeated_call_gets_the_first_answer(connection: Connection) -> None:
    tools = connection.tools
    first, again = [await call(tools, "manage_memory", {"content": "x"}, request_id="once") for _ in range(2)]
    assert first == again
    assert len(await everything(connection.facts)) == 1
    other = call(tools, "manage_memory", {"content": "y"}, request_id="once")
    assert await refused(other) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")


async def test_every_invalid_value_is_named_at_once(tools: Any) -> None:
    unset = Struct(fields={"a": Value()})
    about = pb.ToolContext(config=unset, metadata={"unset": common_pb2.MetadataValue()})
    request = pb.CallToolRequest(tool="search_memory", arguments=unset, context=about, response_format=9)
    assert violations(await failure_of(tools.CallTool(request))) == {
        "arguments", "context.config", "context.metadata.unset", "response_format",
    }  # fmt: skip
    text = pb.ExecuteTextRequest(text="x", context=about, response_format=9)
    assert violations(await failure_of(tools.ExecuteText(text))) == {
        "context.config", "context.metadata.unset", "response_format",
    }  # fmt: skip


async def test_the_deepest_call_that_can_be_parsed_is_returned(tools: Any) -> None:
    text = "[[ABP_TOOL:x]]" + '{"a": ' * 32 + "1" + "}" * 32 + "[[END_ABP_TOOL]]"
    [deep] = (await tools.ParseToolCalls(pb.ParseToolCallsRequest(text=text))).parsed.calls
    assert str(MessageToDict(deep.parameters)).count("a") == 32
    text = text.replace("1", '{"a": 1}')
    parsed = (await tools.ParseToolCalls(pb.ParseToolCallsRequest(text=text))).parsed
    assert [problem.reason for problem in parsed.problems] == ["nested deeper than 32"]


async def test_every_method_says_that_the_server_is_starting() -> None:
    async with bare_server() as connection:
        tools = connection.tools
        for each in (
            tools.ListTools(pb.ListToolsRequest()),
            tools.CallTool(pb.CallToolRequest(tool="search_memory")),
            tools.ParseToolCalls(pb.ParseToolCallsRequest(text="x")),
            tools.ExecuteText(pb.ExecuteTextRequest(text="x")),
            tools.GetProtocolStats(pb.GetProtocolStatsRequest()),
        ):
            assert await refused(each) == (grpc.StatusCode.UNAVAILABLE, "NOT_SERVING")


# Custom tools


async def test_calls_are_forwarded_over_http_and_over_grpc(tmp_path: Path) -> None:
    with tool_server(saying("21 degrees")) as http:
        async with tool_provider() as provider:
            file = tools_file(
                tmp_path, f"name = 'weather'\nhttp = '{http.url}'", f"name = 'news'\ngrpc = '{provider.address}'"
            )
            allowed = ("127.0.0.1",)
            async with whole_server(tmp_path / "data", tools_file=file, tool_endpoints_allowed=allowed) as connected:
                found = await listed(connected.tools)
                assert [*found] == ["manage_memory", "search_memory", "news", "weather"]
                assert found["weather"].kind == pb.TOOL_KIND_FORWARDED
                assert MessageToDict(found["weather"].parameters) == json.loads(CITY)
                arguments = {"city": "Turin", "days": 3}
                outputs = [
                    (await call(connected.tools, name, arguments, request_id="once")).content
                    for name in ("weather", "news")
                ]
                both = "".join(f'[[ABP_TOOL:{name}]]{{"city": "Turin"}}[[END_ABP_TOOL]]' for name in ("news", "none"))
                text = pb.ExecuteTextRequest(text=both, context=context({}))
                results = (await connected.tools.ExecuteText(text)).results
    assert outputs == ["21 degrees", "this is news"]
    assert http.received[0].arguments == arguments
    assert json.loads(http.received[0].headers["mnemon-namespace"]) == ["user", "ada"]
    first, second = provider.received
    assert (first.tool, first.arguments, first.request_id) == ("news", struct(arguments), "once")
    assert (list(first.namespace), list(second.namespace)) == (["user", "ada"], [])
    assert results[0].output.content == "this is news"
    assert results[1].error.reason == errors_pb2.ERROR_REASON_TOOL_NOT_FOUND


async def test_a_tool_with_a_pattern_of_unbounded_cost_is_named_and_not_offered(tmp_path: Path) -> None:
    look_ahead = {"type": "object", "properties": {"city": {"pattern": "^(?=T)"}}}
    with tool_server(saying("21 degrees")) as http:
        rest = f"http = '{http.url}'"
        file = tools_file(tmp_path, f"name = 'weather'\n{rest}", f"name = 'slow'\n{rest}")
        head, found, tail = file.read_text().rpartition(CITY)
        file.write_text(head + json.dumps(look_ahead) + tail)
        async with whole_server(tmp_path / "data", tools_file=file, tool_endpoints_allowed=("127.0.0.1",)) as connected:
            tools = connected.tools
            answer = await tools.ListTools(pb.ListToolsRequest())
            unknown = await refused(call(tools, "slow", {"city": "Turin"}))
            assert (await call(tools, "weather", {"city": "Turin"})).content == "21 degrees"
    assert found
    assert [tool.name for tool in answer.tools] == ["manage_memory", "search_memory", "weather"]
    [unoffered] = answer.unoffered
    assert unoffered.name == "slow"
    assert unoffered.reason.startswith("the pattern '^(?=T)' cannot be used here")
    assert unknown == (grpc.StatusCode.NOT_FOUND, "TOOL_NOT_FOUND")


async def test_errors_of_a_custom_tool_are_reported_and_the_other_calls_run(tmp_path: Path) -> None:
    with tool_server(saying("out of order", status=500)) as http:
        async with tool_provider() as provider:
            gone = provider.address
        file = tools_file(tmp_path, f"name = 'weather'\nhttp = '{http.url}'", f"name = 'news'\ngrpc = '{gone}'")
        allowed = (f"127.0.0.1:{http.port}", gone)
        async with whole_server(tmp_path / "data", tools_file=file, tool_endpoints_allowed=allowed) as connected:
            tools = connected.tools
            assert violations(await failure_of(call(tools, "weather", {"days": 3}))) == {"city"}
            wrong = call(tools, "weather", {"city": "Turin", "days": 2.5})
            assert violations(await failure_of(wrong)) == {"days"}
            assert http.received == []
            failed = await failure_of(call(tools, "weather", {"city": "Turin"}))
            assert (failed.code(), reason(failed)) == (grpc.StatusCode.FAILED_PRECONDITION, "TOOL_FAILED")
            assert "out of order" not in str(failed.details())
            away = call(tools, "news", {"city": "Turin"})
            assert await refused(away) == (grpc.StatusCode.UNAVAILABLE, "TOOL_UNREACHABLE")
            assert await remember(tools, "Ada has a cat.")


async def test_calls_whose_results_do_not_fit_are_reported_as_run(tmp_path: Path) -> None:
    with tool_server(saying("x" * 900_000)) as http:
        file = tools_file(tmp_path, f"name = 'weather'\nhttp = '{http.url}'")
        async with whole_server(
            tmp_path / "data", tools_file=file, tool_endpoints_allowed=("127.0.0.1",), max_message_mib=1
        ) as connected:
            weather = '[[ABP_TOOL:weather]]{"city": "Turin"}[[END_ABP_TOOL]]'
            memory = '[[ABP_TOOL:manage_memory]]{"content": "Ada has a cat."}[[END_ABP_TOOL]]'
            request = pb.ExecuteTextRequest(text=weather + memory + weather, context=context())
            first, second, third = (await connected.tools.ExecuteText(request)).results
            assert len(await everything(connected.facts)) == 1
    assert len(http.received) == 2
    assert second.output.content.startswith("created memory ")
    assert [result.error.reason for result in (first, third) if result.HasField("error")] == [
        errors_pb2.ERROR_REASON_MESSAGE_TOO_LARGE
    ]


async def test_calls_of_a_slow_tool_beyond_its_limit_are_refused_at_once_and_others_are_served(tmp_path: Path) -> None:
    answering = asyncio.Event()

    async def late(request: Any, context: Any) -> str:
        await answering.wait()
        return "at last"

    async with tool_provider(late) as provider:
        file = tools_file(tmp_path, f"name = 'slow'\ngrpc = '{provider.address}'")
        settings = {"tools_file": file, "tool_endpoints_allowed": ("127.0.0.1",), "tool_calls_max": 5}
        async with whole_server(tmp_path / "data", **settings) as connected:
            calls = [asyncio.create_task(call(connected.tools, "slow", {"city": "Turin"})) for _ in range(30)]
            await until(lambda: sum(each.done() for each in calls) == 25 and len(provider.received) == 5)
            refusals = [await failure_of(each) for each in calls if each.done()]
            waiting = [each for each in calls if not each.done()]
            assert {(error.code(), reason(error)) for error in refusals} == {
                (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_REQUESTS")
            }
            assert all(detail(error, error_details_pb2.RetryInfo).HasField("retry_delay") for error in refusals)
            assert await remember(connected.tools, "Ada has a cat.")
            answering.set()
            assert [(await each).content for each in waiting] == ["at last"] * 5
            assert (await call(connected.tools, "slow", {"city": "Turin"})).content == "at last"


@pytest.mark.parametrize(
    ("tool", "allowed", "message"),
    [
        ("name = 'weather'\nhttp = 'https://tools.example.com/w'", (), "'weather'.*tool_endpoints_allowed"),
        ("name = 'weather'\nhttp = 'https://tools.example.com:444/w'", ("tools.example.com:443",), "'weather'"),
        ("name = 'weather'\ngrpc = '127.0.0.1:7'", ("localhost",), "'weather'"),
        ("name = 'manage_memory'\ngrpc = '127.0.0.1:7'", ("127.0.0.1",), "must not be that of a memory tool"),
        ("name = 'weather'", ("127.0.0.1",), "must have either http"),
    ],
)
async def test_a_server_does_not_start_with_an_invalid_tool(
    tmp_path: Path, tool: str, allowed: Sequence[str], message: str
) -> None:
    file = tools_file(tmp_path, tool)
    with pytest.raises(ConfigurationError, match=message):
        async with whole_server(tmp_path / "data", tools_file=file, tool_endpoints_allowed=allowed):
            pytest.fail("the server started")
