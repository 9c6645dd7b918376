"""The two memory tools: names, descriptions and schemas, what a call of them must look like, and what it returns."""

import json
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from mnemon_server.domain.documents import QUERY_BYTES_MAX
from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.facts import FILTER_OPERATORS, FactMatch, filter_expression, key_violations
from mnemon_server.domain.filters import Expression
from mnemon_server.domain.validation import content_violations, refuse, text_violations

MANAGE_MEMORY, SEARCH_MEMORY = "manage_memory", "search_memory"
LIMIT_DEFAULT, LIMIT_MAX = 10, 1_000
OFFSET_MAX = 100_000

MANAGE_INSTRUCTIONS = """\
Call this without being asked when:
- the user states a preference, or a fact about themselves that will matter later;
- the user asks you to remember or to forget something, or to behave differently from now on;
- you learn something while working that a later conversation will need;
- a memory turns out to be wrong or out of date."""
SEARCH_INSTRUCTIONS = "Call this before you answer whenever something from an earlier conversation may matter."


class MemoryAction(StrEnum):
    """What `manage_memory` does to a memory."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


class ResponseFormat(StrEnum):
    """What `search_memory` returns: a text, or the text together with the facts themselves."""

    CONTENT = "content"
    CONTENT_AND_ARTIFACT = "content_and_artifact"


class SchemaStyle(StrEnum):
    """Whose form of a tool's schema."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


ALL_ACTIONS = tuple(MemoryAction)
_RETURNS = {
    MemoryAction.CREATE: "created memory {}",
    MemoryAction.UPDATE: "updated memory {}",
    MemoryAction.DELETE: "Deleted memory {}",
}


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as a language model is told of it; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: dict[str, Any]
    actions_permitted: tuple[MemoryAction, ...] = ()


@dataclass(frozen=True, slots=True)
class ManageCall:
    """A call of `manage_memory` that may run; `id` is there but for a creation, `content` but for a deletion."""

    action: MemoryAction
    content: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class SearchCall:
    """A call of `search_memory` that may run."""

    query: str
    limit: int = LIMIT_DEFAULT
    offset: int = 0
    where: Expression | None = None


def permitted_actions(actions: Iterable[str]) -> tuple[MemoryAction, ...]:
    """The actions in the order given, each once. Raises InvalidArgumentError where there is none, or one is unknown."""
    named = [actions] if isinstance(actions, str) else list(dict.fromkeys(actions))
    if not named:
        raise InvalidArgumentError.of("actions_permitted", f"must hold at least one of {_listed(ALL_ACTIONS)}")
    for action in named:
        if action not in ALL_ACTIONS:
            raise InvalidArgumentError.of("actions_permitted", f"must hold only {_listed(ALL_ACTIONS)}, not {action!r}")
    return tuple(map(MemoryAction, named))


def default_action(permitted: Sequence[MemoryAction]) -> MemoryAction:
    """What a call without an action does: create, or where that is not permitted the first action that is."""
    return MemoryAction.CREATE if MemoryAction.CREATE in permitted else permitted[0]


def manage_definition(
    actions_permitted: Iterable[str] = ALL_ACTIONS, instructions: str = MANAGE_INSTRUCTIONS
) -> ToolDefinition:
    """`manage_memory`; raises InvalidArgumentError as `permitted_actions` does."""
    permitted = permitted_actions(actions_permitted)
    summary = f"{_verbs(permitted)} memories that are kept for later conversations. {_id_rule(permitted)}"
    description = "\n".join(part for part in (summary, instructions) if part)
    return ToolDefinition(MANAGE_MEMORY, description, _manage_parameters(permitted), permitted)


def search_definition(instructions: str = SEARCH_INSTRUCTIONS) -> ToolDefinition:
    """`search_memory`."""
    summary = "Search the memories kept from earlier conversations, by meaning and by word."
    description = "\n".join(part for part in (summary, instructions) if part)
    return ToolDefinition(SEARCH_MEMORY, description, _search_parameters())


def tool_schema(tool: ToolDefinition, style: str) -> dict[str, Any]:
    """The tool as the API of a model's vendor takes it. Raises InvalidArgumentError for an unknown style."""
    named, parameters = {"name": tool.name, "description": tool.description}, deepcopy(tool.parameters)
    if style == SchemaStyle.ANTHROPIC:
        return {**named, "input_schema": parameters}
    if style == SchemaStyle.OPENAI:
        return {"type": "function", "function": {**named, "parameters": parameters}}
    raise InvalidArgumentError.of("style", f"must be one of {_listed(SchemaStyle)}, not {style!r}")


def check_manage(action: object, content: object, id: object, permitted: Sequence[MemoryAction]) -> ManageCall:  # noqa: A002 - the argument's name in the tool
    """The call that these arguments make; an action of None is the default, an id of "" is none.

    Raises:
        InvalidArgumentError: the first of these that holds: the action is not permitted; an id is given to create; the
            id is missing to update or delete; the id, and then the content, is not valid.
    """
    chosen = default_action(permitted) if action is None else action
    if not isinstance(chosen, str) or chosen not in permitted:
        raise InvalidArgumentError.of("action", f"must be one of {_listed(permitted)}, not {str(chosen)[:80]!r}")
    verb, given = MemoryAction(chosen), id is not None and id != ""
    if verb is MemoryAction.CREATE and given:
        raise InvalidArgumentError.of("id", "must be left out to create a memory: it gets an id of its own")
    if verb is not MemoryAction.CREATE and not given:
        raise InvalidArgumentError.of("id", f"must name the memory to {verb}")
    key = _key(id) if given else ""
    return ManageCall(verb, "" if verb is MemoryAction.DELETE else _content(content, verb), key)


