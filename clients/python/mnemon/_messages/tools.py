"""The requests about tools that need more than their fields."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from mnemon._arguments import check_flag
from mnemon._enums import numbers_by_member
from mnemon._messages.convert import invalid
from mnemon._messages.filters import check_keywords
from mnemon._messages.translation import request
from mnemon._values import documents as values
from mnemon._values import tools
from mnemon.shared import tool_definitions as definitions
from mnemon.shared.namespaces import DEFAULT_KEYS, needed_of, template_keys, template_labels
from mnemon.v1 import tools_pb2 as pb

_ACTIONS = numbers_by_member(definitions.MemoryAction, pb.MemoryAction.DESCRIPTOR)


def context(
    *,
    namespace: Iterable[str] | str | None,
    config: Mapping[str, Any] | None,
    actions_permitted: Iterable[str] | None,
    metadata: Mapping[str, values.MetadataValue] | None,
    min_trust: str | None = None,
    time_zone: str = "",
    keys: Iterable[str] = (),
) -> pb.ToolContext:
    """The context that an application gives to a call. Without a namespace, the configuration is passed on unchanged.

    The server's own namespace may need any key of it; a namespace that is given says which keys it needs, besides
    `keys`.
    """
    labels = template_labels(namespace)
    return request(
        pb.ToolContext,
        namespace=labels,
        config=needed_of(config, {*template_keys(labels), *keys}) if labels else config or {},
        actions_permitted=actions_to_pb(actions_permitted),
        metadata=metadata or {},
        min_trust=min_trust or "",
        time_zone=time_zone,
    )


def owner_keys(tool: str, arguments: object) -> tuple[str, ...]:
    """The keys that say to whom the records belong that a call finds, if they are more than facts of a namespace."""
    has_kinds = isinstance(arguments, Mapping) and bool(arguments.get("kinds"))
    return DEFAULT_KEYS if tool == definitions.SEARCH_MEMORY and has_kinds else ()


def arguments_of(given: Mapping[str, Any] | str | None) -> Any:
    """The arguments as an object. A text that is not JSON is passed on unchanged, since the server may repair it."""
    if given is None or (isinstance(given, str) and not given.strip()):
        return {}
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given)
    except ValueError as error:
        if _is_followed_by_another(given, error):
            raise invalid("arguments", "must be one JSON object; make one call for each") from None
        if "{" in given:
            return given
        raise invalid("arguments", f"must be a JSON object: {error}") from None
    except RecursionError as error:
        raise invalid("arguments", f"must be a JSON object: {error}") from None


def _is_followed_by_another(given: str, error: ValueError) -> bool:
    """Whether a whole object is followed by a second one, as in joined calls; a repair would drop one of them."""
    if not (isinstance(error, json.JSONDecodeError) and error.msg == "Extra data"):
        return False
    return given[error.pos :].lstrip(", \r\n\t").startswith("{")


def as_block(tool: str, arguments: str) -> str:
    """A text with one call in the form that the server parses and repairs."""
    return f"[[ABP_TOOL:{tool}]]\n{arguments}\n[[END_ABP_TOOL]]"


def repaired(given: str, parsed: tools.ParsedText) -> dict[str, Any]:
    """The arguments in the only call of a parsed block.

    Raises InvalidArgumentError if they could not be repaired, or end within a text: the rest of it is lost.
    """
    if len(parsed.calls) != 1:
        reasons = "; ".join(problem.reason for problem in parsed.problems) or "it holds no object"
        raise invalid("arguments", f"must be a JSON object, and could not be repaired: {reasons}: {given[:80]!r}")
    [found] = parsed.calls
    if tools.JsonRepair.OPEN_STRINGS in found.repairs:
        raise invalid("arguments", f"end within a text, as a reply does that is cut at its maximum: {given[-80:]!r}")
    return {**({"action": found.action} if found.action else {}), **found.parameters}


def options_to_pb(given: tools.ParseOptions) -> pb.ParseOptions:
    """The strictness of the parser, as a message."""
    check_keywords(given, tools.ParseOptions.__annotations__)
    return pb.ParseOptions(**{name: check_flag(name, value) for name, value in given.items()})


def actions_to_pb(given: Iterable[str] | None) -> list[Any]:
    """The actions of manage_memory; None means all that the server permits."""
    # In the message, an empty list means all, but the caller means no action.
    return [] if given is None else [_ACTIONS[action] for action in definitions.permitted_actions(given)]
