"""The two memory tools: the checks of their arguments, and the form of their results.

The descriptions for models are in the client library, which offers them without a call to the server. This module uses
them, but raises the errors of the server.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, time, tzinfo
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from mnemon.shared import errors as client_errors
from mnemon.shared import tool_definitions as client_definitions
from mnemon.shared.tool_definitions import LIMIT_DEFAULT, LIMIT_MAX, NOTHING_DELETED, OFFSET_MAX, MemoryAction
from mnemon.shared.tool_results import RESULT_KIB_DEFAULT, as_json, search_json

from mnemon_server.domain.clock import in_utc, local, local_metadata
from mnemon_server.domain.documents import QUERY_BYTES_MAX
from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.domain.facts import FactMatch, filter_expression, key_violations
from mnemon_server.domain.filters import METADATA_PREFIX, AllOf, Condition, Expression, Operator
from mnemon_server.domain.json_text import JsonText
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.recall import LIMIT_MAX as RECALLED_MAX
from mnemon_server.domain.recall import RecallItem
from mnemon_server.domain.validation import content_violations, metadata_violations, refuse, text_violations
from mnemon_server.services.recall.packing import excerpt

_Arguments = ParamSpec("_Arguments")
_Returned = TypeVar("_Returned")

_TIMES = {"created_at": "create_time", "updated_at": "update_time"}
"""The times of a result, by its keys: the fields of a fact."""
_DATE_LENGTH = len("2026-01-31")
_NAMES = {
    RecordKind.FACT: "fact",
    RecordKind.DOCUMENT: "document",
    RecordKind.MEMORY: "memory",
    RecordKind.SEMANTIC: "statement",
    RecordKind.EVENT: "event",
}
"""The kinds of records as a model names them."""
EXCERPT_TOKENS = 256
"""The most tokens of a document or of a long event that a model gets."""
_RETURNS = {
    MemoryAction.CREATE: "created memory {}",
    MemoryAction.UPDATE: "updated memory {}",
    MemoryAction.DELETE: "Deleted memory {}",
}


@dataclass(frozen=True, slots=True)
class ManageCall:
    """A checked call of `manage_memory`; `id` is empty for a creation, `content` is empty for a deletion.

    An update changes the given keys of `metadata`, and removes keys set to None.
    """

    action: MemoryAction
    content: str = ""
    id: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SearchCall:
    """A checked call of `search_memory`."""

    query: str
    limit: int = LIMIT_DEFAULT
    offset: int = 0
    where: Expression | None = None
    kinds: tuple[RecordKind, ...] = (RecordKind.FACT,)

    @property
    def is_of_facts(self) -> bool:
        """Whether only facts are searched."""
        return self.kinds == (RecordKind.FACT,)

    def filters(self) -> tuple[tuple[RecordKind, Expression], ...]:
        """The condition for each kind."""
        if self.where is None:
            return ()
        return tuple((kind, _of_event(self.where) if kind is RecordKind.EVENT else self.where) for kind in self.kinds)


def _refusing(function: Callable[_Arguments, _Returned]) -> Callable[_Arguments, _Returned]:
    """The client's function, but it raises the server's InvalidArgumentError instead of the client's."""

    @wraps(function)
    def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Returned:
        try:
            return function(*args, **kwargs)
        except client_errors.InvalidArgumentError as error:
            raise InvalidArgumentError(
                [FieldViolation(each.field, each.description) for each in error.violations]
            ) from None

    return call


permitted_actions = _refusing(client_definitions.permitted_actions)
manage_definition = _refusing(client_definitions.manage_definition)
search_definition = _refusing(client_definitions.search_definition)
_chosen_action = _refusing(client_definitions.chosen_action)
_chosen_metadata = _refusing(client_definitions.chosen_metadata)


def check_manage(
    action: object,
    content: object,
    id: object,  # noqa: A002 - the argument's name in the tool
    permitted: Sequence[MemoryAction],
    metadata: object = None,
) -> ManageCall:
    """The call with these arguments; an action of None means the default, an id of "" means no id.

    Raises:
        InvalidArgumentError: the first of these problems: the action is not permitted; an id is given for a creation;
            the id is missing for an update or a deletion; the id is not valid; the content is not valid; the metadata
            is not valid.
    """
    verb = _chosen_action(action, id, permitted)
    key = "" if verb is MemoryAction.CREATE else _key(id)
    if verb is MemoryAction.DELETE:
        return ManageCall(verb, id=key)
    return ManageCall(verb, _content(content, verb), key, _metadata(metadata))


def check_search(
    query: object,
    limit: object = LIMIT_DEFAULT,
    offset: object = 0,
    filter: object = None,  # noqa: A002 - the argument's name in the tool
    kinds: object = None,
    *,
    zone: tzinfo = UTC,
) -> SearchCall:
    """The call with these arguments; a limit or offset of None means the default, and kinds of None facts alone.

    Raises:
        InvalidArgumentError: an argument is not valid, or the filter has an unknown operator.

    The keys created_at and updated_at of the filter are those of a result. Their days are those of the zone.
    """
    if not isinstance(query, str) or not query.strip():
        raise InvalidArgumentError.of("query", "must be a text that is not blank")
    refuse(text_violations(query, "query", QUERY_BYTES_MAX))
    most, skipped = _whole("limit", limit, LIMIT_DEFAULT, 1, LIMIT_MAX), _whole("offset", offset, 0, 0, OFFSET_MAX)
    call = SearchCall(query, most, skipped, _where(filter, zone), _kinds(kinds))
    if not call.is_of_facts and most + skipped > RECALLED_MAX:
        raise InvalidArgumentError.of(
            "limit", f"and the offset must be at most {RECALLED_MAX} together, unless only facts are searched"
        )
    return call


