"""Turns the calls in a text into calls of tools: one for each call, or one for each of its commands."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mnemon_server.domain.encoding import text_digest
from mnemon_server.domain.tool_calls import Protocol, ToolCall, VcpCommand
from mnemon_server.services.tools.argument_schema import ArgumentSchema

ACTION, COMMAND = "action", "command"

SchemaOf = Callable[[str], ArgumentSchema | None]
"""Returns the schema of a tool's arguments by the tool's name; None if there is no such tool."""


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call to run; `command_number` is 0 if it is a whole call of the text."""

    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    command_number: int = 0


def planned_calls(calls: Iterable[ToolCall], schema_of: SchemaOf) -> Iterator[PlannedCall]:
    """The calls to run, in order.

    An ABP action becomes the argument `action` if the tool has that argument and the parameters do not set it. If the
    tool has an argument `action` or `command`, each numbered VCP command becomes a call of its own. Any other tool gets
    all fields in one call.
    """
    for call in calls:
        schema = schema_of(call.tool)
        name = _name_of_command(schema)
        if name and call.vcp is not None and call.vcp.commands:
            for command in call.vcp.commands:
                yield _planned(call, schema, _of_command(name, command), command.number)
        else:
            yield _planned(call, schema, _of_call(call, schema))


def derived_request_id(request_id: str, of: int | str) -> str:
    """The request id of a call with this number in a text, or of this caller; "" if there is none to derive it from."""
    return text_digest(json.dumps([request_id, of])).hex() if request_id else ""


def _planned(
    call: ToolCall, schema: ArgumentSchema | None, arguments: Mapping[str, Any], command_number: int = 0
) -> PlannedCall:
    if schema is not None and call.protocol is Protocol.VCP:
        arguments = schema.from_texts(arguments)
    return PlannedCall(call.id, call.tool, arguments, command_number)


def _of_call(call: ToolCall, schema: ArgumentSchema | None) -> Mapping[str, Any]:
    if call.action and schema is not None and ACTION in schema.names:
        return {ACTION: call.action, **call.parameters}
    return call.parameters


def _of_command(name: str, command: VcpCommand) -> Mapping[str, Any]:
    return {name: command.command, **command.parameters}


def _name_of_command(schema: ArgumentSchema | None) -> str:
    """The argument that takes a command; "" if the tool has no such argument."""
    names = schema.names if schema is not None else ()
    return next((name for name in (ACTION, COMMAND) if name in names), "")
