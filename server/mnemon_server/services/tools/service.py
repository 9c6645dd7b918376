"""Runs tools for language models: by name, or from the text that a model wrote."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from mnemon.shared.tool_definitions import ALL_ACTIONS
from mnemon.shared.tool_results import RESULT_KIB_DEFAULT

from mnemon_server.domain.access.bounds import UNBOUNDED, Bounds
from mnemon_server.domain.encoding import text_digest
from mnemon_server.domain.errors import AnswerFullError, FieldViolation, InvalidArgumentError
from mnemon_server.domain.namespaces import Namespace, encode_namespace
from mnemon_server.domain.tool_calls import (
    ParseOptions,
    ParseResult,
    Protocol,
    ProtocolStatistics,
    ToolCall,
)
from mnemon_server.domain.tools import (
    CALLS_MAX,
    CallTool,
    ExecutedText,
    ExecuteText,
    ListedTool,
    ToolCallResult,
    ToolContext,
    ToolOutput,
    UnofferedTool,
)
from mnemon_server.domain.validation import metadata_violations, refuse, request_id_violations
from mnemon_server.services.background.offload import Offload, Pause
from mnemon_server.services.facts.store import FactStore
from mnemon_server.services.protocols.parsing import DEFAULT_OPTIONS, parse_tool_calls
from mnemon_server.services.protocols.statistics import ProtocolCounters
from mnemon_server.services.reading.answers import Room
from mnemon_server.services.recall.store import RecallStore
from mnemon_server.services.tools.argument_schema import ArgumentSchema
from mnemon_server.services.tools.memory_tools import MemoryTools
from mnemon_server.services.tools.registry import MEMORY_TOOLS, ToolRegistry

# Turns the calls in a text into calls of tools: one for each call, or one for each of its commands.


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
        for number, arguments in _arguments(call, schema.names if schema is not None else ()):
            if schema is not None and call.protocol is Protocol.VCP:
                arguments = schema.from_texts(arguments)  # noqa: PLW2901 - the same, in other types
            yield PlannedCall(call.id, call.tool, arguments, number)


def _arguments(call: ToolCall, names: Sequence[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The arguments of each command with its number, or of the whole call with 0. `names` are the tool's arguments."""
    name = next((name for name in (ACTION, COMMAND) if name in names), "")
    if name and call.vcp is not None and call.vcp.commands:
        for command in call.vcp.commands:
            yield command.number, {name: command.command, **command.parameters}
    elif call.action and ACTION in names:
        yield 0, {ACTION: call.action, **call.parameters}
    else:
        yield 0, call.parameters


def derived_request_id(request_id: str, of: int | str) -> str:
    """The request id of a call with this number in a text, or of this caller; "" if it cannot be derived."""
    return text_digest(json.dumps([request_id, of])).hex() if request_id else ""


_ACTIONS_FIELD = "context.actions_permitted"


