"""Runs tools for language models: by name, or out of what a model wrote."""

from collections.abc import Sequence

from mnemon_server.domain.errors import AnswerFullError, InvalidArgumentError
from mnemon_server.domain.tool_calls import ParseOptions, ParseResult, ProtocolStatistics
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
from mnemon_server.services.facts.store import FactStore
from mnemon_server.services.protocols.parsing import DEFAULT_OPTIONS, parse_tool_calls
from mnemon_server.services.protocols.statistics import ProtocolCounters
from mnemon_server.services.shared.answers import Room
from mnemon_server.services.shared.offload import Offload
from mnemon_server.services.tools.argument_schema import ArgumentSchema
from mnemon_server.services.tools.definitions import ALL_ACTIONS
from mnemon_server.services.tools.memory_tools import MemoryTools
from mnemon_server.services.tools.planning import PlannedCall, derived_request_id, planned_calls
from mnemon_server.services.tools.registry import MEMORY_TOOLS, ToolRegistry

_ACTIONS_FIELD = "context.actions_permitted"


class ToolRunner:
    """The tools of one vault: those of its memory, and the operator's."""

    def __init__(
        self,
        facts: FactStore,
        registry: ToolRegistry,
        offload: Offload,
        *,
        actions_permitted: Sequence[str] = ALL_ACTIONS,
        namespace: Sequence[str] = (),
    ) -> None:
        """Takes what it runs on, and closes none of it.

        Args:
            facts: what the memory tools store and find.
            registry: the operator's tools.
            offload: where texts are read and arguments checked; its threads bound how many are at once, since a hostile
                text of 1 MiB takes seconds.
            actions_permitted: what `manage_memory` may do at most.
            namespace: a template for calls whose context has none; empty: `default_namespace`.

        Raises:
            ConfigurationError: an action is unknown or there is none, or the template is not valid.
        """
        self._memory = MemoryTools(facts, offload, actions_permitted=actions_permitted, namespace=namespace)
        self._registry = registry
        self._offload = offload
        self._counters = ProtocolCounters()

    def list_tools(
        self,
        actions_permitted: Sequence[str] = (),
        *,
        manage_instructions: str | None = None,
        search_instructions: str | None = None,
    ) -> tuple[ListedTool, ...]:
        """The memory's tools, then the operator's in the order of their names.

        Raises InvalidArgumentError where an action is unknown, or more than the server permits.
        """
        memory = self._memory.listed(actions_permitted, manage_instructions, search_instructions)
        return (*memory, *(tool.listed for tool in self._registry.forwarded()))

    def unoffered_tools(self) -> tuple[UnofferedTool, ...]:
        """The operator's tools whose schemas this server does not support."""
        return self._registry.unoffered()

    async def call(self, request: CallTool, *, room: Room | None = None) -> ToolOutput:
        """Runs one tool.

        What it returns is no more than there is room for; a search that has none at all is not run.

        Raises:
            ToolNotFoundError: there is no such tool.
            InvalidArgumentError: the arguments are not as its schema says, or the context permits more than the server.
            ConfigurationError: the context gives no namespace.
            FactNotFoundError: there is nothing to update in this namespace.
            ToolUnreachableError, ToolFailedError: an operator's endpoint does not answer, or not well.
            TooManyRequestsError: as many calls of the operator's tool as may be are in flight.
            AnswerFullError: there is no room for what the tool returned, or would return.
        """
        self._memory.permitted(request.context.actions_permitted, _ACTIONS_FIELD)
        if request.tool in MEMORY_TOOLS:
            return await self._memory.call(request, room)
        return await self._forward(request, room)

    async def parse(self, text: str, options: ParseOptions = DEFAULT_OPTIONS) -> ParseResult:
        """Reads the calls of a text, and runs none. Raises InvalidArgumentError for a text above 1 MiB."""
        parsed = await self._offload(parse_tool_calls, text, options)
        self._counters.count(parsed, options)
        return parsed

    async def execute(self, request: ExecuteText, *, room: Room | None = None) -> ExecutedText:
        """Reads the calls of a text and runs each in order; one that fails gets its error, and the others go on.

        All of them share the room; where it is used up, AnswerFullError stands for what has none, and what only reads
        is not run.

        At most 64 are run; each further one gets an error that says so. Raises InvalidArgumentError for a text above
        1 MiB, and where the context permits what the server does not.
        """
        self._memory.permitted(request.context.actions_permitted, _ACTIONS_FIELD)
        parsed = await self.parse(request.text, request.options)
        planned = await self._offload(self._planned, parsed, request.context)
        results = [await self._result(number, call, request, room) for number, call in enumerate(planned[:CALLS_MAX])]
        if len(planned) > CALLS_MAX:
            results += await self._offload(_not_run, planned[CALLS_MAX:])
        return ExecutedText(parsed, tuple(results))

    def statistics(self) -> ProtocolStatistics:
        """What became of the texts that were read since this was made."""
        return self._counters.statistics()

    def _planned(self, parsed: ParseResult, context: ToolContext) -> list[PlannedCall]:
        return list(planned_calls(parsed.calls, lambda tool: self._schema(tool, context)))

    def _schema(self, tool: str, context: ToolContext) -> ArgumentSchema | None:
        if tool in MEMORY_TOOLS:
            return self._memory.schema(tool, context)
        return self._registry.forwarded_tool(tool).schema if tool in self._registry.names else None

    async def _result(self, number: int, call: PlannedCall, request: ExecuteText, room: Room | None) -> ToolCallResult:
        return _result_of(call, await self._outcome(number, call, request, room))

    async def _outcome(
        self, number: int, call: PlannedCall, request: ExecuteText, room: Room | None
    ) -> ToolOutput | Exception:
        one = CallTool(
            tool=call.tool,
            arguments=call.arguments,
            context=request.context,
            artifact=request.artifact,
            request_id=derived_request_id(request.request_id, number),
        )
        try:
            return await self.call(one, room=room)
        except Exception as error:  # noqa: BLE001 - it is the answer to this call; the others go on
            return error

    async def _forward(self, request: CallTool, room: Room | None) -> ToolOutput:
        tool = self._registry.forwarded_tool(request.tool)
        # Before any other work: a call that has no place is told so at once.
        with tool.slots:
            await self._offload(tool.schema.check, request.arguments)
            namespace = self._memory.namespace_if_given(request.context)
            content = await tool.endpoint.call(request.tool, request.arguments, namespace, request.request_id)
        if room is not None and not await room.take(len(content.encode())):
            size = f"{len(content.encode()):,} bytes"
            raise AnswerFullError(f"the tool was run; its {size} are too many beside the other results")
        return ToolOutput(content)


def _result_of(call: PlannedCall, outcome: ToolOutput | Exception) -> ToolCallResult:
    return ToolCallResult(call_id=call.call_id, tool=call.tool, outcome=outcome, command_number=call.command_number)


def _not_run(calls: Sequence[PlannedCall]) -> list[ToolCallResult]:
    """One error for all of them: a text may hold tens of thousands."""
    error = InvalidArgumentError.of("text", f"at most {CALLS_MAX} calls of a text are run; this one was not")
    return [_result_of(call, error) for call in calls]
