"""Runs the two memory tools on the facts of one vault."""

from collections.abc import Mapping, Sequence
from copy import copy
from functools import lru_cache
from typing import Any

from mnemon_server.domain.errors import AnswerFullError, ConfigurationError, InvalidArgumentError
from mnemon_server.domain.facts import FactFilter, FactQuery, PutFact, PutMode, shadow_violations
from mnemon_server.domain.namespaces import Namespace, NamespaceTemplate, namespace_resolver
from mnemon_server.domain.records import Scope
from mnemon_server.domain.tools import CallTool, ListedTool, ToolContext, ToolKind, ToolOutput
from mnemon_server.domain.validation import refuse
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.facts.store import FactStore
from mnemon_server.services.protocols.parsing import parse_tool_calls
from mnemon_server.services.reading.answers import Room
from mnemon_server.services.tools.argument_schema import ArgumentSchema
from mnemon_server.services.tools.definitions import (
    ALL_ACTIONS,
    MANAGE_INSTRUCTIONS,
    MANAGE_MEMORY,
    RESULT_KIB_DEFAULT,
    SEARCH_INSTRUCTIONS,
    ManageCall,
    MemoryAction,
    ToolDefinition,
    check_manage,
    check_search,
    manage_definition,
    manage_result,
    permitted_actions,
    search_content,
    search_definition,
)

NO_ROOM = "the results of the earlier calls fill the answer, so this search returned nothing; call it by itself"
_OBJECTS = frozenset(("filter", "metadata"))
_DEFAULT_KEYS = frozenset(("org_id", "user_id", "agent_id"))

REPAIRED_MAX = 4_096
"""The longest text of an object that is repaired, in characters: calls wait for it on the event loop."""

ACTIONS_MAX = 64
"""How many actions a call may name, counting repeated ones."""


