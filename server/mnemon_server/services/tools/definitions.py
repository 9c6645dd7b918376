"""The two memory tools: what a call of them must look like, and what it returns.

What models are told of them stands in the client, which says it without a call; here it fails as the server does.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar
from uuid import UUID

from mnemon import _errors as client_errors
from mnemon import _tool_definitions as told
from mnemon._tool_definitions import (
    ALL_ACTIONS,
    LIMIT_DEFAULT,
    LIMIT_MAX,
    MANAGE_INSTRUCTIONS,
    MANAGE_MEMORY,
    OFFSET_MAX,
    SEARCH_INSTRUCTIONS,
    SEARCH_MEMORY,
    MemoryAction,
    ResponseFormat,
    SchemaStyle,
    ToolDefinition,
    default_action,
)

from mnemon_server.domain.documents import QUERY_BYTES_MAX
from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.domain.facts import FactMatch, filter_expression, key_violations
from mnemon_server.domain.filters import Expression
from mnemon_server.domain.json_text import JsonText
from mnemon_server.domain.validation import content_violations, refuse, text_violations

__all__ = [
    "ALL_ACTIONS",
    "LIMIT_DEFAULT",
    "LIMIT_MAX",
    "MANAGE_INSTRUCTIONS",
    "MANAGE_MEMORY",
    "OFFSET_MAX",
    "SEARCH_INSTRUCTIONS",
    "SEARCH_MEMORY",
    "ManageCall",
    "MemoryAction",
    "ResponseFormat",
    "SchemaStyle",
    "SearchCall",
    "ToolDefinition",
    "check_manage",
    "check_search",
    "default_action",
    "manage_definition",
    "manage_result",
    "permitted_actions",
    "search_content",
    "search_definition",
    "search_result",
    "tool_schema",
]

_Arguments = ParamSpec("_Arguments")
_Returned = TypeVar("_Returned")

_RETURNS = {
    MemoryAction.CREATE: "created memory {}",
    MemoryAction.UPDATE: "updated memory {}",
    MemoryAction.DELETE: "Deleted memory {}",
}


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


def _refusing(function: Callable[_Arguments, _Returned]) -> Callable[_Arguments, _Returned]:
    """The function of the client, with the server's InvalidArgumentError in place of the client's."""

    @wraps(function)
    def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Returned:
        try:
            return function(*args, **kwargs)
        except client_errors.InvalidArgumentError as error:
            raise InvalidArgumentError(
                [FieldViolation(each.field, each.description) for each in error.violations]
            ) from None

    return call


permitted_actions = _refusing(told.permitted_actions)
manage_definition = _refusing(told.manage_definition)
search_definition = _refusing(told.search_definition)
tool_schema = _refusing(told.tool_schema)
_chosen_action = _refusing(told.chosen_action)
_chosen_format = _refusing(told.chosen_format)


def check_manage(action: object, content: object, id: object, permitted: Sequence[MemoryAction]) -> ManageCall:  # noqa: A002 - the argument's name in the tool
    """The call that these arguments make; an action of None is the default, an id of "" is none.

    Raises:
        InvalidArgumentError: the first of these that holds: the action is not permitted; an id is given to create; the
            id is missing to update or delete; the id, and then the content, is not valid.
    """
    verb = _chosen_action(action, id, permitted)
    key = "" if verb is MemoryAction.CREATE else _key(id)
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
    return f"[{', '.join(map(_match_json, matches))}]"


def search_result(matches: Sequence[FactMatch], response_format: str) -> str | tuple[str, tuple[FactMatch, ...]]:
    """What `search_memory` returns in the format asked for. Raises InvalidArgumentError for an unknown format."""
    chosen = _chosen_format(response_format)
    content = search_content(matches)
    return content if chosen is ResponseFormat.CONTENT else (content, tuple(matches))


def _match_json(match: FactMatch) -> str:
    fact = match.fact
    # One value at a time: as objects, they would take many times the room of their text.
    value = fact.value.parsed() if isinstance(fact.value, JsonText) else fact.value
    return json.dumps(
        {
            "namespace": list(fact.namespace),
            "key": fact.key,
            "value": value,
            "created_at": fact.created_at.isoformat(),
            "updated_at": fact.updated_at.isoformat(),
            "score": match.score,
        },
        ensure_ascii=False,
        allow_nan=False,
    )


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
