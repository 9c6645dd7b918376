"""From the calls of a text to the calls of tools that they make: one for each call, or for each command of it."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mnemon_server.domain.encoding import text_digest
from mnemon_server.domain.tool_calls import Protocol, ToolCall, VcpCommand
from mnemon_server.services.tools.argument_schema import ArgumentSchema

ACTION, COMMAND = "action", "command"

SchemaOf = Callable[[str], ArgumentSchema | None]
"""The schema of a tool's arguments by its name; None where there is no such tool."""


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call that is to be run; `command_number` is 0 where it is the whole call of the text."""

    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    command_number: int = 0


def planned_calls(calls: Iterable[ToolCall], schema_of: SchemaOf) -> Iterator[PlannedCall]:
    """What is to be run, in order.

    An action of ABP is the argument `action` where the tool takes one and the parameters do not give it. The numbered
    commands of VCP are a call each where the tool takes an `action`, or a `command`; a tool that takes neither gets all
    fields in one call.
    """
    for call in calls:
        schema = schema_of(call.tool)
        name = _name_of_command(schema)
        if name and call.vcp is not None and call.vcp.commands:
            for command in call.vcp.commands:
                yield _planned(call, schema, _of_command(name, command), command.number)
        else:
            yield _planned(call, schema, _of_call(call, schema))


def derived_request_id(request_id: str, number: int) -> str:
    """The request id of a text's call number `number`; "" where the text has none."""
    return text_digest(json.dumps([request_id, number])).hex() if request_id else ""


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
    """The argument that takes a command; "" where none does."""
    names = schema.names if schema is not None else ()
    return next((name for name in (ACTION, COMMAND) if name in names), "")
