"""Runs the two memory tools on the facts of one vault."""

from collections.abc import Mapping, Sequence
from copy import copy
from functools import lru_cache
from typing import Any

from mnemon.shared.tool_definitions import (
    ALL_ACTIONS,
    MANAGE_INSTRUCTIONS,
    MANAGE_MEMORY,
    SEARCH_INSTRUCTIONS,
    MemoryAction,
    ToolDefinition,
)
from mnemon.shared.tool_results import RESULT_KIB_DEFAULT

from mnemon_server.domain.errors import AnswerFullError, ConfigurationError, InvalidArgumentError
from mnemon_server.domain.facts import FactFilter, FactMatch, FactQuery, PutFact, PutMode, shadow_violations
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.origins import less_trusted, not_from
from mnemon_server.domain.recall import RecallItem, RecallQuery
from mnemon_server.domain.records import Relevance, WriteOutcome
from mnemon_server.domain.tools import CallTool, ListedTool, ToolContext, ToolKind, ToolOutput
from mnemon_server.domain.validation import refuse
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.facts.store import FactStore
from mnemon_server.services.facts.tool_namespaces import ToolNamespaces
from mnemon_server.services.protocols.parsing import parse_tool_calls
from mnemon_server.services.reading.answers import Room
from mnemon_server.services.reading.filter_expressions import joined
from mnemon_server.services.recall.store import RecallStore
from mnemon_server.services.tools.argument_schema import ArgumentSchema
from mnemon_server.services.tools.definitions import (
    ManageCall,
    SearchCall,
    check_manage,
    check_search,
    manage_definition,
    manage_result,
    permitted_actions,
    search_content,
    search_definition,
    shortened_item,
)

_Found = tuple[Sequence[FactMatch | RecallItem], Relevance | None, bool]
"""The results of a search, best first, how relevant the best one is, and whether the answer ended before the last."""

NO_ROOM = "the results of the earlier calls fill the answer, so this search returned nothing; call it by itself"
_OBJECTS = frozenset(("filter", "metadata"))

REPAIRED_MAX = 4_096
"""The longest text of an object that is repaired, in characters: calls wait for it on the event loop."""

ACTIONS_MAX = 64
"""How many actions a call may name, counting repeated ones."""


class MemoryTools:
    """`manage_memory` and `search_memory`. The application chooses their namespace; arguments cannot change it."""

    def __init__(
        self,
        facts: FactStore,
        recall: RecallStore,
        offload: Offload,
        *,
        actions_permitted: Sequence[str] = ALL_ACTIONS,
        result_kib: int = RESULT_KIB_DEFAULT,
    ) -> None:
        """Takes the server's settings. The context of a call may narrow the actions, and replace the namespace.

        The first of `actions_permitted` is the default without create. A search returns at most `result_kib` of text.

        Raises:
            ConfigurationError: an action is unknown, or there are no actions.
        """
        self._facts = facts
        self._recall = recall
        self._offload = offload
        self._permitted = _configured_actions(actions_permitted)
        self._result_kib = result_kib

    def over(self, facts: FactStore, recall: RecallStore) -> "MemoryTools":
        """The same tools on a part of the records."""
        part = copy(self)
        part._facts, part._recall = facts, recall
        return part

    @property
    def namespaces(self) -> ToolNamespaces:
        """The namespaces that calls concern."""
        return self._recall.namespaces

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
        namespace = self.namespaces.of(request.context)
        return ToolOutput(await self._change(call, namespace, request))

    async def _change(self, call: ManageCall, namespace: Namespace, request: CallTool) -> str:
        """Runs the action; returns its result for the model."""
        key, exists = call.id, True
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
                key = (await self._facts.put(put)).receipt.id
            case MemoryAction.UPDATE:
                await self._facts.update_content(
                    namespace, call.id, call.content, call.metadata, request_id=request.request_id
                )
            case MemoryAction.DELETE:
                receipt = await self._facts.delete(namespace, key, allow_missing=True, request_id=request.request_id)
                exists = receipt.outcome is not WriteOutcome.MISSING
        return manage_result(call.action, key, exists=exists)

    async def _search(self, request: CallTool, arguments: Mapping[str, Any], room: Room | None) -> ToolOutput:
        given = (arguments.get(name) for name in ("query", "limit", "offset", "filter", "kinds"))
        zone = request.context.time_zone
        call = check_search(*given, zone=zone)
        _search_schema().check(arguments)
        asked = self._asked(call, request.context)
        if room is not None and room.is_full:
            raise AnswerFullError(NO_ROOM)
        before = room.taken if room is not None else 0
        matches, relevance, is_cut = await self._found(asked, call, room)
        truncated = is_cut or (room is not None and room.is_full)
        if truncated and not matches:
            raise AnswerFullError(NO_ROOM)
        content, shown = await self._offload(
            search_content, matches, self._result_kib, offset=call.offset, truncated=truncated, zone=zone
        )
        if room is not None and not request.artifact:
            room.count_as(len(content.encode()), since=before)
        return ToolOutput(
            content,
            tuple(match for match in matches if isinstance(match, FactMatch)) if request.artifact else (),
            truncated or shown < len(matches),
            nothing_relevant=relevance is not None and relevance.is_low,
        )

    def _asked(self, call: SearchCall, context: ToolContext) -> FactQuery | RecallQuery:
        if call.is_of_facts:
            untrusted = not_from(less_trusted(context.min_trust)) if context.min_trust else None
            wanted = FactFilter(namespace=self.namespaces.of(context), where=joined([call.where, untrusted]))
            return FactQuery(filter=wanted, text=call.query, limit=call.limit, offset=call.offset)
        return RecallQuery(
            text=call.query,
            kinds=call.kinds,
            scope=self.namespaces.scope_of(context),
            namespace=self.namespaces.of(context) if RecordKind.FACT in call.kinds else (),
            subtree=False,
            filters=call.filters(),
            min_trust=context.min_trust,
            limit=call.offset + call.limit,
        )

    async def _found(self, asked: FactQuery | RecallQuery, call: SearchCall, room: Room | None) -> _Found:
        if isinstance(asked, FactQuery):
            facts = await self._facts.search(asked, room=room)
            return facts.matches, facts.diagnostics.relevance, False
        found = await self._recall.recall(asked, room=room)
        # Neighbouring turns come last, without a score.
        items = (*found.items[call.offset :], *(() if call.offset else found.neighbours))
        shortened = await self._offload(lambda: [shortened_item(item, call.query) for item in items])
        return shortened, found.relevance, found.truncated

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