def manage_result(action: MemoryAction, key: str, *, exists: bool = True) -> str:
    """The result of `manage_memory`; without `exists`, of the deletion of a memory that does not exist."""
    return (_RETURNS[action] if exists else NOTHING_DELETED).format(key)


def shortened_item(item: RecallItem, query: str) -> RecallItem:
    """The item, of a long text only the part that matters for a query."""
    return replace(item, content=excerpt(item, query, EXCERPT_TOKENS))


def search_content(
    matches: Iterable[FactMatch | RecallItem],
    kib_max: int = RESULT_KIB_DEFAULT,
    *,
    offset: int = 0,
    truncated: bool = False,
    zone: tzinfo = UTC,
) -> tuple[str, int]:
    """The result of `search_memory` as JSON: a list of facts, best first, with times of the zone in ISO 8601; "[]" if
    empty.

    Records of several kinds have the same form, and their kind. Also returns how many are in it; see `search_json`.
    """
    results = [
        _item_json(match, zone) if isinstance(match, RecallItem) else _match_json(match, zone) for match in matches
    ]
    return search_json(results, kib_max, offset=offset, truncated=truncated)


def _match_json(match: FactMatch, zone: tzinfo) -> str:
    fact = match.fact
    # Parse one value at a time: as objects, all values would take many times the memory of their texts.
    value = fact.value.parsed() if isinstance(fact.value, JsonText) else fact.value
    return as_json(
        {
            "namespace": list(fact.namespace),
            "key": fact.key,
            "value": value,
            "created_at": local(fact.created_at, zone).isoformat(),
            "updated_at": local(fact.updated_at, zone).isoformat(),
            "score": match.score,
        }
    )


def _item_json(item: RecallItem, zone: tzinfo) -> str:
    record, metadata = item.record, local_metadata(item.metadata, zone).items()
    told = {key: value.isoformat() if isinstance(value, datetime) else value for key, value in metadata}
    return as_json(
        {
            "kind": _NAMES[record.kind],
            **({"namespace": list(record.namespace)} if record.namespace else {}),
            "key": record.id,
            "value": {"content": item.content, **({"metadata": told} if told else {})},
            "created_at": local(item.time, zone).isoformat(),
            **({"updated_at": local(item.update_time, zone).isoformat()} if item.update_time else {}),
            **({"score": item.relevance} if item.relevance else {}),
        }
    )


def _kinds(given: object) -> tuple[RecordKind, ...]:
    if given is None or given == []:
        return (RecordKind.FACT,)
    kinds = {name: kind for kind, name in _NAMES.items()}
    if not isinstance(given, list) or not all(isinstance(each, str) and each in kinds for each in given):
        raise InvalidArgumentError.of("kinds", f"must be a list of {', '.join(map(repr, kinds))}")
    return tuple(dict.fromkeys(kinds[each] for each in given))


def _of_event(expression: Expression) -> Expression:
    """The condition on an event, which has one time and is never changed."""
    match expression:
        case Condition(field=str() as name) if name in _TIMES.values():
            return replace(expression, field="event_time")
        case AllOf(parts):
            return AllOf(tuple(map(_of_event, parts)))
    return expression


def _where(given: object, zone: tzinfo) -> Expression | None:
    match filter_expression(given):
        case Condition() as condition:
            return _on_times(condition, zone)
        case AllOf(parts):
            return AllOf(tuple(_on_times(part, zone) if isinstance(part, Condition) else part for part in parts))
        case other:
            return other


def _on_times(condition: Condition, zone: tzinfo) -> Condition:
    """The condition on the time of the fact, if it names one of a result's times."""
    key = condition.field.removeprefix(METADATA_PREFIX)
    if key not in _TIMES:
        return condition
    ends_day = condition.operator in (Operator.LTE, Operator.GT)
    times = (_time(f"filter.{key}", each, zone, ends_day=ends_day) for each in condition.values)
    return replace(condition, field=_TIMES[key], values=tuple(times))


def _time(field: str, given: object, zone: tzinfo, *, ends_day: bool) -> datetime:
    """The time of a text that may name its own zone; for a date, the first or the last microsecond of the day."""
    text = str(given) if isinstance(given, str) else ""
    try:
        found = datetime.fromisoformat(text)
        if ends_day and len(text) <= _DATE_LENGTH:
            # The second time, if the clocks repeat it.
            found = datetime.combine(found, time.max.replace(fold=1))
        return found.astimezone(UTC) if found.tzinfo else in_utc(found, zone)
    except (ValueError, OverflowError):
        raise InvalidArgumentError.of(field, 'must be a time in ISO 8601, such as "2026-01-31T12:00:00Z"') from None


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


def _metadata(given: object) -> Mapping[str, Any]:
    found = _chosen_metadata(given)
    refuse(metadata_violations({key: value for key, value in found.items() if value is not None}, "metadata"))
    return found


def _whole(field: str, value: object, default: int, least: int, most: int) -> int:
    if value is None:
        return default
    # A number in a protobuf Struct is always a double.
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    if isinstance(whole, bool) or not isinstance(whole, int) or not least <= whole <= most:
        raise InvalidArgumentError.of(field, f"must be a whole number of {least:,} to {most:,}")
    return whole
