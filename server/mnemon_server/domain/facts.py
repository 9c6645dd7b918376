"""Facts: values that language models store through tools, by namespace and key, and the filters that select them."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from mnemon_server.domain.collections import FieldType
from mnemon_server.domain.encoding import ORIGIN_FIELDS, text_digest
from mnemon_server.domain.errors import FactNotFoundError, FieldViolation, InvalidArgumentError
from mnemon_server.domain.filters import (
    METADATA_PREFIX,
    PARTS_MAX,
    AllOf,
    Condition,
    Expression,
    FilterFields,
    Operator,
    condition_problems,
)
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.records import (
    WHOLE_MAX,
    WHOLE_PROBLEM,
    AckLevel,
    MetadataValue,
    Scope,
    SearchDiagnostics,
    TextQuery,
    WriteReceipt,
    metadata_key_problem,
)
from mnemon_server.domain.validation import id_violations, is_text, refuse, text_violations

KEY_BYTES_MAX = 512
LIMIT_DEFAULT = 10
VALUE_BYTES_MAX = 1 << 20
"""Maximum size of a value, as JSON in UTF-8."""
VALUE_DEPTH_MAX = 32

FactValue = Mapping[str, Any]
"""A JSON object; `manage_memory` stores {"content": text}. A fact that was read holds a JsonText."""

KEY_PREFIXES = ("value.", METADATA_PREFIX)
"""Prefixes of a key in a filter. Both refer to the keys that `filterable` returns."""
FILTER_FIELDS = FilterFields(
    "fact",
    {
        **dict.fromkeys(("key", *ORIGIN_FIELDS), FieldType.TEXT),
        **dict.fromkeys(("create_time", "update_time", "expire_time"), FieldType.TIME),
    },
    {"key": "fact_key", "create_time": "created_at", "update_time": "updated_at"},
    KEY_PREFIXES,
)
_SHOWN = 80
"""Characters of a key that an error shows."""
_TOO_DEEP = f"must be at most {VALUE_DEPTH_MAX} levels deep"
FILTER_OPERATORS = {
    f"${operator.value}": operator
    for operator in (
        Operator.EQ,
        Operator.NE,
        Operator.GT,
        Operator.GTE,
        Operator.LT,
        Operator.LTE,
        Operator.IN,
        Operator.NIN,
    )
}


class PutMode(StrEnum):
    """Whether the fact must exist before it is stored."""

    UPSERT = "upsert"
    CREATE = "create"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class FactIndex:
    """Which texts of a value are indexed for search: those at `paths`. If `off`: none.

    The default is the text under "content" if the value has one, and otherwise every text of the value.
    """

    off: bool = False
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FactVersion:
    """An earlier state of a fact."""

    revision: int
    value: FactValue
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Fact:
    """A value stored under a key of a namespace. The same key in another namespace is a different fact."""

    namespace: Namespace
    key: str
    value: FactValue
    created_at: datetime
    updated_at: datetime
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    revision: int = 0
    ttl: timedelta | None = None
    expires_at: datetime | None = None
    index: FactIndex = FactIndex()
    versions: tuple[FactVersion, ...] = ()
    """Earlier versions, newest first, present only on request."""
    embeddings: tuple[tuple[float, ...], ...] = ()
    """Vectors of its passages, in order, present only on request."""
    source: Scope = Scope()
    """Where it comes from; whose it is, its namespace says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutFact:
    """A fact to store. If `key` is empty, the store chooses one. `embedding` has the model's dimension; if it is None,
    the store computes it.

    Times that are None become the commit time.
    """

    namespace: Namespace
    key: str = ""
    value: FactValue
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    created_at: datetime | None = None
    updated_at: datetime | None = None
    ttl: timedelta | None = None
    index: FactIndex = FactIndex()
    mode: PutMode = PutMode.UPSERT
    embedding: Sequence[float] | None = None
    expected_revision: int | None = None
    request_id: str = ""
    ack: AckLevel = AckLevel.DURABLE
    source: Scope = Scope()
    """Where it comes from, without an owner."""


@dataclass(frozen=True, slots=True)
class FactReceipt:
    """The confirmation of a put. `receipt.id` is the key. `fact` is its current state; None if it has been deleted
    since, or was not read yet after a replay.
    """

    receipt: WriteReceipt
    fact: Fact | None


