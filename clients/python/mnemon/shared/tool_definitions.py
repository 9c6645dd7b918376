"""The two memory tools for language models: names, descriptions, JSON schemas and permitted values."""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from mnemon.shared.errors import InvalidArgumentError

MANAGE_MEMORY, SEARCH_MEMORY = "manage_memory", "search_memory"
LIMIT_DEFAULT, LIMIT_MAX = 10, 1_000
OFFSET_MAX = 100_000
KINDS = ("fact", "document", "memory", "statement", "event")
"""The kinds of records that search_memory can search."""
FILTER_OPERATORS = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin")
_OWN_KEYS = frozenset(("content", "created_at", "updated_at"))
METADATA_EXAMPLE = '{"category": "preference"}'

MANAGE_INSTRUCTIONS = """\
Call this without being asked when:
- the user states a preference, or a fact about themselves that will matter later;
- the user asks you to remember or to forget something, or to behave differently from now on;
- you learn something while working that a later conversation will need;
- a memory turns out to be wrong or out of date."""
SEARCH_INSTRUCTIONS = "Call this before you answer whenever something from an earlier conversation may matter."


NOTHING_DELETED = (
    "nothing was deleted: no memory has the id {}. search_memory returns the id of a memory as its key; only records "
    "of the kind fact can be deleted"
)
"""The result of `manage_memory` for an id that does not exist, so that a model does not say that something is gone."""


class MemoryAction(StrEnum):
    """The actions of `manage_memory`."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


class ResponseFormat(StrEnum):
    """The result format of `search_memory`: a text, or the text together with the facts themselves."""

    CONTENT = "content"
    CONTENT_AND_ARTIFACT = "content_and_artifact"


class SchemaStyle(StrEnum):
    """The vendor's format of a tool's schema."""

    OPENAI = "openai"
    """OpenAI's Chat Completions API, and those like it."""
    OPENAI_RESPONSES = "openai-responses"
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"