def check_search(query: object, limit: object = LIMIT_DEFAULT, offset: object = 0, filter: object = None) -> SearchCall:  # noqa: A002 - the argument's name in the tool
    """The call that these arguments make; a limit or offset of None is the default.

    Raises:
        InvalidArgumentError: an argument is not valid, or the filter has an unknown operator.
    """
    if not isinstance(query, str) or not query.strip():
        raise InvalidArgumentError.of("query", "must be a text that is not blank")
    refuse(text_violations(query, "query", QUERY_BYTES_MAX))
    most = _whole("limit", limit, LIMIT_DEFAULT, 1, LIMIT_MAX)
    return SearchCall(query, most, _whole("offset", offset, 0, 0, OFFSET_MAX), filter_expression(filter))


def manage_result(action: MemoryAction, key: str) -> str:
    """What `manage_memory` returns once it is done."""
    return _RETURNS[action].format(key)


def search_content(matches: Iterable[FactMatch]) -> str:
    """What `search_memory` returns, as JSON: a list of facts, best first, with times in ISO 8601; "[]" for none."""
    return json.dumps([_match_dict(match) for match in matches], ensure_ascii=False, allow_nan=False)


def search_result(matches: Sequence[FactMatch], response_format: str) -> str | tuple[str, tuple[FactMatch, ...]]:
    """What `search_memory` returns in the format asked for. Raises InvalidArgumentError for an unknown format."""
    if response_format not in tuple(ResponseFormat):
        raise InvalidArgumentError.of("response_format", f"must be one of {_listed(ResponseFormat)}")
    content = search_content(matches)
    return content if response_format == ResponseFormat.CONTENT else (content, tuple(matches))


def _match_dict(match: FactMatch) -> dict[str, Any]:
    fact = match.fact
    return {
        "namespace": list(fact.namespace),
        "key": fact.key,
        "value": fact.value,
        "created_at": fact.created_at.isoformat(),
        "updated_at": fact.updated_at.isoformat(),
        "score": match.score,
    }


def _key(given: object) -> str:
    if not isinstance(given, str | UUID):
        raise InvalidArgumentError.of("id", "must be text")
    refuse(key_violations(str(given), "id"))
    return str(given)


def _content(content: object, verb: MemoryAction) -> str:
    if not isinstance(content, str):
        raise InvalidArgumentError.of("content", f"must be the text to {verb} a memory with")
    refuse(content_violations(content, "content"))
    return content


def _whole(field: str, value: object, default: int, least: int, most: int) -> int:
    if value is None:
        return default
    # Where a number has come through a protobuf Struct, it is a double.
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    if isinstance(whole, bool) or not isinstance(whole, int) or not least <= whole <= most:
        raise InvalidArgumentError.of(field, f"must be a whole number of {least:,} to {most:,}")
    return whole


def _manage_parameters(permitted: tuple[MemoryAction, ...]) -> dict[str, Any]:
    """Only what the permitted actions take, and required where all of them need it."""
    writes, names = set(permitted) - {MemoryAction.DELETE}, set(permitted) - {MemoryAction.CREATE}
    properties: dict[str, Any] = {}
    if writes:
        properties["content"] = {"type": "string", "description": f"What to remember; needed to {_any_of(writes)}."}
    action = {"type": "string", "enum": [str(verb) for verb in permitted], "default": str(default_action(permitted))}
    properties["action"] = {**action, "description": "What to do."}
    if names:
        properties["id"] = {"type": "string", "description": f"Which memory to {_any_of(names)}."}
    always = [name for name, takers in (("content", writes), ("id", names)) if takers == set(permitted)]
    return {"type": "object", "properties": properties, "required": always, "additionalProperties": False}


def _search_parameters() -> dict[str, Any]:
    operators = ", ".join(FILTER_OPERATORS)
    properties = {
        "query": {"type": "string", "description": "What to look for, in plain words."},
        "limit": _integer("How many memories to return at most.", LIMIT_DEFAULT, 1, LIMIT_MAX),
        "offset": _integer("How many of the best memories to skip.", 0, 0, OFFSET_MAX),
        "filter": {
            "type": "object",
            "description": f"What must hold of a memory: key to value, or key to an object of {operators}.",
        },
    }
    return {"type": "object", "properties": properties, "required": ["query"], "additionalProperties": False}


def _integer(description: str, default: int, least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "default": default, "minimum": least, "maximum": most, "description": description}


def _verbs(permitted: Sequence[MemoryAction]) -> str:
    *first, last = (str(action) for action in permitted)
    return (f"{', '.join(first)} or {last}" if first else last).capitalize()


def _id_rule(permitted: Sequence[MemoryAction]) -> str:
    named = {action for action in permitted if action is not MemoryAction.CREATE}
    rules = ["Leave `id` out to create a memory."] if MemoryAction.CREATE in permitted else []
    if named:
        rules.append(f"Give the `id` of the memory to {_any_of(named)}.")
    return " ".join(rules)


def _any_of(actions: Iterable[MemoryAction]) -> str:
    return " or ".join(action for action in MemoryAction if action in set(actions))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