@dataclass(frozen=True, slots=True)
class FactBatch:
    """The facts that were requested by name, without those that do not exist."""

    facts: tuple[Fact, ...]
    left: tuple[tuple[Namespace, str], ...] = ()
    """Names of facts that were left out because the answer was full."""


@dataclass(frozen=True, slots=True)
class FactRenewal:
    """A fact whose ttl was restarted, with its new expiry time. None if it has no ttl and does not expire."""

    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class RenewalReceipt:
    """The result for each fact whose ttl was to be restarted."""

    results: tuple[FactRenewal | FactNotFoundError, ...]
    replayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FactFilter:
    """Selects facts of exactly this namespace; with `subtree`, also of the namespaces below it. None stands for the
    root, above all namespaces.
    """

    namespace: Namespace | None
    subtree: bool = False
    where: Expression | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactQuery(TextQuery):
    """A search of facts. Without a text and a vector: the facts that match, in order of creation, without scores."""

    filter: FactFilter
    limit: int = LIMIT_DEFAULT
    offset: int = 0
    min_score: float = 0.0


@dataclass(frozen=True, slots=True)
class FactMatch:
    """A fact that a search found. `score` is its relevance, 0 to 1; None if the query had no text and no vector."""

    fact: Fact
    score: float | None = None
    similarity: float | None = None
    keyword_score: float | None = None


@dataclass(frozen=True, slots=True)
class FactSearchAnswer:
    """The results of a search, best match first."""

    matches: tuple[FactMatch, ...]
    diagnostics: SearchDiagnostics


@dataclass(frozen=True, slots=True)
class FactPage:
    """A page of facts. `position` is that of the last fact; None after the last page."""

    facts: tuple[Fact, ...]
    position: int | None
    positions: tuple[int, ...] = ()
    """The position of each fact, from which a later page can continue."""


@dataclass(frozen=True, slots=True)
class NamespacePage:
    """A page of namespaces, parents before children. The next page starts after `last`; None after the last page."""

    namespaces: tuple[tuple[str, ...], ...]
    last: tuple[str, ...] | None


def record_id(namespace: Namespace, key: str) -> str:
    """The id of a fact's record: 64 hexadecimal digits, a function of namespace and key alone."""
    return text_digest(json.dumps([namespace, key])).hex()


def key_violations(key: str, field: str = "key") -> Iterator[FieldViolation]:
    """The violations in a fact's key."""
    if not key:
        yield FieldViolation(field, "must not be empty")
    else:
        yield from id_violations(key, field, KEY_BYTES_MAX)


def value_violations(value: object, field: str = "value") -> Iterator[FieldViolation]:
    """The violations in a fact's value."""
    if not isinstance(value, dict):
        yield FieldViolation(field, "must be a JSON object")
    elif found := _json_problem(value, VALUE_DEPTH_MAX):
        yield FieldViolation(f"{field}{found[0]}", found[1])
    elif len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()) > VALUE_BYTES_MAX:
        yield FieldViolation(field, f"must be at most {VALUE_BYTES_MAX:,} bytes as JSON in UTF-8")


def filterable(value: FactValue, metadata: Mapping[str, MetadataValue]) -> dict[str, MetadataValue]:
    """The values of a fact that a filter can compare: its metadata, overridden by the top-level keys of its value.

    Leaves out nulls, objects, and lists with anything but text: a filter cannot express such a value, so nothing would
    match it. Also leaves out keys that a filter cannot name.
    """
    own = {key: _comparable(each) for key, each in value.items() if not metadata_key_problem(key)}
    hidden = {key: each for key, each in metadata.items() if key not in value}
    return hidden | {key: each for key, each in own.items() if each is not None}


def shadow_violations(keys: Iterable[str], metadata: Mapping[str, MetadataValue]) -> Iterator[FieldViolation]:
    """The violations by a model's metadata, which is in the value, of keys that the application's metadata has.

    A filter would see the model's value instead of the application's.
    """
    for key in keys:
        if key in metadata and key != "content":
            yield FieldViolation(f"metadata.{key}", "is set by the application; use another key")