class MemoryTools:
    """`manage_memory` and `search_memory`. The application chooses their namespace; arguments cannot change it."""

    def __init__(
        self,
        facts: FactStore,
        offload: Offload,
        *,
        actions_permitted: Sequence[str] = ALL_ACTIONS,
        namespace: Sequence[str] = (),
        result_kib: int = RESULT_KIB_DEFAULT,
    ) -> None:
        """Takes the server's settings. The context of a call may narrow the actions, and replace the namespace.

        Args:
            facts: stores and finds the memories.
            offload: formats results as text on threads.
            actions_permitted: all actions that `manage_memory` may do; the first one is the default without create.
            namespace: a template for calls whose context has none; if empty, `default_namespace` is used.
            result_kib: the most text that a search returns.

        Raises:
            ConfigurationError: an action is unknown, there are no actions, or the template is not valid.
        """
        self._facts = facts
        self._offload = offload
        self._permitted = _configured_actions(actions_permitted)
        self._template = NamespaceTemplate(tuple(namespace)) if namespace else None
        self._result_kib = result_kib
        self._own: Namespace | None = None

    def over(self, facts: FactStore, namespace: Namespace | None) -> "MemoryTools":
        """The same tools on a part of the facts; `namespace` is that of calls whose context says nothing about it."""
        part = copy(self)
        part._facts, part._own = facts, namespace
        return part

    def listed(
        self, actions: Sequence[str], manage_instructions: str | None, search_instructions: str | None
    ) -> tuple[ListedTool, ...]:
        """The definitions of both tools for a model; instructions of None mean the default ones."""
        manage = MANAGE_INSTRUCTIONS if manage_instructions is None else manage_instructions
        search = SEARCH_INSTRUCTIONS if search_instructions is None else search_instructions
        permitted = self.permitted(actions, "actions_permitted")
        return _listed(manage_definition(permitted, manage)), _listed(search_definition(search))

    def permitted(self, actions: Sequence[str], field: str) -> tuple[MemoryAction, ...]:
        """The actions that `manage_memory` may do if a call asks for `actions`; if empty, all that the server permits.

        Raises InvalidArgumentError for `field` if an action is unknown, or not permitted by the server.
        """
        if not actions:
            return self._permitted
        if len(actions) > ACTIONS_MAX:
            raise InvalidArgumentError.of(field, f"must be at most {ACTIONS_MAX}; name each one only once")
        for action in actions:
            if action not in self._permitted:
                allowed = ", ".join(map(repr, map(str, self._permitted)))
                problem = f"may contain only what this server permits, {allowed}; not {action[:80]!r}"
                raise InvalidArgumentError.of(field, problem)
        return permitted_actions(actions)

    def schema(self, tool: str, context: ToolContext) -> ArgumentSchema:
        """The schema of the arguments of one of the two tools, in this context."""
        return _manage_schema(self._context_actions(context)) if tool == MANAGE_MEMORY else _search_schema()

    def namespace(self, context: ToolContext) -> Namespace:
        """The namespace of a call in this context. Raises ConfigurationError if the context does not give it."""
        if self._own is not None and not self._gives_namespace(context):
            return self._own
        return namespace_resolver(tuple(context.namespace) or self._template)(context.config)

    def namespace_if_given(self, context: ToolContext) -> tuple[str, ...]:
        """Like `namespace`, for a tool that does not need one: () if the context says nothing about it."""
        return self.namespace(context) if self._own is not None or self._gives_namespace(context) else ()

    def namespace_of(self, scope: Scope) -> Namespace:
        """The caller's own namespace, or that of a call whose configuration names the user and the agent of a scope.

        Raises ConfigurationError if they do not give one.
        """
        if self._own is not None:
            return self._own
        given = {"user_id": scope.user, "agent_id": scope.agent}
        return self.namespace(ToolContext(config={key: value for key, value in given.items() if value}))

    def _gives_namespace(self, context: ToolContext) -> bool:
        inner = context.config.get("configurable")
        keys = {*context.config, *(inner if isinstance(inner, Mapping) else ())}
        filled_by = _DEFAULT_KEYS if self._template is None else set(self._template.keys)
        return bool(context.namespace or not filled_by or keys & filled_by)

    async def call(self, request: CallTool, room: Room | None = None) -> ToolOutput:
        """Runs one of the two tools; returns as many results as there is room for.

        Raises:
            InvalidArgumentError: the arguments do not satisfy the tool's schema, or an action is not permitted.
            ConfigurationError: the context gives no namespace.
            FactNotFoundError: the memory to update does not exist in this namespace.
            AnswerFullError: there is no room for any result of a search.
        """
        # Models may write null or an empty text for what they leave out, and a number or an object as a text.
        given = {
            name: value
            for name, value in request.arguments.items()
            if value is not None and not (value == "" and name in _OBJECTS)
        }
        arguments = self.schema(request.tool, request.context).from_texts(given)
        broken = {name: text for name, text in arguments.items() if name in _OBJECTS and isinstance(text, str)}
        arguments |= {name: _repaired(text) for name, text in broken.items()}
        if request.tool == MANAGE_MEMORY:
            return await self._manage(request, arguments)
        return await self._search(request, arguments, room)

    async def _manage(self, request: CallTool, arguments: Mapping[str, Any]) -> ToolOutput:
        permitted = self._context_actions(request.context)
        action, content, key, metadata = (arguments.get(name) for name in ("action", "content", "id", "metadata"))
        call = check_manage(action, content, key, permitted, metadata)
        _manage_schema(permitted).check(arguments)
        namespace = self.namespace(request.context)
        key = await self._change(call, namespace, request)
        return ToolOutput(manage_result(call.action, key))

    async def _change(self, call: ManageCall, namespace: Namespace, request: CallTool) -> str:
        """Runs the action; returns the key of the memory."""
        match call.action:
            case MemoryAction.CREATE:
                refuse(shadow_violations(call.metadata, request.context.metadata))
                kept = {key: value for key, value in call.metadata.items() if value is not None}
                put = PutFact(
                    namespace=namespace,
                    value={"content": call.content, **kept},
                    metadata=request.context.metadata,
                    mode=PutMode.CREATE,
                    request_id=request.request_id,
                )
                return (await self._facts.put(put)).receipt.id
            case MemoryAction.UPDATE:
                await self._facts.update_content(
                    namespace, call.id, call.content, call.metadata, request_id=request.request_id
                )
            case MemoryAction.DELETE:
                await self._facts.delete(namespace, call.id, allow_missing=True, request_id=request.request_id)
        return call.id

    async def _search(self, request: CallTool, arguments: Mapping[str, Any], room: Room | None) -> ToolOutput:
        call = check_search(*(arguments.get(name) for name in ("query", "limit", "offset", "filter")))
        _search_schema().check(arguments)
        wanted = FactFilter(namespace=self.namespace(request.context), where=call.where)
        query = FactQuery(filter=wanted, text=call.query, limit=call.limit, offset=call.offset)
        if room is not None and room.is_full:
            raise AnswerFullError(NO_ROOM)
        before = room.taken if room is not None else 0
        found = await self._facts.search(query, room=room)
        matches, relevance = found.matches, found.diagnostics.relevance
        truncated = room is not None and room.is_full
        if truncated and not matches:
            raise AnswerFullError(NO_ROOM)
        content, shown = await self._offload(
            search_content, matches, self._result_kib, offset=call.offset, truncated=truncated
        )
        if room is not None and not request.artifact:
            room.count_as(len(content.encode()), since=before)
        return ToolOutput(
            content,
            matches if request.artifact else (),
            truncated or shown < len(matches),
            nothing_relevant=relevance is not None and relevance.is_low,
        )

    def _context_actions(self, context: ToolContext) -> tuple[MemoryAction, ...]:
        return self.permitted(context.actions_permitted, "context.actions_permitted")


def _repaired(text: str) -> Any:
    """The object that a model meant, repaired as in its calls; the text if that cannot be told."""
    calls = (
        parse_tool_calls(f"[[ABP_TOOL:object]]\n{text}\n[[END_ABP_TOOL]]").calls if len(text) <= REPAIRED_MAX else ()
    )
    if len(calls) != 1:
        return text
    return {**({"action": calls[0].action} if calls[0].action else {}), **calls[0].parameters}


def _configured_actions(actions: Sequence[str]) -> tuple[MemoryAction, ...]:
    try:
        return permitted_actions(actions)
    except InvalidArgumentError as error:
        raise ConfigurationError(f"tool_{error}") from error


def _listed(tool: ToolDefinition) -> ListedTool:
    return ListedTool(
        name=tool.name,
        description=tool.description,
        parameters=tool.parameters,
        kind=ToolKind.MEMORY,
        actions_permitted=tuple(map(str, tool.actions_permitted)),
    )


@lru_cache(maxsize=16)
def _manage_schema(permitted: tuple[MemoryAction, ...]) -> ArgumentSchema:
    return ArgumentSchema(manage_definition(permitted).parameters)


@lru_cache(maxsize=1)
def _search_schema() -> ArgumentSchema:
    return ArgumentSchema(search_definition().parameters)
