"""The scenarios of the tool-call protocols: calls in a model's text are parsed and run, against a real server."""

import json
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from grpc import aio
from mnemon.v1 import tools_pb2 as pb

from tests.support.server import Connection, failure_of
from tests.support.tool_messages import context, everything, recall, remember

CREATE = (
    '[[ABP_TOOL:manage_memory]]\n{"action": "create", "parameters": {"content": "Ada likes tea."}}\n[[END_ABP_TOOL]]'
)
VCP = """<<<[TOOL_REQUEST]>>>
tool_name:「始」manage_memory「末」,
action:「始」create「末」,
content:「始」Ada likes coffee.
Black.「末」
<<<[END_TOOL_REQUEST]>>>"""


async def parse(connection: Connection, text: str, **options: Any) -> pb.ParsedText:
    """What is parsed from a text."""
    request = pb.ParseToolCallsRequest(text=text, options=pb.ParseOptions(**options))
    parsed: pb.ParsedText = (await connection.tools.ParseToolCalls(request)).parsed
    return parsed


async def execute(connection: Connection, text: str, **fields: Any) -> pb.ExecuteTextResponse:
    """The result of running a text."""
    request = pb.ExecuteTextRequest(text=text, context=context(), **fields)
    response: pb.ExecuteTextResponse = await connection.tools.ExecuteText(request)
    return response


async def stored(connection: Connection) -> list[str]:
    """The texts of all facts."""
    return [str(fact.value["content"]) for fact in await everything(connection.facts)]


def reasons(response: pb.ExecuteTextResponse) -> list[int]:
    """The status codes of the results, 0 for those that succeeded."""
    return [result.error.code if result.HasField("error") else 0 for result in response.results]


# Requirement: ABP Protocol Implementation


async def test_abp_tool_request_parsing(connection: Connection) -> None:
    said = f"Let me note that.\n{CREATE}\nDone. " + CREATE.replace("tea", "cake").replace(":manage", ": manage")

    parsed = await parse(connection, said)

    assert (parsed.success, parsed.error, parsed.fallback) == (True, "", pb.TOOL_FALLBACK_UNSPECIFIED)
    assert parsed.raw_content == said
    assert [(call.tool, call.action) for call in parsed.calls] == [("manage_memory", "create")] * 2
    assert MessageToDict(parsed.calls[0].parameters) == {"content": "Ada likes tea."}
    assert len({call.call_id for call in parsed.calls}) == 2
    assert await stored(connection) == []

    executed = await execute(connection, said)

    assert reasons(executed) == [0, 0]
    assert [result.call_id for result in executed.results] == [call.call_id for call in executed.parsed.calls]
    assert all(result.output.content.startswith("created memory ") for result in executed.results)
    assert await stored(connection) == ["Ada likes tea.", "Ada likes cake."]

    # The structure is validated before anything runs, and an invalid call does not affect the others.
    mixed = "\n".join(
        [
            CREATE.replace("tea", "soup"),
            CREATE.replace('"content": "Ada likes tea."', '"content": 5'),
            CREATE.replace("manage_memory", "format_disk"),
            CREATE.replace('"create"', '"delete"'),
            '[[ABP_TOOL:search_memory]]{"query": "soup", "limit": 1}[[END_ABP_TOOL]]',
        ]
    )
    executed = await execute(connection, mixed)
    bad, missing = grpc.StatusCode.INVALID_ARGUMENT.value[0], grpc.StatusCode.NOT_FOUND.value[0]
    assert reasons(executed) == [0, bad, missing, bad, 0]
    assert executed.results[1].error.violations[0].field.endswith("content")
    [fact] = json.loads(executed.results[4].output.content)
    assert fact["value"] == {"content": "Ada likes soup."}
    assert await stored(connection) == ["Ada likes tea.", "Ada likes cake.", "Ada likes soup."]


@pytest.mark.parametrize(
    ("inside", "repairs"),
    [
        ('{"parameters": {"content": "Ada likes tea."', {"OPEN_BRACKETS"}),
        ('{"parameters": {"content": "Ada likes tea.}}', {"OPEN_STRINGS"}),
        ("{'content': 'Ada likes tea.',}", {"SINGLE_QUOTES", "EXTRA_COMMAS"}),
        ('Sure! Here it is:\n```json\n{"content": "Ada likes tea."}\n```\nThat is all.', {"SURROUNDING_TEXT"}),
        ('{"content": "Ada likes milk."} or rather {"content": "Ada likes tea."}', {"SURROUNDING_TEXT"}),
    ],
)
async def test_abp_protocol_error_recovery(connection: Connection, inside: str, repairs: set[str]) -> None:
    thinking = "Hm, hm. <think>[[ABP_TOOL:no]]{}[[END_ABP_TOOL]]</think>"
    said = f"{thinking}\n[[ABP_TOOL:manage_memory]]{inside}[[END_ABP_TOOL]] ok"

    executed = await execute(connection, said)

    [call] = executed.parsed.calls
    assert MessageToDict(call.parameters) == {"content": "Ada likes tea."}
    assert repairs <= {pb.JsonRepair.Name(each).removeprefix("JSON_REPAIR_") for each in call.repairs}
    assert await stored(connection) == ["Ada likes tea."]


