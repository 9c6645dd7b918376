"""The two memory tools on a LangGraph store other than Mnemon's, with the same answers as on a server."""

from collections.abc import Callable, Generator, Iterable, Mapping
from operator import methodcaller
from typing import Any, TypeAlias
from uuid import uuid4

from langgraph.store.base import SearchItem

from mnemon._local_time import ZONE_RULE, UnknownZoneError, days_in, in_zone, zone_named
from mnemon.shared.errors import ConfigurationError, FactNotFoundError, InvalidArgumentError
from mnemon.shared.namespaces import LABEL_RULE, default_labels, is_label, needed_of, template_keys, template_labels
from mnemon.shared.tool_definitions import (
    LIMIT_DEFAULT,
    LIMIT_MAX,
    NOTHING_DELETED,
    OFFSET_MAX,
    MemoryAction,
    ResponseFormat,
    chosen_action,
    chosen_format,
    chosen_metadata,
    permitted_actions,
)
from mnemon.shared.tool_results import RESULT_KIB_DEFAULT, as_json, search_json

Step: TypeAlias = tuple[Callable[[Any], Any], Callable[[Any], Any]]
"""Calls a method of the store: the blocking one, and the one to await."""
Steps: TypeAlias = Generator[Step, Any, Any]
Tool: TypeAlias = Callable[..., Steps]
"""Takes a tool's arguments and `config`, yields calls of the store, and receives their answers."""


def manage_steps(namespace: Iterable[str] | str | None, actions: Iterable[str]) -> Tool:
    """`manage_memory`; raises InvalidArgumentError and ConfigurationError as `mnemon.create_manage_memory_tool`."""
    labels, permitted = template_labels(namespace), permitted_actions(actions)

    def manage(
        *,
        config: Mapping[str, Any],
        action: Any = None,
        content: Any = None,
        id: Any = None,  # noqa: A002 - the argument's name in the tool
        metadata: Any = None,
    ) -> Steps:
        verb, place = chosen_action(action, id, permitted), _filled(labels, config)
        if verb is MemoryAction.DELETE:
            if (yield _step("get", place, str(id))) is None:
                return NOTHING_DELETED.format(id)
            yield _step("delete", place, str(id))
            return f"Deleted memory {id}"
        if content is None or content == "":
            raise InvalidArgumentError.of("content", f"must say what to {verb}")
        changes = {"content": content, **chosen_metadata(metadata)}
        key, value = str(id or uuid4()), changes
        if verb is MemoryAction.UPDATE:
            known = yield _step("get", place, key)
            if known is None:
                raise FactNotFoundError(f"there is no memory {key[:80]!r} to update", reason="FACT_NOT_FOUND")
            value = {**known.value, **changes}
        kept = {name: each for name, each in value.items() if each is not None or name not in changes}
        yield _step("put", place, key, kept)
        return f"{verb}d memory {key}"

    return manage


def search_steps(namespace: Iterable[str] | str | None, response_format: str, time_zone: str = "") -> Tool:
    """`search_memory`; raises InvalidArgumentError and ConfigurationError as `mnemon.create_search_memory_tool`."""
    labels, chosen, zone = template_labels(namespace), chosen_format(response_format), time_zone or "UTC"
    try:
        zone_named(zone)
    except UnknownZoneError:
        raise InvalidArgumentError.of("time_zone", ZONE_RULE) from None

    def search(
        *,
        config: Mapping[str, Any],
        query: Any = None,
        limit: Any = None,
        offset: Any = None,
        filter: Any = None,  # noqa: A002 - the argument's name in the tool
    ) -> Steps:
        if not isinstance(query, str):
            raise InvalidArgumentError.of("query", "must be text")
        if filter is not None and not isinstance(filter, Mapping):
            raise InvalidArgumentError.of("filter", "must be an object")
        found = yield _step(
            "search",
            _filled(labels, config),
            query=query,
            filter=filter,
            limit=_whole("limit", limit, LIMIT_DEFAULT, 1, LIMIT_MAX),
            offset=_whole("offset", offset, 0, 0, OFFSET_MAX),
        )
        skipped = offset or 0
        with days_in(zone):
            results = [as_json(_described(item)) for item in found]
        text, _ = search_json(results, RESULT_KIB_DEFAULT, offset=skipped)
        return text if chosen is ResponseFormat.CONTENT else (text, list(found))

    return search


def _step(name: str, *arguments: Any, **options: Any) -> Step:
    return methodcaller(name, *arguments, **options), methodcaller(f"a{name}", *arguments, **options)


def _filled(labels: tuple[str, ...], config: Mapping[str, Any]) -> tuple[str, ...]:
    """The namespace for a configuration; without a template by its `org_id`, `user_id` and `agent_id`."""
    keys = template_keys(labels)
    known = {key: value for key, value in needed_of(config, keys).items() if value is not None}
    for key, value in known.items():
        if not is_label(value):
            raise _bad(f"the configuration's {key!r} {LABEL_RULE}")
        if "." in value:
            raise _bad(
                f"the configuration's {key!r} must have no dot, which LangGraph's own stores refuse; a client can"
            )
    if not labels:
        if not (found := default_labels(known)):
            raise _bad("the configuration needs 'org_id', 'user_id' or 'agent_id'")
        return found
    if missing := [key for key in keys if key not in known]:
        raise _bad(f"the configuration lacks {missing[0]!r}; its keys are {', '.join(sorted(map(repr, config)))}")
    return tuple(known[label[1:-1]] if label.startswith("{") else label for label in labels)


def _whole(name: str, given: Any, default: int, least: int, most: int) -> int:
    if given is None:
        return default
    if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= most:
        raise InvalidArgumentError.of(name, f"must be a whole number from {least:,} to {most:,}")
    return given


def _described(item: SearchItem) -> dict[str, Any]:
    return {
        "namespace": list(item.namespace),
        "key": item.key,
        "value": item.value,
        "created_at": in_zone(item.created_at).isoformat(),
        "updated_at": in_zone(item.updated_at).isoformat(),
        "score": item.score,
    }


def _bad(message: str) -> ConfigurationError:
    return ConfigurationError(message, reason="CONFIGURATION")