ALL_ACTIONS = tuple(MemoryAction)


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """The description of a tool for a language model; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: dict[str, Any]
    actions_permitted: tuple[MemoryAction, ...] = ()


class DescribedTool(Protocol):
    """The parts of a schema."""

    @property
    def name(self) -> str:
        """As calls give it."""

    @property
    def description(self) -> str:
        """The purpose, and when to call it."""

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""


def permitted_actions(actions: Iterable[str]) -> tuple[MemoryAction, ...]:
    """The actions in the given order, each once. Raises InvalidArgumentError if it is empty or one is unknown."""
    named = [actions] if isinstance(actions, str) else list(dict.fromkeys(actions))
    if not named:
        raise InvalidArgumentError.of("actions_permitted", f"must contain at least one of {_listed(ALL_ACTIONS)}")
    for action in named:
        if action not in ALL_ACTIONS:
            problem = f"may contain only {_listed(ALL_ACTIONS)}, not {action!r}"
            raise InvalidArgumentError.of("actions_permitted", problem)
    return tuple(map(MemoryAction, named))


def default_action(permitted: Sequence[MemoryAction]) -> MemoryAction:
    """The action of a call without one: create, or if that is not permitted, the first permitted action."""
    return MemoryAction.CREATE if MemoryAction.CREATE in permitted else permitted[0]


def manage_definition(
    actions_permitted: Iterable[str] = ALL_ACTIONS, instructions: str = MANAGE_INSTRUCTIONS
) -> ToolDefinition:
    """`manage_memory`; raises InvalidArgumentError as `permitted_actions` does."""
    permitted = permitted_actions(actions_permitted)
    summary = f"{_verbs(permitted)} memories that are kept for later conversations. {_id_rule(permitted)}"
    description = "\n".join(part for part in (summary, instructions) if part)
    return ToolDefinition(MANAGE_MEMORY, description, _manage_parameters(permitted), permitted)


def search_definition(instructions: str = SEARCH_INSTRUCTIONS, *, kinds: Sequence[str] = KINDS) -> ToolDefinition:
    """`search_memory`, which can search these kinds of records."""
    summary = "Search the memories kept from earlier conversations, by meaning and by word."
    description = "\n".join(part for part in (summary, instructions) if part)
    return ToolDefinition(SEARCH_MEMORY, description, _search_parameters(kinds))


def chosen_action(action: object, id: object, permitted: Sequence[MemoryAction]) -> MemoryAction:  # noqa: A002 - the argument's name in the tool
    """The action of a call of `manage_memory`. None means the default action, and an id of "" means no id.

    Raises InvalidArgumentError: the action is not permitted; else an id is given to create; else it is missing.
    """
    chosen = default_action(permitted) if action is None else action
    if not isinstance(chosen, str) or chosen not in permitted:
        raise InvalidArgumentError.of("action", f"must be one of {_listed(permitted)}, not {str(chosen)[:80]!r}")
    verb, given = MemoryAction(chosen), id is not None and id != ""
    if verb is MemoryAction.CREATE and given:
        raise InvalidArgumentError.of("id", "must be left out to create a memory: it gets an id of its own")
    if verb is not MemoryAction.CREATE and not given:
        raise InvalidArgumentError.of("id", f"must name the memory to {verb}")
    return verb


def chosen_metadata(metadata: object) -> Mapping[str, Any]:
    """The metadata of a call of `manage_memory`, which is kept beside the content; None means none.

    Raises InvalidArgumentError if it is not an object, or has a key that every memory has.
    """
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidArgumentError.of("metadata", f"must be an object, such as {METADATA_EXAMPLE}")
    for key in metadata:
        if key in _OWN_KEYS:
            raise InvalidArgumentError.of(f"metadata.{key}", "is what every memory has; use another key")
    return metadata


def chosen_format(response_format: str) -> ResponseFormat:
    """The result format of `search_memory`. Raises InvalidArgumentError for an unknown format."""
    if response_format not in tuple(ResponseFormat):
        raise InvalidArgumentError.of("response_format", f"must be one of {_listed(ResponseFormat)}")
    return ResponseFormat(response_format)


def chosen_style(style: str) -> SchemaStyle:
    """The style of a schema. Raises InvalidArgumentError for an unknown style."""
    if style not in tuple(SchemaStyle):
        raise InvalidArgumentError.of("style", f"must be one of {_listed(SchemaStyle)}, not {str(style)[:80]!r}")
    return SchemaStyle(style)


def tool_schema(tool: DescribedTool, style: str) -> dict[str, Any]:
    """The tool as the API of a model's vendor takes it. Raises InvalidArgumentError for an unknown style."""
    chosen = chosen_style(style)
    named, parameters = {"name": tool.name, "description": tool.description}, deepcopy(tool.parameters)
    if chosen is SchemaStyle.ANTHROPIC:
        return {**named, "input_schema": parameters}
    if chosen is SchemaStyle.GEMINI:
        return {**named, "parametersJsonSchema": parameters}
    if chosen is SchemaStyle.OPENAI_RESPONSES:
        # Strict schemas have no optional arguments.
        return {"type": "function", **named, "parameters": parameters, "strict": False}
    return {"type": "function", "function": {**named, "parameters": parameters}}


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
    if writes:
        described = (
            f"What else to keep and to filter by later, such as {METADATA_EXAMPLE}: texts, numbers, true or false."
        )
        if MemoryAction.UPDATE in writes:
            described += " An update keeps keys that it does not name, and removes keys set to null."
        properties["metadata"] = {"type": "object", "description": described}
    always = [name for name, takers in (("content", writes), ("id", names)) if takers == set(permitted)]
    return {"type": "object", "properties": properties, "required": always, "additionalProperties": False}


def _search_parameters(kinds: Sequence[str]) -> dict[str, Any]:
    operators = ", ".join(FILTER_OPERATORS)
    properties = {
        "query": {"type": "string", "description": "What to look for, in plain words."},
        "limit": _integer("How many memories to return at most.", LIMIT_DEFAULT, 1, LIMIT_MAX),
        "offset": _integer("How many of the best memories to skip.", 0, 0, OFFSET_MAX),
        "filter": {
            "type": "object",
            "description": "Conditions on a memory's metadata, created_at or updated_at: key to value, such as"
            f" {METADATA_EXAMPLE}, or key to an object of {operators}.",
        },
    }
    if len(kinds) > 1:
        properties["kinds"] = {
            "type": "array",
            "items": {"type": "string", "enum": list(kinds)},
            "description": "What to search: facts are the memories that you keep yourself; documents, memories, "
            "statements and events are what the application knows of the user. Left out: facts alone.",
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