def filter_expression(where: object) -> Expression | None:
    """Turns a tool's filter into an expression on metadata, which must hold what `filterable` returns. None: no
    condition.

    Each key maps to a value that it must equal, or to an object of operators that must all hold: `$eq`, `$ne`, `$gt`,
    `$gte`, `$lt`, `$lte`, `$in`, `$nin`. `domain/filters.py` defines their meaning.

    Raises:
        InvalidArgumentError: a key, an operator or a value is not valid in a filter.
    """
    if where is None:
        return None
    if not isinstance(where, Mapping):
        raise InvalidArgumentError.of("filter", 'must be an object, such as {"category": "preference"}')
    if not where:
        return None
    if len(where) > PARTS_MAX:
        raise InvalidArgumentError.of("filter", f"must have at most {PARTS_MAX} parts")
    conditions = tuple(condition for key, wanted in where.items() for condition in _conditions(key, wanted))
    if len(conditions) >= PARTS_MAX:
        raise InvalidArgumentError.of("filter", f"must have at most {PARTS_MAX} parts")
    refuse(
        FieldViolation(f"filter.{condition.field.removeprefix(METADATA_PREFIX)}", problem)
        for condition in conditions
        for _, problem in condition_problems(condition, FILTER_FIELDS)
    )
    return AllOf(conditions) if len(conditions) > 1 else conditions[0]


def _conditions(key: object, wanted: object) -> Iterator[Condition]:
    place = f"filter.{str(key)[:80]}"
    if problem := metadata_key_problem(key):
        raise InvalidArgumentError.of(place, f"the key {problem}" if isinstance(key, str) else problem)
    name = f"{METADATA_PREFIX}{key}"
    if not isinstance(wanted, Mapping):
        yield Condition(name, Operator.EQ, (_literal(wanted),))
        return
    if not wanted:
        raise InvalidArgumentError.of(place, "must be a value, or an object of one or more operators")
    for sign, value in wanted.items():
        if sign not in FILTER_OPERATORS:
            known = ", ".join(FILTER_OPERATORS)
            raise InvalidArgumentError.of(place, f"{str(sign)[:80]!r} is not an operator; the operators are {known}")
        yield _condition(name, FILTER_OPERATORS[sign], value, place)


def _condition(name: str, operator: Operator, value: Any, place: str) -> Condition:
    if operator not in (Operator.IN, Operator.NIN):
        return Condition(name, operator, (_literal(value),))
    if not isinstance(value, list | tuple):
        raise InvalidArgumentError.of(place, f"${operator} takes a list")
    return Condition(name, operator, tuple(map(_literal, value)))


def _literal(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _comparable(value: object) -> MetadataValue | None:
    match value:
        case str() | bool() | int() | float():
            return value
        case list() | tuple() if all(isinstance(item, str) for item in value):
            return tuple(value)
    return None


def _json_problem(value: object, depth: int) -> tuple[str, str] | None:
    """The path within the value, and why what is there would not survive a round trip through JSON; None if all of it
    would.
    """
    match value:
        case dict() | list() | tuple():
            return _inner_problem(value, depth)
        case None | bool():
            problem: str | None = None
        case int():
            problem = None if -WHOLE_MAX <= value <= WHOLE_MAX else WHOLE_PROBLEM
        case float():
            problem = None if math.isfinite(value) else "must be a finite number"
        case str():
            problem = next((each.description for each in text_violations(value, "", VALUE_BYTES_MAX)), None)
        case _:
            problem = f"must be a JSON value, not {type(value).__name__}"
    return ("", problem) if problem else None


def _inner_problem(value: dict[Any, object] | list[object] | tuple[object, ...], depth: int) -> tuple[str, str] | None:
    if depth == 0:
        return "", _TOO_DEEP
    if not isinstance(value, dict):
        items: Iterable[tuple[object, object]] = enumerate(value)
    elif wrong := [key for key in value if not isinstance(key, str) or not is_text(key, VALUE_BYTES_MAX)]:
        return "", f"must have keys that are valid text, not {str(wrong[0])[:_SHOWN]!r}"
    else:
        items = value.items()
    for place, item in items:
        if found := _json_problem(item, depth - 1):
            if found[1] is _TOO_DEEP:
                return found
            # Only now: paths of all values would take long.
            return (f".{place[:_SHOWN]}" if isinstance(place, str) else f"[{place}]") + found[0], found[1]
    return None
