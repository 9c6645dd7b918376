"""Requests to the tool service as values.

Each function raises InvalidArgumentError if a field cannot be read as a value, and then with everything that is wrong;
see `Reader`.
"""

from collections.abc import Iterable, Mapping

from mnemon.v1 import tools_pb2 as pb

from mnemon_server.domain.tool_calls import ParseOptions
from mnemon_server.domain.tools import CallTool, ExecuteText, ToolContext
from mnemon_server.services.tools.definitions import MemoryAction
from mnemon_server.services.tools.service import given_violations
from mnemon_server.transport.convert.shared.json_values import read_object
from mnemon_server.transport.convert.shared.reader import Reader
from mnemon_server.transport.convert.tools import ACTIONS

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
    )


def _actions(reader: Reader, field: str, numbers: Iterable[int]) -> tuple[MemoryAction, ...]:
    return tuple(reader.enum(f"{field}[{place}]", number, ACTIONS) for place, number in enumerate(numbers))
