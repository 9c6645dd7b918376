"""Selections of events, in terms of values and in terms of the columns' codes."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from mnemon_server.domain.records import INT64_MAX, INT64_MIN, Scope
from mnemon_server.engines.events.index.interning import Interner, Interners
from mnemon_server.engines.events.index.rows import Codes, Flags, Importances, Positions, Times

COMPARED_CODES_MAX = 4
"""Up to this many codes, comparing them with a column one by one is faster than a table look-up per row."""

_SPAN_MAX = 1_000_000
"""A table of up to this many flags is cheap, however few rows there are."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects events by scope, type, importance and time. Unset fields do not restrict."""

    scope: Scope = Scope()
    """Every field that is set must be equal."""
    event_types: frozenset[str] = frozenset()
    min_importance: float | None = None
    """Compared in single precision. Events of unknown importance do not match."""
    start_us: int | None = None
    end_us: int | None = None
    """The window includes both ends."""

    @property
    def window(self) -> tuple[int, int]:
        """The first and the last microsecond."""
        start = INT64_MIN if self.start_us is None else max(self.start_us, INT64_MIN)
        end = INT64_MAX if self.end_us is None else min(self.end_us, INT64_MAX)
        return start, end


class Wanted:
    """A set of codes, as a filter for columns."""

    def __init__(self, codes: Codes, known: int) -> None:
        self.codes = codes
        self._known = known

    @cached_property
    def _flags(self) -> Flags:
        flags = np.zeros(self._known, np.bool_)
        flags[self.codes] = True
        return flags

    def rows(self, column: Codes) -> Flags:
        """Flags for the matching rows of a column of codes."""
        if len(self.codes) > COMPARED_CODES_MAX:
            return self._flags.take(column)
        return _equal_to_any(column, self.codes)

    def local_rows(self, column: Codes, dictionary: Codes) -> Flags | None:
        """Flags for the matching rows of a column of positions in a dictionary of codes; None stands for all rows."""
        if len(dictionary) > len(column):
            return self.rows(dictionary[column])
        flags = self.rows(dictionary)
        wanted = np.flatnonzero(flags)
        if len(wanted) == len(dictionary):
            return None
        if len(wanted) > COMPARED_CODES_MAX:
            return flags.take(column)
        return _equal_to_any(column, wanted.astype(np.uint32))


@dataclass(frozen=True, slots=True)
class Query:
    """A selection in terms of codes. It is valid for blocks that existed when it was created."""

    start_us: int
    end_us: int
    user: int | None
    """The number of the only user, or None for all users."""
    scopes: Wanted | None
    beyond_user: bool
    """Whether `scopes` restricts more than the user."""
    types: Wanted | None
    min_importance: np.float32 | None
    _rows: dict[int, Positions] = field(default_factory=dict, compare=False)
    """By segment, the rows of `scopes` that were found; shared with the queries made by `between`."""

    @classmethod
    def of(cls, selection: Selection, interners: Interners) -> "Query | None":
        """The query for a selection; None if nothing can match it."""
        scopes = _scopes(selection.scope, interners)
        types = _types(selection.event_types, interners.types)
        start, end = selection.window
        if any(wanted is not None and not len(wanted.codes) for wanted in (scopes, types)):
            return None
        if start > INT64_MAX or end < INT64_MIN:
            return None
        scope, importance = selection.scope, selection.min_importance
        return cls(
            start_us=start,
            end_us=end,
            user=interners.scopes.find_user(scope.user) if scope.user else None,
            scopes=scopes,
            beyond_user=scope != Scope(user=scope.user),
            types=types,
            min_importance=None if importance is None else np.float32(importance),
        )

    @property
    def is_of_user_alone(self) -> bool:
        """Whether it selects all events of one user, apart from the time."""
        plain = self.types is None and self.min_importance is None and not self.beyond_user
        return plain and self.user is not None

    def takes_all(self, min_time: int, max_time: int) -> bool:
        """Whether it selects all events of everybody between these times."""
        plain = self.types is None and self.min_importance is None and self.scopes is None
        return plain and self.start_us <= min_time and max_time <= self.end_us

    def between(self, start_us: int, end_us: int) -> "Query":
        """The same query within a smaller window."""
        return replace(self, start_us=max(start_us, self.start_us), end_us=min(end_us, self.end_us))

    def rows_of_scope(self, segment_id: int, column: Codes) -> Positions:
        """The rows of a column of scope codes that match. Looked up once per segment, because counting and paging ask
        for the same rows.
        """
        rows = self._rows.get(segment_id)
        if rows is None:
            matching = np.arange(len(column)) if self.scopes is None else self.scopes.rows(column).nonzero()[0]
            rows = self._rows[segment_id] = matching
        return rows

    def important(self, importances: Importances) -> Flags | None:
        """Flags for the events that are important enough; None stands for all."""
        if self.min_importance is None:
            return None
        enough: Flags = importances >= self.min_importance
        return enough

    def timely(self, times: Times, min_time: int, max_time: int) -> Flags | None:
        """Flags for the times within the window, given the earliest and latest of the times; None stands for all."""
        late = times >= self.start_us if self.start_us > min_time else None
        return both(late, times <= self.end_us if self.end_us < max_time else None)


def both(first: Flags | None, second: Flags | None) -> Flags | None:
    """The conjunction of both; None stands for all. May modify the first."""
    if first is None or second is None:
        return second if first is None else first
    first &= second
    return first


def rim(times: Times, limit: int, *, oldest_first: bool) -> int:
    """The time of the last of the first `limit` events. There must be at least `limit`."""
    at = limit - 1 if oldest_first else len(times) - limit
    return int(np.partition(times, at)[at])


def first_groups(times: Times, limit: int, *, oldest_first: bool) -> Positions | None:
    """Flags for the times that are among the first `limit` or equal to the last of these; None stands for all."""
    if len(times) <= limit:
        return None
    reach = rim(times, limit, oldest_first=oldest_first)
    return np.flatnonzero(times <= reach if oldest_first else times >= reach)


def rows_numbered(column: Codes, numbers: Times) -> Flags:
    """Flags for the rows whose number (below 2**32) is in `numbers`."""
    span = int(column.max(initial=0)) + 1
    inside = numbers[(numbers >= 0) & (numbers < span)]
    if span > _SPAN_MAX + len(column) * 8:
        return np.isin(column, inside)
    return Wanted(inside.astype(np.uint32), span).rows(column)


def numbers_among(column: Codes, dead: Flags | None, numbers: Times) -> Flags:
    """Flags for the numbers that are in a column, and not in one of its dead rows. `dead` may end before the column,
    and no number is above its highest.
    """
    among = np.zeros(int(column.max(initial=0)) + 1, np.bool_)
    among[column] = True
    if dead is not None:
        among[column[: len(dead)][dead]] = False
    return among[numbers]


def _equal_to_any(column: Codes, codes: Codes) -> Flags:
    if not len(codes):
        return np.zeros(len(column), np.bool_)
    flags: Flags = column == codes[0]
    for code in codes[1:]:
        flags |= column == code
    return flags


def _scopes(scope: Scope, interners: Interners) -> Wanted | None:
    if scope == Scope():
        return None
    # Read the number of codes last, because it must cover all wanted codes.
    codes = interners.scopes.matching(scope)
    return Wanted(codes, len(interners.scopes))


def _types(event_types: frozenset[str], types: Interner[str]) -> Wanted | None:
    if not event_types:
        return None
    found = {code for name in event_types if (code := types.find(name)) is not None}
    return Wanted(np.array(sorted(found), np.uint32), len(types))
