"""Converts the values of tools to protobuf messages, and back."""

from mnemon._enums import members_by_number
from mnemon._messages.facts import match_from_pb
from mnemon._messages.json import object_from_pb
from mnemon._status import error_from_item
from mnemon._tool_definitions import MemoryAction
from mnemon._values import tools
from mnemon.v1 import tools_pb2 as pb

_ENUMS = pb.DESCRIPTOR.enum_types_by_name
_KINDS = members_by_number(tools.ToolKind, _ENUMS["ToolKind"])
_PROTOCOLS = members_by_number(tools.ToolProtocol, _ENUMS["ToolProtocol"])
_ACTIONS = members_by_number(MemoryAction, _ENUMS["MemoryAction"])
_REPAIRS = members_by_number(tools.JsonRepair, _ENUMS["JsonRepair"])
_FALLBACKS = members_by_number(tools.ToolFallback, _ENUMS["ToolFallback"])


def tool_from_pb(tool: pb.Tool) -> tools.Tool:
    """A tool as a model sees it."""
    return tools.Tool(
        name=tool.name,
        description=tool.description,
        parameters=object_from_pb(tool.parameters),
        actions_permitted=tuple(_ACTIONS[number] for number in tool.actions_permitted if number in _ACTIONS),
        kind=_KINDS.get(tool.kind, tools.ToolKind.UNKNOWN),
    )


def output_from_pb(output: pb.ToolOutput) -> tools.ToolOutput:
    """What a tool returned."""
    artifact = tuple(map(match_from_pb, output.artifact))
    return tools.ToolOutput(output.content, artifact, output.truncated, output.nothing_relevant)


def parsed_from_pb(parsed: pb.ParsedText) -> tools.ParsedText:
    """The parsed text."""
    return tools.ParsedText(
        success=parsed.success,
        calls=tuple(map(_call_from_pb, parsed.calls)),
        error=parsed.error,
        raw_content=parsed.raw_content,
        fallback=_FALLBACKS.get(parsed.fallback, tools.ToolFallback.NONE),
        problems=tuple(map(_problem_from_pb, parsed.problems)),
    )


def executed_from_pb(response: pb.ExecuteTextResponse) -> tools.ExecutedText:
    """The parsed text, and the results of its calls."""
    return tools.ExecutedText(parsed_from_pb(response.parsed), tuple(map(_result_from_pb, response.results)))


def stats_from_pb(response: pb.GetProtocolStatsResponse) -> tools.ProtocolStats:
    """Counts of the texts by outcome."""
    return tools.ProtocolStats(
        total=response.total,
        abp_success=response.abp_success,
        abp_failed=response.abp_failed,
        vcp_fallback_success=response.vcp_fallback_success,
        vcp_fallback_failed=response.vcp_fallback_failed,
        plain_text=response.plain_text,
    )


def _call_from_pb(call: pb.ToolCall) -> tools.ToolCall:
    return tools.ToolCall(
        call_id=call.call_id,
        tool=call.tool,
        action=call.action,
        parameters=object_from_pb(call.parameters),
        protocol=_PROTOCOLS.get(call.protocol, tools.ToolProtocol.UNKNOWN),
        repairs=tuple(_REPAIRS.get(number, tools.JsonRepair.UNKNOWN) for number in call.repairs),
        commands=tuple(
            tools.VcpCommand(each.number, each.command, dict(sorted(each.parameters.items()))) for each in call.commands
        ),
        asynchronous=call.asynchronous,
        no_reply=call.no_reply,
    )


def _problem_from_pb(problem: pb.BlockProblem) -> tools.BlockProblem:
    protocol = _PROTOCOLS.get(problem.protocol, tools.ToolProtocol.UNKNOWN)
    return tools.BlockProblem(protocol, problem.reason, problem.tool, problem.offset, problem.line)


def _result_from_pb(result: pb.ToolCallResult) -> tools.ToolCallResult:
    failed = result.WhichOneof("outcome") != "output"
    return tools.ToolCallResult(
        result.call_id,
        result.command_number,
        result.tool,
        output=None if failed else output_from_pb(result.output),
        error=error_from_item(result.error) if failed else None,
    )
