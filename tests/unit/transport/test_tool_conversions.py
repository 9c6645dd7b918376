"""Tools, calls and their results are converted to messages and back without loss."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import mnemon
import pytest
from google.protobuf.struct_pb2 import Struct, Value
from mnemon.v1 import common_pb2, errors_pb2
from mnemon.v1 import tools_pb2 as pb
from mnemon_server.domain.errors import InvalidArgumentError, ToolFailedError
from mnemon_server.domain.facts import Fact, FactMatch
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.tool_calls import (
    BlockProblem,
    CallFlags,
    Fallback,
    ParseOptions,
    ParseResult,
    Protocol,
    ProtocolStatistics,
    Repair,
    ToolCall,
    VcpCommand,
    VcpDetails,
)
from mnemon_server.domain.tools import (
    CallTool,
    ExecutedText,
    ExecuteText,
    ListedTool,
    ToolCallResult,
    ToolContext,
    ToolKind,
    ToolOutput,
)
from mnemon_server.transport.convert import tools as convert
from mnemon_server.transport.convert import tools as requests

from tests.support.tool_messages import struct
from tests.support.turns import Turns

ROOM = 1 << 20
NOW = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
CONTEXT = pb.ToolContext(
    namespace=["{user_id}", "memories"],
    config=struct({"configurable": {"user_id": "ada"}}),
    actions_permitted=[pb.MEMORY_ACTION_CREATE, pb.MEMORY_ACTION_UPDATE],
    metadata={"source": common_pb2.MetadataValue(string_value="chat")},
)
KNOWN = ToolContext(
    namespace=("{user_id}", "memories"),
    config={"configurable": {"user_id": "ada"}},
    actions_permitted=("create", "update"),
    metadata={"source": "chat"},
)
SCHEMA = {"type": "object", "properties": {"limit": {"type": "integer", "minimum": 1}}, "required": []}
MATCH = FactMatch(Fact(Namespace(("user", "ada")), "seat", {"content": "window"}, NOW, NOW), 0.75)
ABP = ToolCall(
    id="abp-1",
    tool="search_memory",
    action="search",
    parameters={"query": "seat", "limit": 5},
    protocol=Protocol.ABP,
    repairs=(Repair.OPEN_BRACKETS, Repair.SINGLE_QUOTES),
)
VCP = ToolCall(
    id="vcp-1",
    tool="files",
    parameters={"command1": "read", "path1": "/a"},
    protocol=Protocol.VCP,
    vcp=VcpDetails(
        fields={"tool_name": "files", "command1": "read", "path1": "/a"},
        commands=(VcpCommand(number=1, command="read", parameters={"path": "/a"}),),
        flags=CallFlags(asynchronous=True, no_reply=True),
    ),
)
PROBLEM = BlockProblem(protocol=Protocol.ABP, reason="the end marker is missing", tool="x", offset=2**40, line=7)


def fields(read: Callable[[Any], Any], request: Any) -> list[str]:
    """The invalid fields."""
    try:
        read(request)
    except InvalidArgumentError as error:
        return sorted(violation.field for violation in error.violations)
    return []


def test_a_call_is_read_completely() -> None:
    request = pb.CallToolRequest(
        tool="search_memory",
        arguments=struct({"query": "seat", "limit": 5, "filter": {"rank": {"$gt": 0.5}}}),
        context=CONTEXT,
        response_format=pb.RESPONSE_FORMAT_CONTENT_AND_ARTIFACT,
        request_id="once",
    )
    call = requests.read_call(request)
    assert call == CallTool(
        tool="search_memory",
        arguments={"query": "seat", "limit": 5, "filter": {"rank": {"$gt": 0.5}}},
        context=KNOWN,
        artifact=True,
        request_id="once",
    )
    assert isinstance(call.arguments["limit"], int)


def test_a_text_is_read_completely() -> None:
    options = pb.ParseOptions(strict_envelope=True, require_end_marker=False, strict_boundaries=True, dual_mode=False)
    request = pb.ExecuteTextRequest(
        text="hello",
        options=options,
        context=CONTEXT,
        response_format=pb.RESPONSE_FORMAT_CONTENT_AND_ARTIFACT,
        request_id="once",
    )
    assert requests.read_execute(request) == ExecuteText(
        text="hello",
        options=ParseOptions(strict_envelope=True, require_end_marker=False, strict_boundaries=True, dual_mode=False),
        context=KNOWN,
        artifact=True,
        request_id="once",
    )


def test_missing_fields_have_their_defaults() -> None:
    assert requests.read_call(pb.CallToolRequest(tool="x")) == CallTool(tool="x")
    assert requests.read_execute(pb.ExecuteTextRequest(text="x")) == ExecuteText(text="x")
    assert requests.options_from_pb(pb.ParseOptions()) == ParseOptions()


@pytest.mark.parametrize("number", [pb.RESPONSE_FORMAT_UNSPECIFIED, pb.RESPONSE_FORMAT_CONTENT])
def test_the_facts_are_returned_only_on_request(number: int) -> None:
    assert requests.read_call(pb.CallToolRequest(tool="x", response_format=number)).artifact is False


def test_every_invalid_value_is_named_at_once() -> None:
    unset = Struct(fields={"a": Value()})
    context = pb.ToolContext(
        config=unset,
        actions_permitted=[0],
        metadata={"unset": common_pb2.MetadataValue(), "no key": common_pb2.MetadataValue(int_value=1)},
    )
    common = {"context": context, "response_format": 9, "request_id": "r" * 129}
    wrong = [
        "context.actions_permitted[0]",
        "context.config",
        "context.metadata",
        "context.metadata.unset",
        "request_id",
        "response_format",
    ]
    assert fields(requests.read_call, pb.CallToolRequest(tool="x", arguments=unset, **common)) == ["arguments", *wrong]
    assert fields(requests.read_execute, pb.ExecuteTextRequest(text="x", **common)) == wrong


def test_every_action_and_every_repair_has_its_number() -> None:
    assert set(convert.ACTIONS) == set(pb.MemoryAction.values()) - {0}
    assert set(convert.REPAIRS.values()) == set(pb.JsonRepair.values()) - {0, pb.JSON_REPAIR_INNER_QUOTES}
    told = {repair.name: repair.value for repair in mnemon.JsonRepair}
    assert told == {"UNKNOWN": "unknown", "INNER_QUOTES": "quotes inside of strings"} | {
        repair.name: repair.value for repair in Repair
    }
    assert fields(requests.read_actions, pb.ListToolsRequest(actions_permitted=[1, 0])) == ["actions_permitted[1]"]


def test_a_tool_is_written_completely() -> None:
    tool = ListedTool(
        name="manage_memory",
        description="Create memories.",
        parameters=SCHEMA,
        kind=ToolKind.MEMORY,
        actions_permitted=("create",),
    )
    other = ListedTool(name="weather", description="", parameters={"type": "object"}, kind=ToolKind.FORWARDED)
    first, second = convert.tools_to_pb([tool, other]).tools
    assert first == pb.Tool(
        name="manage_memory",
        description="Create memories.",
        parameters=struct(SCHEMA),
        actions_permitted=[pb.MEMORY_ACTION_CREATE],
        kind=pb.TOOL_KIND_MEMORY,
    )
    assert (second.name, second.kind) == ("weather", pb.TOOL_KIND_FORWARDED)


async def test_parsed_calls_are_written_completely() -> None:
    parsed = ParseResult(raw_content="the text", calls=(ABP, VCP), problems=(PROBLEM,), fallback=Fallback.VCP)
    message = (await convert.parsed_to_pb(parsed)).parsed
    assert (message.success, message.error, message.raw_content) == (True, "", "the text")
    assert message.fallback == pb.TOOL_FALLBACK_VCP
    first, second = message.calls
    assert first == pb.ToolCall(
        call_id="abp-1",
        tool="search_memory",
        action="search",
        parameters=struct({"query": "seat", "limit": 5}),
        protocol=pb.TOOL_PROTOCOL_ABP,
        repairs=[pb.JSON_REPAIR_OPEN_BRACKETS, pb.JSON_REPAIR_SINGLE_QUOTES],
    )
    assert second == pb.ToolCall(
        call_id="vcp-1",
        tool="files",
        parameters=struct({"command1": "read", "path1": "/a"}),
        protocol=pb.TOOL_PROTOCOL_VCP,
        commands=[pb.VcpCommand(number=1, command="read", parameters={"path": "/a"})],
        asynchronous=True,
        no_reply=True,
    )
    [problem] = message.problems
    assert problem == pb.BlockProblem(
        protocol=pb.TOOL_PROTOCOL_ABP, reason="the end marker is missing", tool="x", offset=2**40, line=7
    )


@pytest.mark.parametrize(
    ("fallback", "number"),
    [
        (Fallback.NONE, pb.TOOL_FALLBACK_UNSPECIFIED),
        (Fallback.VCP, pb.TOOL_FALLBACK_VCP),
        (Fallback.PLAIN_TEXT, pb.TOOL_FALLBACK_PLAIN_TEXT),
    ],
)
async def test_a_text_without_a_call_says_so(fallback: Fallback, number: int) -> None:
    message = (await convert.parsed_to_pb(ParseResult(raw_content="hello", fallback=fallback))).parsed
    assert (message.success, message.error, message.fallback) == (False, "ABP parsing failed", number)


async def told(executed: ExecutedText) -> pb.ExecuteTextResponse:
    """What a client reads."""
    return pb.ExecuteTextResponse.FromString(await convert.executed_to_bytes(executed, bytes_max=ROOM))


async def test_the_results_of_calls_are_written_in_order() -> None:
    results = (
        ToolCallResult(call_id="abp-1", tool="search_memory", outcome=ToolOutput("[]", (MATCH,))),
        ToolCallResult(call_id="vcp-1", tool="files", outcome=ToolFailedError("it failed"), command_number=2),
        ToolCallResult(call_id="vcp-2", tool="files", outcome=ToolOutput("")),
    )
    message = await told(ExecutedText(ParseResult(raw_content="t", calls=(ABP,)), results))
    first, second, third = message.results
    assert (first.call_id, first.tool, first.command_number) == ("abp-1", "search_memory", 0)
    assert (first.output.content, first.output.artifact[0].fact.key, first.output.artifact[0].score.relevance) == (
        "[]", "seat", 0.75,
    )  # fmt: skip
    assert (second.call_id, second.command_number) == ("vcp-1", 2)
    assert (second.error.reason, second.error.message) == (errors_pb2.ERROR_REASON_TOOL_FAILED, "it failed")
    assert third.WhichOneof("outcome") == "output"


async def test_long_outputs_are_left_out_if_not_all_of_them_fit() -> None:
    outputs = ["a" * 500_000, "created memory 1", "b" * 700_000, "c" * 400_000]
    results = tuple(
        ToolCallResult(call_id=f"abp-{number}", tool="x", outcome=ToolOutput(content))
        for number, content in enumerate(outputs, 1)
    )
    message = await told(ExecutedText(ParseResult(raw_content="t"), results))
    assert message.ByteSize() <= ROOM
    assert [len(result.output.content) for result in message.results] == [500_000, 16, 0, 400_000]
    left_out = message.results[2].error
    assert left_out.reason == errors_pb2.ERROR_REASON_MESSAGE_TOO_LARGE
    assert "700,0" in left_out.message


async def test_other_calls_are_served_while_many_results_are_written() -> None:
    failed = ToolCallResult(call_id="abp-1", tool="x", outcome=ToolFailedError("it failed"))
    executed = ExecutedText(ParseResult(raw_content=""), (failed,) * 10_000)
    async with Turns() as turns:
        assert len((await told(executed)).results) == 10_000
    assert turns.count > 1


async def test_an_internal_error_reveals_nothing() -> None:
    fault = ToolCallResult(call_id="abp-1", tool="x", outcome=ZeroDivisionError("a secret"))
    message = await told(ExecutedText(ParseResult(raw_content=""), (fault,)))
    [result] = message.results
    assert result.error.reason == errors_pb2.ERROR_REASON_INTERNAL
    assert "secret" not in result.error.message


async def test_an_empty_answer_is_an_answer() -> None:
    assert pb.CallToolResponse.FromString(await convert.called_to_bytes(ToolOutput(""))).HasField("output")


async def test_an_answer_says_that_more_was_found() -> None:
    output = ToolOutput("[]", (MATCH,), truncated=True)
    message = pb.CallToolResponse.FromString(await convert.called_to_bytes(output)).output
    assert (message.truncated, len(message.artifact)) == (True, 1)


def test_counts_are_written_under_their_names() -> None:
    counts = {
        "total": 21, "abp_success": 1, "abp_failed": 2, "vcp_fallback_success": 3, "vcp_fallback_failed": 4,
        "plain_text": 5,
    }  # fmt: skip
    assert convert.statistics_to_pb(ProtocolStatistics(**counts)) == pb.GetProtocolStatsResponse(**counts)
