"""The tool service's requests and answers, the larger answers as bytes."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain

from mnemon.shared.tool_definitions import MemoryAction
from mnemon.v1 import tools_pb2 as pb

from mnemon_server.domain.tool_calls import (
    Fallback,
    ParseOptions,
    ParseResult,
    ProtocolStatistics,
    ToolCall,
)
from mnemon_server.domain.tools import (
    CallTool,
    ExecutedText,
    ExecuteText,
    ListedTool,
    ToolCallResult,
    ToolContext,
    ToolOutput,
    UnofferedTool,
)
from mnemon_server.services.background.offload import Pause, converted
from mnemon_server.services.tools.service import given_violations
from mnemon_server.transport.convert.facts import match_in_pieces
from mnemon_server.transport.convert.shared.fields import filled
from mnemon_server.transport.convert.shared.json_values import read_object
from mnemon_server.transport.convert.shared.reader import Reader, read_min_trust
from mnemon_server.transport.convert.shared.several import fill_each
from mnemon_server.transport.convert.shared.wire import Pieces, in_field, joined, size_of
from mnemon_server.transport.errors import MessageTooLargeError
from mnemon_server.transport.incidents import report
from mnemon_server.wire.enums import members_of

ACTIONS = members_of(pb.MemoryAction, MemoryAction)
_FALLBACKS = {
    Fallback.NONE: pb.TOOL_FALLBACK_UNSPECIFIED,
    Fallback.VCP: pb.TOOL_FALLBACK_VCP,
    Fallback.PLAIN_TEXT: pb.TOOL_FALLBACK_PLAIN_TEXT,
}
_ACTIONS_TO_PB = {str(action): number for number, action in ACTIONS.items()}


def tools_to_pb(tools: Iterable[ListedTool], unoffered: Iterable[UnofferedTool] = ()) -> pb.ListToolsResponse:
    """The tools as they are offered to a model, and those that are not offered."""
    message = pb.ListToolsResponse()
    for tool in tools:
        actions = [_ACTIONS_TO_PB[action] for action in tool.actions_permitted]
        filled(message.tools.add(), tool, actions_permitted=actions)
    for missing in unoffered:
        message.unoffered.add(name=missing.name, reason=missing.reason)
    return message


async def output_in_pieces(output: ToolOutput) -> Pieces:
    """A ToolOutput; yields to other calls."""
    pieces = [await converted(_without_artifact, output, len(output.content))]
    pause = Pause()
    for match in output.artifact:
        pieces += in_field(pb.ToolOutput.ARTIFACT_FIELD_NUMBER, await match_in_pieces(match))
        await pause.where_due()
    return pieces


def _without_artifact(output: ToolOutput) -> bytes:
    return pb.ToolOutput(
        content=output.content, truncated=output.truncated, nothing_relevant=output.nothing_relevant
    ).SerializeToString()


async def called_to_bytes(output: ToolOutput) -> bytes:
    """A CallToolResponse."""
    return await joined(in_field(pb.CallToolResponse.OUTPUT_FIELD_NUMBER, await output_in_pieces(output)))


async def parsed_to_pb(parsed: ParseResult) -> pb.ParseToolCallsResponse:
    """The calls that were read from a text, as an answer."""
    message = pb.ParseToolCallsResponse()
    await fill_parsed(message.parsed, parsed)
    return message


async def executed_to_bytes(executed: ExecutedText, *, bytes_max: int) -> bytes:
    """An ExecuteTextResponse: the calls that were read, and their results.

    If it is longer than `bytes_max`, errors take the place of the longest outputs: a caller must learn the outcome of
    every call.
    """
    message = pb.ExecuteTextResponse()
    await fill_parsed(message.parsed, executed.parsed)
    parsed = message.SerializeToString()
    outputs = {
        place: await output_in_pieces(result.outcome)
        for place, result in enumerate(executed.results)
        if isinstance(result.outcome, ToolOutput)
    }
    results = []
    pause = Pause()
    for place, result in enumerate(executed.results):
        results.append(_result_in_pieces(result, outputs.get(place, ())))
        await pause.where_due()
    sizes = {place: size_of(output) for place, output in outputs.items()}
    excess = len(parsed) + sum(map(size_of, results)) - bytes_max
    for place in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if excess <= 0:
            break
        what = f"what the tool returned has {sizes[place]:,} bytes, too many beside the other answers"
        error = MessageTooLargeError(f"{what}; ask it for less, or call it by itself")
        shorter = _result_in_pieces(replace(executed.results[place], outcome=error))
        excess -= size_of(results[place]) - size_of(shorter)
        results[place] = shorter
    return await joined([parsed, *chain.from_iterable(results)])


async def fill_parsed(target: pb.ParsedText, parsed: ParseResult) -> None:
    """Writes what was read from a text into a message of its own; yields to other calls."""
    target.success = parsed.success
    target.error = parsed.error
    target.raw_content = parsed.raw_content
    target.fallback = _FALLBACKS[parsed.fallback]
    await fill_each(target.calls, parsed.calls, _fill_call)
    await fill_each(target.problems, parsed.problems, filled)


def statistics_to_pb(statistics: ProtocolStatistics) -> pb.GetProtocolStatsResponse:
    """How many texts were read, and how."""
    return filled(pb.GetProtocolStatsResponse(), statistics)


def _fill_call(target: pb.ToolCall, call: ToolCall) -> None:
    vcp = call.vcp
    filled(
        target,
        call,
        call_id=call.id,
        commands=vcp.commands if vcp else None,
        asynchronous=vcp.flags.asynchronous if vcp else None,
        no_reply=vcp.flags.no_reply if vcp else None,
    )


def _result_in_pieces(result: ToolCallResult, output: Pieces = ()) -> Pieces:
    """A result in its field of the answer. `output` is empty if the call failed."""
    message = pb.ToolCallResult(call_id=result.call_id, command_number=result.command_number, tool=result.tool)
    if isinstance(result.outcome, Exception):
        message.error.CopyFrom(report(result.outcome).to_item_error())
    pieces = [message.SerializeToString()]
    if output:
        pieces += in_field(pb.ToolCallResult.OUTPUT_FIELD_NUMBER, output)
    return in_field(pb.ExecuteTextResponse.RESULTS_FIELD_NUMBER, pieces)


RESPONSE_FORMATS: Mapping[int, bool] = {
    pb.RESPONSE_FORMAT_UNSPECIFIED: False,
    pb.RESPONSE_FORMAT_CONTENT: False,
    pb.RESPONSE_FORMAT_CONTENT_AND_ARTIFACT: True,
}
"""Whether to return the facts themselves as well."""
_NO_CONTEXT = ToolContext()


def read_call(request: pb.CallToolRequest) -> CallTool:
    """The call."""
    reader = Reader()
    call = CallTool(
        tool=request.tool,
        arguments=read_object(reader, "arguments", request.arguments),
        context=_context(reader, request.context) if request.HasField("context") else _NO_CONTEXT,
        artifact=reader.enum("response_format", request.response_format, RESPONSE_FORMATS),
        request_id=request.request_id,
    )
    reader.finish(given_violations(call))
    return call


def read_execute(request: pb.ExecuteTextRequest) -> ExecuteText:
    """The text whose calls are to be run."""
    reader = Reader()
    text = ExecuteText(
        text=request.text,
        options=options_from_pb(request.options),
        context=_context(reader, request.context) if request.HasField("context") else _NO_CONTEXT,
        artifact=reader.enum("response_format", request.response_format, RESPONSE_FORMATS),
        request_id=request.request_id,
    )
    reader.finish(given_violations(text))
    return text


def read_actions(request: pb.ListToolsRequest) -> tuple[MemoryAction, ...]:
    """The permitted actions of the tool manage_memory."""
    reader = Reader()
    actions = _actions(reader, "actions_permitted", request.actions_permitted)
    reader.finish()
    return actions


def options_from_pb(message: pb.ParseOptions) -> ParseOptions:
    """The strictness of the parser."""
    return ParseOptions(
        strict_envelope=message.strict_envelope,
        require_end_marker=message.require_end_marker if message.HasField("require_end_marker") else True,
        strict_boundaries=message.strict_boundaries,
        dual_mode=message.dual_mode if message.HasField("dual_mode") else True,
    )


def _context(reader: Reader, message: pb.ToolContext) -> ToolContext:
    """The context that the application gives to a call."""
    return ToolContext(
        namespace=tuple(message.namespace),
        config=read_object(reader, "context.config", message.config),
        actions_permitted=_actions(reader, "context.actions_permitted", message.actions_permitted),
        metadata=reader.metadata("context.metadata", message.metadata),
        min_trust=read_min_trust(reader, "context.min_trust", message),
        time_zone=reader.time_zone("context.time_zone", message.time_zone),
    )


def _actions(reader: Reader, field: str, numbers: Iterable[int]) -> tuple[MemoryAction, ...]:
    return tuple(reader.enum(f"{field}[{place}]", number, ACTIONS) for place, number in enumerate(numbers))
