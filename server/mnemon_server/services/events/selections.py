"""Turns the selections of callers into selections for the engine."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from mnemon_server.domain.events import FILTER_FIELDS, LAST_DAYS_DEFAULT, EventSelection, WindowQuery
from mnemon_server.domain.filters import METADATA_PREFIX, AllOf, AnyOf, Condition, Expression, NoneOf, Operator
from mnemon_server.domain.records import MetadataValue
from mnemon_server.engines.promises.events import EventEngine
from mnemon_server.services.events.new_events import to_utc
from mnemon_server.services.reading.filter_expressions import with_engine_names

EVERYTHING = EventSelection()
MICROSECOND = timedelta(microseconds=1)
FIRST_TIME = datetime(1, 1, 1, tzinfo=UTC)


def selection(where: EventSelection) -> EventSelection:
    """The same selection, with aware times in UTC."""
    if where.start is None and where.end is None and where.expression is None:
        return where
    return replace(
        where,
        start=None if where.start is None else to_utc(where.start),
        end=None if where.end is None else to_utc(where.end),
        expression=with_engine_names(where.expression, FILTER_FIELDS),
    )


def window_selection(query: WindowQuery, now: datetime) -> EventSelection:
    """The selection of the query's window: its range, or its last days up to now."""
    where = selection(query.where)
    has_range = query.has_range or where.start is not None or where.end is not None
    if has_range and query.last_days is None:
        return where
    days = LAST_DAYS_DEFAULT if query.last_days is None else query.last_days
    return replace(where, start=earlier(now, timedelta(days=days)), end=now)


def selection_before(before: datetime, where: EventSelection = EVERYTHING) -> EventSelection | None:
    """The selected events that happened before a time; None if no event can be that old."""
    where = selection(where)
    if (before := to_utc(before)) == FIRST_TIME:
        return None
    last = before - MICROSECOND
    return replace(where, end=last if where.end is None else min(where.end, last))


def earlier(time: datetime, by: timedelta) -> datetime:
    """The time that is earlier by `by`, or the earliest time there is."""
    return time - by if time - FIRST_TIME > by else FIRST_TIME


def has_metadata_key(events: EventEngine, key: str, *, like: MetadataValue | None = None) -> bool:
    """Whether any event has the key in its metadata; with `like`, whether any has it with a value of the same type.

    Blocks.
    """
    name = METADATA_PREFIX + key
    exists = Condition(name, Operator.EXISTS, (True,))
    having = EventSelection(expression=exists if like is None else _of_type(name, like))
    found = events.window(having, after=None, limit=1)
    # The newest event with the key is enough. A slice may end early, without an event.
    while not found.events and found.next_position is not None:
        found = events.window(having, after=found.next_position, limit=1)
    return bool(found.events)


def _of_type(name: str, like: MetadataValue) -> Expression:
    """Matches any value of a type: an order is only among values of one type."""
    match like:
        case bool():
            return Condition(name, Operator.IN, (True, False))
        case tuple():
            others = (_of_type(name, other) for other in (True, 0, "", FIRST_TIME))
            return AllOf((Condition(name, Operator.EXISTS, (True,)), NoneOf(tuple(others))))
        case int() | float():
            return AnyOf((Condition(name, Operator.GTE, (0,)), Condition(name, Operator.LT, (0,))))
        case datetime():
            return Condition(name, Operator.GTE, (FIRST_TIME,))
        case _:
            return Condition(name, Operator.GTE, ("",))
