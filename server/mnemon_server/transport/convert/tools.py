"""Conversion of the tool service's requests and answers. Both directions.

What is no value raises ValueError; `checks.tools` says what is wrong with it.
"""

from collections.abc import Iterable, Mapping

from mnemon.v1 import tools_pb2 as pb

from mnemon_server.domain.tool_calls import (
    BlockProblem,
    Fallback,
    ParseOptions,
    ParseResult,
    Protocol,
    ProtocolStatistics,
    ToolCall,
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
from mnemon_server.transport.convert.facts import fill_match
from mnemon_server.transport.convert.shared.json_values import fill_object, object_from_pb
from mnemon_server.transport.convert.shared.pause import Pause
from mnemon_server.transport.errors import MessageTooLargeError
from mnemon_server.transport.incidents import report
from mnemon_server.wire.values import checked_metadata_from_pb

RESPONSE_FORMATS: Mapping[int, bool] = {
    pb.RESPONSE_FORMAT_UNSPECIFIED: False,
    pb.RESPONSE_FORMAT_CONTENT: False,
    pb.RESPONSE_FORMAT_CONTENT_AND_ARTIFACT: True,
}
"""Whether the facts themselves are wanted, too."""
_PROTOCOLS = {protocol: pb.ToolProtocol.Value(f"TOOL_PROTOCOL_{protocol.name}") for protocol in Protocol}
_FALLBACKS = {
    Fallback.NONE: pb.TOOL_FALLBACK_UNSPECIFIED,
    Fallback.VCP: pb.TOOL_FALLBACK_VCP,
    Fallback.PLAIN_TEXT: pb.TOOL_FALLBACK_PLAIN_TEXT,
}
_KINDS = {kind: pb.ToolKind.Value(f"TOOL_KIND_{kind.name}") for kind in ToolKind}
_NO_CONTEXT = ToolContext()


def call_from_pb(message: pb.CallToolRequest) -> CallTool:
    """The call."""
    return CallTool(
        tool=message.tool,
        arguments=object_from_pb(message.arguments),
        context=context_from_pb(message.context) if message.HasField("context") else _NO_CONTEXT,
        artifact=_artifact(message.response_format),
        request_id=message.request_id,
    )


def execute_from_pb(message: pb.ExecuteTextRequest) -> ExecuteText:
    """The text whose calls are to be run."""
    return ExecuteText(
        text=message.text,
        options=options_from_pb(message.options),
        context=context_from_pb(message.context) if message.HasField("context") else _NO_CONTEXT,
        artifact=_artifact(message.response_format),
        request_id=message.request_id,
    )


def context_from_pb(message: pb.ToolContext) -> ToolContext:
    """What the application knows of a call."""
    return ToolContext(
        namespace=tuple(message.namespace),
        config=object_from_pb(message.config),
        actions_permitted=tuple(message.actions_permitted),
        metadata=checked_metadata_from_pb(message.metadata),
    )


def options_from_pb(message: pb.ParseOptions) -> ParseOptions:
    """How strictly a text is read."""
    return ParseOptions(
        strict_envelope=message.strict_envelope,
        require_end_marker=message.require_end_marker if message.HasField("require_end_marker") else True,
        strict_boundaries=message.strict_boundaries,
        dual_mode=message.dual_mode if message.HasField("dual_mode") else True,
    )


def tools_to_pb(tools: Iterable[ListedTool]) -> pb.ListToolsResponse:
    """The tools as a model is told of them."""
    message = pb.ListToolsResponse()
    for tool in tools:
        target = message.tools.add(
            name=tool.name,
            description=tool.description,
            actions_permitted=tool.actions_permitted,
            kind=_KINDS[tool.kind],
        )
        fill_object(target.parameters, tool.parameters)
    return message


async def fill_output(target: pb.ToolOutput, output: ToolOutput) -> None:
    """Writes what a tool returned into a message of its own; lets other calls through where it is long."""
    target.content = output.content
    pause = Pause()
    for match in output.artifact:
        await fill_match(target.artifact.add(), match)
        await pause.where_due()


async def output_to_pb(output: ToolOutput) -> pb.CallToolResponse:
    """The same as an answer."""
    message = pb.CallToolResponse()
    message.output.SetInParent()
    await fill_output(message.output, output)
    return message


async def parsed_to_pb(parsed: ParseResult) -> pb.ParseToolCallsResponse:
    """What was read out of a text, as an answer."""
    message = pb.ParseToolCallsResponse()
    await fill_parsed(message.parsed, parsed)
    return message


async def executed_to_pb(executed: ExecutedText, *, bytes_max: int) -> pb.ExecuteTextResponse:
    """What was read, and what came of it.

    Where that is more than `bytes_max`, the longest outputs give way to errors: whoever ran a text must be told what
    became of all of its calls.
    """
    message = pb.ExecuteTextResponse()
    await fill_parsed(message.parsed, executed.parsed)
    pause = Pause()
    for result in executed.results:
        await _fill_result(message.results.add(), result)
        await pause.where_due()
    _leave_out_longest(message, bytes_max)
    return message


async def fill_parsed(target: pb.ParsedText, parsed: ParseResult) -> None:
    """Writes what was read out of a text into a message of its own; lets other calls through where it is long."""
    target.success = parsed.success
    target.error = parsed.error
    target.raw_content = parsed.raw_content
    target.fallback = _FALLBACKS[parsed.fallback]
    pause = Pause()
    for call in parsed.calls:
        _fill_call(target.calls.add(), call)
        await pause.where_due()
    for problem in parsed.problems:
        _fill_problem(target.problems.add(), problem)
        await pause.where_due()


def statistics_to_pb(statistics: ProtocolStatistics) -> pb.GetProtocolStatsResponse:
    """What became of the texts read."""
    return pb.GetProtocolStatsResponse(
        total=statistics.total,
        abp_success=statistics.abp_success,
        abp_failed=statistics.abp_failed,
        vcp_fallback_success=statistics.vcp_fallback_success,
        vcp_fallback_failed=statistics.vcp_fallback_failed,
        plain_text=statistics.plain_text,
    )


def _artifact(number: int) -> bool:
    if number not in RESPONSE_FORMATS:
        raise ValueError("the format is not known")
    return RESPONSE_FORMATS[number]


def _fill_call(target: pb.ToolCall, call: ToolCall) -> None:
    target.call_id = call.id
    target.tool = call.tool
    target.action = call.action
    fill_object(target.parameters, call.parameters)
    target.protocol = _PROTOCOLS[call.protocol]
    target.repairs.extend(call.repairs)
    if call.vcp is not None:
        _fill_vcp(target, call.vcp)


def _fill_vcp(target: pb.ToolCall, details: VcpDetails) -> None:
    for command in details.commands:
        target.commands.add(number=command.number, command=command.command, parameters=command.parameters)
    target.asynchronous = details.flags.asynchronous
    target.no_reply = details.flags.no_reply


def _fill_problem(target: pb.BlockProblem, problem: BlockProblem) -> None:
    target.protocol = _PROTOCOLS[problem.protocol]
    target.reason = problem.reason
    target.tool = problem.tool
    target.offset = problem.offset
    target.line = problem.line


async def _fill_result(target: pb.ToolCallResult, result: ToolCallResult) -> None:
    target.call_id = result.call_id
    target.command_number = result.command_number
    target.tool = result.tool
    if isinstance(result.outcome, ToolOutput):
        target.output.SetInParent()
        await fill_output(target.output, result.outcome)
    else:
        _fill_error(target, result.outcome)


def _leave_out_longest(message: pb.ExecuteTextResponse, bytes_max: int) -> None:
    excess = message.ByteSize() - bytes_max
    if excess <= 0:
        return
    outputs = [result for result in message.results if result.HasField("output")]
    for result in sorted(outputs, key=lambda result: result.ByteSize(), reverse=True):
        if excess <= 0:
            return
        size, output_size = result.ByteSize(), result.output.ByteSize()
        what = f"what the tool returned has {output_size:,} bytes, too many beside the other answers"
        _fill_error(result, MessageTooLargeError(f"{what}; ask it for less, or call it by itself"))
        excess -= size - result.ByteSize()


def _fill_error(target: pb.ToolCallResult, error: Exception) -> None:
    target.error.CopyFrom(report(error).to_item_error())
