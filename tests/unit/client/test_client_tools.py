"""Tools are called with the application's context, and their results come back as plain values."""

import json
from typing import Any

import grpc
import mnemon
import pytest
from mnemon import Client
from mnemon._messages.json import object_from_pb, object_to_pb
from mnemon.v1 import common_pb2, errors_pb2, facts_pb2
from mnemon.v1 import tools_pb2 as pb

from tests.unit.client.scripted_server import failing, scripted_server

SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
TOOL = pb.Tool(
    name="search_memory", description="Search.", parameters=object_to_pb("p", SCHEMA), kind=pb.TOOL_KIND_MEMORY
)
TOLD = pb.ListToolsResponse(
    tools=[TOOL, pb.Tool(name="weather", description="Ask.", kind=pb.TOOL_KIND_FORWARDED, actions_permitted=[1, 9])]
)
DONE = pb.CallToolResponse(output=pb.ToolOutput(content="created memory 1"))


def test_schemas_have_the_format_of_the_vendors_api() -> None:
    with scripted_server(lambda *_: TOLD) as (address, _), Client(address) as client:
        openai, anthropic = client.tools.schemas("openai"), client.tools.schemas("anthropic")

    assert openai[0] == {
        "type": "function",
        "function": {"name": "search_memory", "description": "Search.", "parameters": SCHEMA},
    }
    assert anthropic[0] == {"name": "search_memory", "description": "Search.", "input_schema": SCHEMA}
    assert [each["name"] for each in anthropic] == ["search_memory", "weather"]


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda tools: tools.schemas("palm"), "style"),
        (lambda tools: tools.list(actions_permitted=[]), "actions_permitted"),
        (lambda tools: tools.call("t", {}, actions_permitted=["purge"]), "actions_permitted"),
        (lambda tools: tools.call("t", "content: tea", config={}), "arguments"),
        (lambda tools: tools.call("t", "[1]"), "arguments"),
        (lambda tools: tools.call("t", "[" * 100_000), "arguments"),
        (lambda tools: tools.call("t", {}, response_format="json"), "response_format"),
        (lambda tools: tools.call("t", {}, config={"callbacks": object()}), "config.callbacks"),
        (lambda tools: tools.call("t", {}, metadata={"a": None}), "metadata.a"),
        (lambda tools: tools.parse(b"text"), "text"),
        (lambda tools: tools.execute("text", response_format=""), "response_format"),
    ],
)
def test_an_invalid_argument_is_refused_and_named(call: Any, field: str) -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(ValueError) as raised:
        call(client.tools)

    assert isinstance(raised.value, mnemon.InvalidArgumentError)
    assert raised.value.violations[0].field == field


def test_an_unknown_option_is_refused() -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(TypeError, match="'strict'"):
        client.tools.parse("text", strict=True)  # type: ignore[call-arg]


def test_a_call_sends_the_models_arguments_and_the_applications_context() -> None:
    with scripted_server(lambda *_: DONE) as (address, server), Client(address) as client:
        output = client.tools.call(
            "manage_memory",
            '{"content": "tea", "n": 5}',
            config={"user_id": "ada", "secret": "s"},
            namespace=("{user_id}", "notes"),
            actions_permitted=("create",),
            metadata={"channel": "chat"},
            response_format="content_and_artifact",
            request_id="r-1",
        )
        client.tools.call("manage_memory", {"content": "tea"}, config={"user_id": "ada", "tenant": "t"})
        client.tools.call("manage_memory", {}, namespace="notes", config={"secret": "s"})

    assert output == mnemon.ToolOutput("created memory 1")
    full, plain, fixed = server.requests
    assert (full.tool, object_from_pb(full.arguments), full.request_id) == (
        "manage_memory",
        {"content": "tea", "n": 5},
        "r-1",
    )
    assert list(full.context.namespace) == ["{user_id}", "notes"]
    assert object_from_pb(full.context.config) == {"user_id": "ada", "secret": None}
    assert full.context.metadata["channel"].string_value == "chat"
    assert full.response_format == pb.RESPONSE_FORMAT_CONTENT_AND_ARTIFACT
    assert object_from_pb(plain.context.config) == {"user_id": "ada", "tenant": "t"}
    assert not plain.context.namespace and plain.request_id
    assert (list(fixed.context.namespace), object_from_pb(fixed.context.config)) == (["notes"], {})


