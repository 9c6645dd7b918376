"""Turns the selections of callers into those that the timeline gets."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from mnemon_server.domain.events import FILTER_FIELDS, LAST_DAYS_DEFAULT, EventSelection, WindowQuery
from mnemon_server.domain.filters import METADATA_PREFIX, Condition, Operator
from mnemon_server.engines.promises.events import EventEngine
from mnemon_server.services.events.new_events import to_utc
from mnemon_server.services.shared.filter_expressions import with_engine_names

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
        expression=None if where.expression is None else with_engine_names(where.expression, FILTER_FIELDS, {}),
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


def has_metadata_key(events: EventEngine, key: str) -> bool:
    """Whether any event has the key in its metadata. Blocks."""
    having = selection(EventSelection(expression=Condition(METADATA_PREFIX + key, Operator.EXISTS, (True,))))
    found = events.window(having, after=None, limit=1)
    # The newest event with the key is enough. A slice may end early, without an event.
    while not found.events and found.next_position is not None:
        found = events.window(having, after=found.next_position, limit=1)
    return bool(found.events)
