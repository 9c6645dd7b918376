"""Filters as messages: expressions of `F`, and the keyword arguments of a search."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from google.protobuf.message import Message

from mnemon._arguments import unknown_name
from mnemon._local_time import end_of, start_of
from mnemon._messages import convert
from mnemon._messages.convert import invalid
from mnemon._values import filters
from mnemon._values.documents import SCOPE_FIELDS
from mnemon.v1 import common_pb2, facts_pb2

_Message = TypeVar("_Message", bound=Message)

_VALUES_MAX = 256
"""Most values of one condition."""
_ENDS = {"from": ("start_time", start_of), "to": ("end_time", end_of)}


def filter_to_pb(given: filters.Filter) -> common_pb2.Filter:
    """A filter as a message."""
    match given:
        case filters.AllOf(parts):
            return common_pb2.Filter(all_of=_list_to_pb(parts))
        case filters.AnyOf(parts):
            return common_pb2.Filter(any_of=_list_to_pb(parts))
        case filters.Negation(part):
            return common_pb2.Filter(none_of=_list_to_pb([part]))
        case filters.Condition(field, operator, compared):
            name = convert.text("where", field)
            return common_pb2.Filter(
                condition=common_pb2.Condition(
                    field=name,
                    comparator=common_pb2.Comparator.Value(f"COMPARATOR_{operator.name}"),
                    values=[convert.value_to_pb(f"where.{name}", value) for value in compared],
                )
            )
    raise invalid("where", "must be made with F, &, | and ~")


def _list_to_pb(parts: Iterable[filters.Filter]) -> common_pb2.FilterList:
    return common_pb2.FilterList(filters=map(filter_to_pb, parts))


def where_to_pb(given: filters.FilterLike | None) -> common_pb2.Filter | None:
    """An expression or a mapping as a message."""
    return None if given is None else filter_to_pb(filters.as_filter(given))


def ids_filter(argument: str, given: Iterable[str], field: str, *, alone: bool) -> filters.Filter:
    """The records with these ids, where a call takes no ids. Raises InvalidArgumentError unless they are `alone`."""
    ids = convert.ids_to_pb(argument, given)
    if not alone:
        raise invalid(argument, "must come without a filter: name records, or say which match")
    groups = (ids[first : first + _VALUES_MAX] for first in range(0, len(ids), _VALUES_MAX))
    return filters.AnyOf(tuple(filters.F(field).isin(group) for group in groups))


def keywords_to_pb(kind: type[_Message], which: Mapping[str, Any], known: type, **more: Any) -> _Message | None:
    """The filter that keyword arguments make, as a message; None means all. `known` declares the arguments.

    `more` are fields of the message beside them.
    """
    check_keywords(which, known.__annotations__)
    more = {name: value for name, value in more.items() if value is not None}
    if not which and not more:
        return None
    scope = {name: convert.some_text(name, which[name]) for name in SCOPE_FIELDS if name in which}
    found: dict[str, Any] = {"scope": common_pb2.Scope(**scope), **more}
    for name, value in which.items():
        span, _, end = name.rpartition("_")
        if end in _ENDS:
            field, moment_of = _ENDS[end]
            found.setdefault(span, {})[field] = convert.moment_to_pb(name, value, moment_of)
        elif name in _KEYWORDS:
            field, to_pb = _KEYWORDS[name]
            found[field] = to_pb(name, value)
        elif name not in scope:
            found[name] = convert.some_text(name, value)
    return kind(**found)


def _types_to_pb(field: str, given: object) -> list[str]:
    found = convert.texts_to_pb(field, given)
    if not found:
        # In the message, an empty list means any type, but the caller means no type.
        raise invalid(field, "must name a type; leave it out for all")
    return found


_KEYWORDS: Mapping[str, tuple[str, Any]] = {
    "where": ("filter", lambda name, given: filter_to_pb(filters.as_filter(given))),
    "is_global": ("is_global", convert.flag_to_pb),
    "metadata": ("metadata", convert.metadata_to_pb),
    "event_types": ("event_types", _types_to_pb),
    "min_importance": ("min_importance", convert.share_to_pb),
}
"""The arguments that are neither texts nor times: their fields in the message, and how they are converted."""


def facts_to_pb(
    namespace: object, *, subtree: bool, where: object | None, min_trust: str | None = None
) -> facts_pb2.FactFilter:
    """The filter of facts, as a message."""
    asked = filters.as_fact_filter(where)
    return facts_pb2.FactFilter(
        namespace=convert.namespace_to_pb("namespace", namespace),
        subtree=subtree,
        filter=None if asked is None else filter_to_pb(asked),
        min_trust=convert.text("min_trust", min_trust or ""),
    )


def check_keywords(given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raises TypeError for an unknown keyword argument, as Python does, with the one that may be meant."""
    names = list(known)
    if unknown := sorted(given.keys() - set(names)):
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}; {unknown_name(unknown[0], names)}")