class ToolRunner:
    """The tools of one vault: the memory tools, and the operator's tools."""

    def __init__(
        self,
        facts: FactStore,
        recall: RecallStore,
        registry: ToolRegistry,
        offload: Offload,
        *,
        actions_permitted: Sequence[str] = ALL_ACTIONS,
        result_kib: int = RESULT_KIB_DEFAULT,
    ) -> None:
        """All arguments belong to the caller, who closes them.

        The threads of `offload` limit how many texts are parsed at once, since a hostile one of 1 MiB takes seconds.
        MemoryTools says what `actions_permitted` and `result_kib` are.

        Raises:
            ConfigurationError: an action is unknown, or there are no actions.
        """
        self._memory = MemoryTools(facts, recall, offload, actions_permitted=actions_permitted, result_kib=result_kib)
        self._registry = registry
        self._offload = offload
        self._counters = ProtocolCounters()
        self._bounds, self._owner = UNBOUNDED, ""

    def over(self, facts: FactStore, recall: RecallStore, bounds: Bounds, owner: str) -> "ToolRunner":
        """The same tools for callers with bounds, on the records within them.

        `owner` marks the request ids of these callers, so that an endpoint does not take them for those of others.
        """
        part = copy(self)
        part._memory = self._memory.over(facts, recall)
        part._bounds, part._owner = bounds, owner
        return part

    def list_tools(
        self,
        actions_permitted: Sequence[str] = (),
        *,
        manage_instructions: str | None = None,
        search_instructions: str | None = None,
    ) -> tuple[ListedTool, ...]:
        """The memory tools, then the operator's tools, sorted by name.

        Raises InvalidArgumentError if an action is unknown, or not permitted by the server.
        """
        memory = self._memory.listed(actions_permitted, manage_instructions, search_instructions)
        return (*memory, *(tool.listed for tool in self._registry.forwarded()))

    def unoffered_tools(self) -> tuple[UnofferedTool, ...]:
        """The operator's tools whose schemas this server does not support."""
        return self._registry.unoffered()

    async def call(self, request: CallTool, *, room: Room | None = None) -> ToolOutput:
        """Runs one tool.

        It returns as many results as there is room for; without any room, a search is not run.

        Raises:
            ToolNotFoundError: there is no such tool.
            InvalidArgumentError: the arguments do not satisfy its schema, or the context permits more than the server.
            ConfigurationError: the context gives no namespace.
            PermissionDeniedError: the namespace of the context is outside of the caller's bounds.
            FactNotFoundError: the memory to update does not exist in this namespace.
            ToolUnreachableError, ToolFailedError: the operator's endpoint does not answer, or answers with an error.
            TooManyRequestsError: too many calls of the operator's tool are in flight.
            AnswerFullError: there is no room for the result.
        """
        refuse(given_violations(request))
        self._memory.permitted(request.context.actions_permitted, _ACTIONS_FIELD)
        if request.tool in MEMORY_TOOLS:
            return await self._memory.call(request, room)
        return await self._forward(request, room)

    async def parse(self, text: str, options: ParseOptions = DEFAULT_OPTIONS) -> ParseResult:
        """Reads the calls of a text, without running them. Raises InvalidArgumentError for a text above 1 MiB."""
        parsed = await self._offload(parse_tool_calls, text, options)
        self._counters.count(parsed, options)
        return parsed

    async def execute(self, request: ExecuteText, *, room: Room | None = None) -> ExecutedText:
        """Reads the calls of a text, and runs them in order. A call that fails gets its error, and the others go on.

        All calls share the room. Once it is used up, further results become AnswerFullError, and searches are not run.

        At most 64 calls are run; further ones get an error that says so. Raises InvalidArgumentError for a text above
        1 MiB, or if the context permits more than the server.
        """
        refuse(given_violations(request))
        self._memory.permitted(request.context.actions_permitted, _ACTIONS_FIELD)
        parsed = await self.parse(request.text, request.options)
        planned = await self._offload(self._planned, parsed, request.context)
        results, pause = [], Pause()
        for number, call in enumerate(planned[:CALLS_MAX]):
            results.append(_result_of(call, await self._outcome(number, call, request, room)))
            # A call that fails at once does not await anything.
            await pause.where_due()
        if len(planned) > CALLS_MAX:
            results += await self._offload(_not_run, planned[CALLS_MAX:])
        return ExecutedText(parsed, tuple(results))

    def statistics(self) -> ProtocolStatistics:
        """Counts of the texts that were parsed since this object was created."""
        return self._counters.statistics()

    def _planned(self, parsed: ParseResult, context: ToolContext) -> list[PlannedCall]:
        return list(planned_calls(parsed.calls, lambda tool: self._schema(tool, context)))

    def _schema(self, tool: str, context: ToolContext) -> ArgumentSchema | None:
        if tool in MEMORY_TOOLS:
            return self._memory.schema(tool, context)
        return self._registry.forwarded_tool(tool).schema if tool in self._registry.names else None

    async def _outcome(
        self, number: int, call: PlannedCall, request: ExecuteText, room: Room | None
    ) -> ToolOutput | Exception:
        one = CallTool(
            tool=call.tool,
            arguments=call.arguments,
            context=request.context,
            artifact=request.artifact,
            request_id=derived_request_id(request.request_id, number),
            caller=request.caller,
        )
        try:
            return await self.call(one, room=room)
        except Exception as error:  # noqa: BLE001 - it is the answer to this call; the others go on
            return error

    async def _forward(self, request: CallTool, room: Room | None) -> ToolOutput:
        tool = self._registry.forwarded_tool(request.tool)
        # Before any other work, so that a call without a slot fails at once.
        with tool.slots:
            await self._offload(tool.schema.check, request.arguments)
            namespace = self._memory.namespaces.if_given(request.context)
            if namespace:
                self._bounds.check_namespace(encode_namespace(Namespace(namespace)))
            # One of two tenants must not get the answer to the other's call.
            owner = self._owner_in(namespace) or (request.caller.tenant if request.caller.subject else "")
            request_id = derived_request_id(request.request_id, owner) if owner else request.request_id
            token = tool.token_for(request.caller)
            content = await tool.endpoint.call(request.tool, request.arguments, namespace, request_id, token)
        if room is not None and not await room.take(len(content.encode())):
            size = f"{len(content.encode()):,} bytes"
            raise AnswerFullError(f"the tool was run, but its result of {size} does not fit beside the other results")
        return ToolOutput(content)

    def _owner_in(self, namespace: tuple[str, ...]) -> str:
        """Marks the request ids of these callers: of this one alone, in a namespace that others share with it."""
        own = self._bounds.namespaces
        if not namespace or own is None or any(Namespace(namespace).is_within(each) for each in own):
            return self._owner
        return f"{self._owner}:{self._bounds.holder}"


def given_violations(request: CallTool | ExecuteText) -> Iterator[FieldViolation]:
    """The faults in what both kinds of request have."""
    yield from metadata_violations(request.context.metadata, "context.metadata")
    yield from request_id_violations(request.request_id)


def _result_of(call: PlannedCall, outcome: ToolOutput | Exception) -> ToolCallResult:
    return ToolCallResult(call_id=call.call_id, tool=call.tool, outcome=outcome, command_number=call.command_number)


def _not_run(calls: Sequence[PlannedCall]) -> list[ToolCallResult]:
    """Results for calls that are not run. They share one error, since a text may have tens of thousands of calls."""
    error = InvalidArgumentError.of("text", f"at most {CALLS_MAX} calls of a text are run; this one was not")
    return [_result_of(call, error) for call in calls]
