"""Tools, calls and their results are converted to messages and back without loss."""

from datetime import UTC, datetime

import mnemon
from mnemon.v1 import errors_pb2
from mnemon.v1 import tools_pb2 as pb
from mnemon_server.domain.errors import ToolFailedError
from mnemon_server.domain.facts import Fact, FactMatch
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.tool_calls import (
    BlockProblem,
    CallFlags,
    Fallback,
    ParseOptions,
    ParseResult,
    Protocol,
    Repair,
    ToolCall,
    VcpCommand,
    VcpDetails,
)
from mnemon_server.domain.tools import (
    CallTool,
    ExecutedText,
    ExecuteText,
    ToolCallResult,
    ToolOutput,
)
from mnemon_server.transport.convert import tools as convert
from mnemon_server.transport.convert import tools as requests
from mnemon_server.wire.enums import numbers_of

from tests.support.refusals import refused_fields
from tests.support.tool_messages import struct
from tests.support.turns import Turns

ROOM = 1 << 20
NOW = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
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


def test_missing_fields_have_their_defaults() -> None:
    assert requests.read_call(pb.CallToolRequest(tool="x")) == CallTool(tool="x")
    assert requests.read_execute(pb.ExecuteTextRequest(text="x")) == ExecuteText(text="x")
    assert requests.options_from_pb(pb.ParseOptions()) == ParseOptions()


def test_every_action_and_every_repair_has_its_number() -> None:
    assert set(convert.ACTIONS) == set(pb.MemoryAction.values()) - {0}
    numbers = {*numbers_of(pb.JsonRepair, Repair).values()}
    assert numbers == set(pb.JsonRepair.values()) - {0, pb.JSON_REPAIR_INNER_QUOTES}
    told = {repair.name: repair.value for repair in mnemon.JsonRepair}
    assert told == {"UNKNOWN": "unknown", "INNER_QUOTES": "quotes inside of strings"} | {
        repair.name: repair.value for repair in Repair
    }
    assert refused_fields(requests.read_actions, pb.ListToolsRequest(actions_permitted=[1, 0])) == [
        "actions_permitted[1]"
    ]


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


async def told(executed: ExecutedText) -> pb.ExecuteTextResponse:
    """What a client reads."""
    return pb.ExecuteTextResponse.FromString(await convert.executed_to_bytes(executed, bytes_max=ROOM))


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