def test_a_call_is_not_retried_because_the_tool_may_have_run() -> None:
    line = failing(grpc.StatusCode.UNAVAILABLE, "did not answer", reason="TOOL_UNREACHABLE")
    with scripted_server(line) as (address, server), Client(address) as client:
        with pytest.raises(mnemon.ToolUnreachableError):
            client.tools.call("weather", {})
        with pytest.raises(mnemon.ToolUnreachableError):
            client.tools.execute("text")

    assert len(server.requests) == 2


def test_parsed_calls_come_back_completely() -> None:
    call = pb.ToolCall(
        call_id="1",
        tool="Files",
        parameters=object_to_pb("p", {"n": "5"}),
        protocol=pb.TOOL_PROTOCOL_VCP,
        repairs=[pb.JSON_REPAIR_OPEN_BRACKETS, 99],
        commands=[pb.VcpCommand(number=1, command="read", parameters={"path": "a"})],
        asynchronous=True,
        no_reply=True,
    )
    problem = pb.BlockProblem(protocol=pb.TOOL_PROTOCOL_ABP, reason="no end marker", tool="t", offset=3, line=2)
    text = pb.ParsedText(
        success=True, calls=[call], raw_content="text", fallback=pb.TOOL_FALLBACK_VCP, problems=[problem]
    )
    response = pb.ParseToolCallsResponse(parsed=text)
    with scripted_server(lambda *_: response) as (address, server), Client(address) as client:
        parsed = client.tools.parse("text", strict_envelope=True, dual_mode=False)
        client.tools.parse("text")

    assert parsed.calls == (
        mnemon.ToolCall(
            "1",
            "Files",
            "",
            {"n": "5"},
            mnemon.ToolProtocol.VCP,
            (mnemon.JsonRepair.OPEN_BRACKETS, mnemon.JsonRepair.UNKNOWN),
            (mnemon.VcpCommand(1, "read", {"path": "a"}),),
            True,
            True,
        ),
    )
    assert (parsed.success, parsed.error, parsed.raw_content, parsed.fallback) == (True, "", "text", "vcp")
    assert parsed.problems == (mnemon.BlockProblem(mnemon.ToolProtocol.ABP, "no end marker", "t", 3, 2),)
    asked, plain = server.requests
    assert asked.options.strict_envelope and asked.options.HasField("dual_mode") and not asked.options.dual_mode
    assert not plain.options.HasField("dual_mode") and not plain.options.HasField("require_end_marker")


def test_every_call_of_a_text_has_its_result_or_its_error() -> None:
    error = common_pb2.ItemError(code=5, message="no such tool", reason=errors_pb2.ERROR_REASON_TOOL_NOT_FOUND)
    match = facts_pb2.FactMatch(fact=facts_pb2.Fact(key="tea"), score={"relevance": 0.5})
    output = pb.ToolOutput(content="[]", artifact=[match])
    response = pb.ExecuteTextResponse(
        parsed=pb.ParsedText(fallback=pb.TOOL_FALLBACK_PLAIN_TEXT, error="ABP parsing failed"),
        results=[
            pb.ToolCallResult(call_id="1", tool="search_memory", output=output),
            pb.ToolCallResult(call_id="2", command_number=3, tool="gone", error=error),
        ],
    )
    with scripted_server(lambda *_: response) as (address, server), Client(address) as client:
        done = client.tools.execute("text", config={"user_id": "ada"}, require_end_marker=False)

    found, failed = done.results
    assert found.output is not None and [each.key for each in found.output.artifact] == ["tea"]
    assert (found.content, found.error, failed.output, failed.command_number) == ("[]", None, None, 3)
    assert isinstance(failed.error, mnemon.ToolNotFoundError)
    assert failed.content == "error: no such tool"
    assert (done.parsed.fallback, done.parsed.error) == ("plain-text", "ABP parsing failed")
    written = json.loads(done.to_json())
    assert written["results"][1]["error"]["reason"] == "TOOL_NOT_FOUND"
    assert written["results"][0]["output"]["artifact"][0]["key"] == "tea"
    [request] = server.requests
    assert request.options.HasField("require_end_marker") and request.request_id