async def test_abp_protocol_error_recovery_keeps_to_the_boundaries(connection: Connection) -> None:
    unfinished = CREATE.removesuffix("[[END_ABP_TOOL]]")
    for said in (unfinished, unfinished.rstrip()[:-3], f"<thinking>{CREATE}", f"{unfinished} and so on"):
        executed = await execute(connection, said)
        assert (executed.parsed.success, executed.parsed.error) == (False, "ABP parsing failed")
        assert executed.parsed.fallback == pb.TOOL_FALLBACK_PLAIN_TEXT
        assert executed.parsed.raw_content == said
        assert not executed.results
        assert len(executed.parsed.problems) == 1
    assert await stored(connection) == []
    hidden = await execute(connection, f"<thinking>{CREATE}")
    [problem] = hidden.parsed.problems
    assert (problem.protocol, problem.offset, problem.line) == (pb.TOOL_PROTOCOL_UNSPECIFIED, 0, 1)
    assert f"hides {len(CREATE) + 10} characters, among them a marker of a call" in problem.reason

    executed = await execute(connection, unfinished, options=pb.ParseOptions(require_end_marker=False))
    assert reasons(executed) == [0]
    inner = await execute(connection, unfinished + CREATE.replace("tea", "cake"))
    assert len(inner.parsed.calls) == len(inner.parsed.problems) == 1
    assert await stored(connection) == ["Ada likes tea.", "Ada likes cake."]
    strict = await execute(connection, unfinished + CREATE, options=pb.ParseOptions(strict_boundaries=True))
    assert not strict.results
    refused = await failure_of(connection.tools.ParseToolCalls(pb.ParseToolCallsRequest(text="x" * (2**20 + 1))))
    assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_abp_protocol_fallback(connection: Connection) -> None:
    broken = "[[ABP_TOOL:manage_memory]]no JSON at all[[END_ABP_TOOL]]"

    executed = await execute(connection, f"{broken}\n{VCP}")

    [call] = executed.parsed.calls
    assert (call.protocol, executed.parsed.fallback) == (pb.TOOL_PROTOCOL_VCP, pb.TOOL_FALLBACK_VCP)
    assert [problem.protocol for problem in executed.parsed.problems] == [pb.TOOL_PROTOCOL_ABP]
    assert await stored(connection) == ["Ada likes coffee.\nBlack."]

    alone = await execute(connection, f"{broken}\n{VCP}", options=pb.ParseOptions(dual_mode=False))
    assert (alone.parsed.success, alone.parsed.error) == (False, "ABP parsing failed")
    assert (alone.parsed.fallback, alone.parsed.raw_content) == (pb.TOOL_FALLBACK_PLAIN_TEXT, f"{broken}\n{VCP}")
    assert not alone.results


# Requirement: Dual Protocol Compatibility


async def test_dual_protocol_mode(connection: Connection) -> None:
    # ABP first: if it has a call, VCP in the same text is ignored.
    both = await execute(connection, f"{VCP}\n{CREATE}")
    assert [call.protocol for call in both.parsed.calls] == [pb.TOOL_PROTOCOL_ABP]
    assert await stored(connection) == ["Ada likes tea."]

    await execute(connection, VCP)
    await execute(connection, "Just a sentence.")
    await parse(connection, "[[ABP_TOOL:x]]")
    await parse(connection, VCP, dual_mode=False)

    stats = await connection.tools.GetProtocolStats(pb.GetProtocolStatsRequest())
    assert (stats.total, stats.abp_success, stats.plain_text) == (5, 1, 2)
    assert (stats.abp_failed, stats.vcp_fallback_success, stats.vcp_fallback_failed) == (2, 1, 1)


async def test_vcp_texts_are_converted_to_the_types_of_the_schema(connection: Connection) -> None:
    for content in ("Ada likes tea.", "Ada likes teapots."):
        await remember(connection.tools, content)
    said = """<<<[TOOL_REQUEST]>>>
    tool_name:「始」search_memory「末」, query:「始」tea「末」, limit:「始」1「末」, archery:「始」no_reply「末」
    <<<[END_TOOL_REQUEST]>>>"""

    executed = await execute(connection, said)

    [call] = executed.parsed.calls
    assert (call.asynchronous, call.no_reply) == (True, True)
    assert len(json.loads(executed.results[0].output.content)) == 1


async def test_numbered_commands_run_one_by_one(connection: Connection) -> None:
    said = """<<<[TOOL_REQUEST]>>>
    tool_name:「始」manage_memory「末」
    command1:「始」create「末」 content1:「始」One.「末」
    command2:「始」create「末」 content2:「始ESCAPE」Two: 「末」<<<[END_TOOL_REQUEST_ESCAPE]>>>「末ESCAPE」
    command4:「始」create「末」 content4:「始」Behind a gap.「末」
    <<<[END_TOOL_REQUEST]>>>"""

    executed = await execute(connection, said)

    assert [(result.command_number, result.error.message) for result in executed.results] == [(1, ""), (2, "")]
    assert await stored(connection) == ["One.", "Two: 「末」<<<[END_TOOL_REQUEST]>>>"]


async def test_repeating_a_text_with_its_request_id_changes_nothing_twice(connection: Connection) -> None:
    said = f"{CREATE}\n{CREATE}"
    first = await execute(connection, said, request_id="turn-7")
    again = await execute(connection, said, request_id="turn-7")

    assert [result.output.content for result in again.results] == [result.output.content for result in first.results]
    assert await stored(connection) == ["Ada likes tea."] * 2
    assert len(await recall(connection.tools, "tea")) == 2


async def test_a_text_that_is_not_utf_8_is_refused(connection: Connection) -> None:
    method: Any = connection.channel.unary_unary("/mnemon.v1.ToolService/ParseToolCalls")
    with pytest.raises(aio.AioRpcError) as raised:
        await method(b"\x0a\x01\xff")
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
