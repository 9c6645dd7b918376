"""Selections of events as SQL, over the tables in records.db and in the files of sealed segments."""

import heapq
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from functools import partial
from itertools import chain, groupby
from typing import Any, NamedTuple

import apsw
import numpy as np

from mnemon_server.domain.clock import DAY_US, from_microseconds, spans, to_microseconds
from mnemon_server.domain.conversations import Conversation
from mnemon_server.domain.encoding import OWNER_FIELDS, SCOPE_FIELDS, scope_values
from mnemon_server.domain.events import EventPosition, EventSelection, StoredEvent
from mnemon_server.domain.records import INT64_MAX, INT64_MIN, Scope
from mnemon_server.engines.events.catalogue import SealedSegment, Snapshot
from mnemon_server.engines.events.segment_files import DayCount
from mnemon_server.engines.events.tables import existing_events
from mnemon_server.engines.promises.events import Sequences
from mnemon_server.engines.sqlite.query import fetch, id_array, ids_from_text
from mnemon_server.wire.events import event_id_of

# ruff: noqa: S608 - the conditions are made here; all input is bound

SCANNED_SHARE = 0.25
"""To look up more of the events between two sequences than this share takes longer than to list all of them."""
_EVERYTHING = EventSelection()
_CONVERSATION = ", ".join(("conversation", *OWNER_FIELDS))
_DAY = f"(time + ? - (((time + ?) % {DAY_US}) + {DAY_US}) % {DAY_US}) / {DAY_US}"
"""The day on clocks that are ahead of UTC by the parameter, which is bound twice."""

_EVENTS = (
    "SELECT wanted.rowid, e.sequence, e.time, e.body FROM carray(?) AS wanted"
    " CROSS JOIN timeline_event AS e ON e.sequence = wanted.value"
)


class Ref(NamedTuple):
    """An event without its content. References sort by time, then by sequence."""

    time_us: int
    sequence: int


class Counts(NamedTuple):
    """Counts of events: all, those that match apart from the window, and those that match."""

    total: int
    in_context: int
    in_window: int


@dataclass(frozen=True, slots=True)
class Selection:
    """An EventSelection without its expression, and its window, which includes both ends."""

    where: EventSelection = _EVERYTHING
    start_us: int = INT64_MIN
    end_us: int = INT64_MAX

    @classmethod
    def of(cls, where: EventSelection) -> "Selection":
        """The selection with the window that it names."""
        start = INT64_MIN if where.start is None else to_microseconds(where.start)
        return cls(where, start, INT64_MAX if where.end is None else to_microseconds(where.end))

    def within(self, start_us: int, end_us: int) -> "Selection":
        """The part of it between two times."""
        return replace(self, start_us=max(self.start_us, start_us), end_us=min(self.end_us, end_us))

    @property
    def is_of_user_alone(self) -> bool:
        """Whether it selects all events of a user within the window."""
        return self._is_plain and self.where.scope == Scope(user=self.where.scope.user) != Scope()

    @property
    def takes_all(self) -> bool:
        """Whether it selects all events within the window."""
        return self._is_plain and self.where.scope == Scope()

    @property
    def _is_plain(self) -> bool:
        """Whether it compares nothing but the scope and the window."""
        where = self.where
        is_scoped = bool(where.conversation) or where.whole_scope
        return not (where.event_types or where.min_importance is not None or is_scoped or where.without)

    def context(self) -> tuple[list[str], list[Any]]:
        """The conditions apart from the window, with their parameters."""
        where, conditions, parameters = self.where, [], list[Any]()
        for name, value in zip(SCOPE_FIELDS, scope_values(where.scope), strict=True):
            if value or (where.whole_scope and name in OWNER_FIELDS):
                conditions.append(f"{name} = ?")
                parameters.append(value)
        for origin, name in where.without:
            conditions.append("NOT (origin = ? AND origin_name = ?)" if name else "origin <> ?")
            parameters += [origin, name] if name else [origin]
        if where.event_types:
            conditions.append(f"type IN ({', '.join('?' * len(where.event_types))})")
            parameters += sorted(where.event_types)
        if where.min_importance is not None:
            conditions.append("importance >= ?")
            parameters.append(where.min_importance)
        if where.conversation:
            # The second condition lets SQLite use the partial index.
            conditions.append("conversation = ? AND conversation <> ''")
            parameters.append(where.conversation)
        return conditions, parameters

    def window(self) -> tuple[list[str], list[Any]]:
        """The conditions of the window, with their parameters."""
        conditions, parameters = [], list[Any]()
        if self.start_us > INT64_MIN:
            conditions.append("time >= ?")
            parameters.append(self.start_us)
        if self.end_us < INT64_MAX:
            conditions.append("time <= ?")
            parameters.append(self.end_us)
        return conditions, parameters


@dataclass(frozen=True, slots=True)
class Source:
    """A table of events of a snapshot: that of a sealed segment, or without one, that in records.db."""

    snapshot: Snapshot
    segment: SealedSegment | None

    @contextmanager
    def lend(self) -> Iterator[apsw.Connection]:
        """A connection to it. Raises the same as `SegmentFiles.lend`."""
        if self.segment is None:
            yield self.snapshot.records
        else:
            with self.snapshot.files.lend(self.segment.row.file_name) as connection:
                yield connection

    @property
    def event_count(self) -> int:
        """The number of its events."""
        return (
            sum(row.event_count for row in self.snapshot.unsealed) if self.segment is None else self.segment.event_count
        )

    @property
    def span(self) -> tuple[int, int]:
        """Times between which all its events are."""
        if self.segment is None:
            return INT64_MIN, INT64_MAX
        earliest, latest = self.segment.row.min_time_us, self.segment.row.max_time_us
        return INT64_MIN if earliest is None else earliest, INT64_MAX if latest is None else latest

    def is_within(self, selection: Selection) -> bool:
        """Whether all its events are within the window."""
        earliest, latest = self.span
        return selection.start_us <= earliest and latest <= selection.end_us

    def may_match(self, selection: Selection) -> bool:
        """Whether the catalogue does not exclude that an event matches."""
        earliest, latest = self.span
        if earliest > selection.end_us or latest < selection.start_us:
            return False
        user = selection.where.scope.user
        return self.segment is None or not user or self.segment.count_of(user) != 0

    def filtered(self, *parts: tuple[list[str], list[Any]]) -> tuple[str, list[Any]]:
        """FROM and WHERE of a statement over its events that meet all these conditions, with the parameters."""
        conditions = [condition for some, _ in parts for condition in some]
        parameters = [parameter for _, some in parts for parameter in some]
        # A plus keeps a condition from choosing the index.
        if self.segment is None:
            conditions.append("+sequence >= ?")
            parameters.append(self.snapshot.first_unsealed)
        elif len(self.segment.dead):
            conditions.append("+sequence NOT IN (SELECT value FROM carray(?))")
            parameters.append(id_array(self.segment.dead))
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"FROM timeline_event{where}", parameters

    def count(self, *parts: tuple[list[str], list[Any]]) -> int:
        """The number of its events that meet these conditions."""
        source, parameters = self.filtered(*parts)
        with self.lend() as connection:
            return int(connection.execute(f"SELECT count(*) {source}", parameters).get)


def sources(snapshot: Snapshot) -> list[Source]:
    """The tables of a snapshot that have events, in storage order."""
    found = [Source(snapshot, segment) for segment in snapshot.sealed.segments if segment.event_count]
    return [*found, *([Source(snapshot, None)] if any(row.event_count for row in snapshot.unsealed) else [])]


def counts(snapshot: Snapshot, selection: Selection) -> Counts:
    """The number of matching events."""
    in_context = in_window = 0
    for source in sources(snapshot):
        whole, part = _counts_in(source, selection)
        in_context += whole
        in_window += part
    return Counts(snapshot.event_count, in_context, in_window)


def _counts_in(source: Source, selection: Selection) -> tuple[int, int]:
    """The numbers of matching events of a source: outside of any window, and within it."""
    user = selection.where.scope.user
    of_user = source.segment.count_of(user) if source.segment and user else None
    if of_user == 0:
        return 0, 0
    if selection.takes_all:
        in_context = source.event_count
    elif of_user is not None and selection.is_of_user_alone:
        in_context = of_user
    else:
        in_context = source.count(selection.context())
    if not in_context or source.is_within(selection):
        return in_context, in_context
    earliest, latest = source.span
    if earliest > selection.end_us or latest < selection.start_us:
        return in_context, 0
    return in_context, source.count(selection.context(), selection.window())


def newest(snapshot: Snapshot, selection: Selection, limit: int, *, oldest: bool = False) -> list[Ref]:
    """The newest `limit` matches, and all of the same time as the last of these, newest first; or the oldest."""
    found: list[Ref] = []
    order = "ASC" if oldest else "DESC"
    ordered = sorted(
        (source for source in sources(snapshot) if source.may_match(selection)),
        key=lambda source: source.span[0] if oldest else -source.span[1],
    )
    for source in ordered:
        if len(found) >= limit:
            reach = found[limit - 1].time_us
            selection = replace(selection, end_us=reach) if oldest else replace(selection, start_us=reach)
            if not source.may_match(selection):
                continue
        where, parameters = source.filtered(selection.context(), selection.window())
        statement = f"SELECT time, sequence {where} ORDER BY time {order} LIMIT ?"
        with source.lend() as connection:
            # One more row shows whether further events have the same time as the last one.
            rows = fetch(connection, statement, (*parameters, limit + 1))
            if len(rows) > limit and rows.pop()[0] == rows[-1][0]:
                tied, more = source.filtered(selection.context(), (["time = ?"], [rows[-1][0]]))
                rows = [row for row in rows if row[0] != rows[-1][0]] + fetch(
                    connection, f"SELECT time, sequence {tied}", more
                )
        some = sorted(map(Ref._make, rows), reverse=not oldest)
        found = _with_ties([*heapq.merge(found, some, reverse=not oldest)] if found else some, limit)
    return found


def _with_ties(refs: list[Ref], limit: int) -> list[Ref]:
    """The first references, and all of the same time as the last of these."""
    end = min(limit, len(refs))
    while 0 < end < len(refs) and refs[end].time_us == refs[end - 1].time_us:
        end += 1
    return refs[:end]


def sequences(snapshot: Snapshot, selection: Selection, limit: int | None = None) -> Sequences:
    """The sequences of the matches, ascending; with `limit`, the first ones."""
    found: list[Sequences] = []
    missing = INT64_MAX if limit is None else limit
    for source in sources(snapshot):
        if missing > 0 and source.may_match(selection):
            some = _sequences_in(source, selection)[:missing]
            missing -= len(some)
            found.append(some)
    return np.concatenate([*found, np.empty(0, np.int64)])


def _sequences_in(source: Source, selection: Selection) -> Sequences:
    if source.segment and selection.takes_all and source.is_within(selection):
        return source.segment.sequences()
    where, parameters = source.filtered(selection.context(), selection.window())
    with source.lend() as connection:
        return np.sort(ids_from_text(connection.execute(f"SELECT group_concat(sequence) {where}", parameters).get))


def day_counts(snapshot: Snapshot, selection: Selection, zone: tzinfo = UTC) -> Sequence[DayCount]:
    """Counts of the matches in each source, by type and day of a time zone."""
    found = (_days_in(source, selection, zone) for source in sources(snapshot) if source.may_match(selection))
    return [*chain.from_iterable(found)]


def _days_in(source: Source, selection: Selection, zone: tzinfo) -> Sequence[DayCount]:
    """Counts of the matches of a source, by type and day of a time zone."""

    def count() -> Sequence[DayCount]:
        if zone is UTC:
            return _days_on_clocks(source, selection, 0)
        days = {day for _, day, *_ in _days_in(source, selection, UTC)}
        parts = ((selection.within(first, last), offset) for first, last, offset in spans(days, zone))
        return [*chain.from_iterable(_days_on_clocks(source, part, offset) for part, offset in parts)]

    segment = source.segment
    if segment is None or len(segment.dead) or not selection.takes_all or not source.is_within(selection):
        return count()
    return source.snapshot.files.days(segment.row.file_name, zone, count)


def _days_on_clocks(source: Source, selection: Selection, offset_us: int) -> Sequence[DayCount]:
    """Counts of the matches of a source, by type and day on clocks that are so far ahead of UTC."""
    # A window that leaves nothing out would have SQLite go through the index of times, which takes longer.
    window = () if source.is_within(selection) else (selection.window(),)
    where, parameters = source.filtered(selection.context(), *window)
    statement = f"SELECT type, {_DAY} AS day, count(*), min(time), max(time) {where} GROUP BY type, day"
    with source.lend() as connection:
        return fetch(connection, statement, (offset_us, offset_us, *parameters))


def conversations(snapshot: Snapshot, selection: Selection) -> list[Conversation]:
    """The conversations of the matches, with counts of their matching events, in no order."""
    found: dict[tuple[str, ...], Conversation] = {}
    for source in sources(snapshot):
        if not source.may_match(selection):
            continue
        where, parameters = source.filtered(selection.context(), selection.window(), (["conversation <> ''"], []))
        figures = "count(*), min(time), max(time), min(sequence), max(sequence)"
        statement = f"SELECT {_CONVERSATION}, {figures} {where} GROUP BY {_CONVERSATION}"
        with source.lend() as connection:
            for row in fetch(connection, statement, parameters):
                *names, count, first_us, last_us, first, last = row
                times = from_microseconds(first_us), from_microseconds(last_us)
                one = Conversation(names[0], Scope(*names[1:]), count, *times, first, last)
                same = found.get(tuple(names))
                found[tuple(names)] = one if same is None else _joined(same, one)
    return list(found.values())


def _joined(one: Conversation, other: Conversation) -> Conversation:
    """Both parts of a conversation."""
    return one._replace(
        event_count=one.event_count + other.event_count,
        first_time=min(one.first_time, other.first_time),
        last_time=max(one.last_time, other.last_time),
        first_sequence=min(one.first_sequence, other.first_sequence),
        last_sequence=max(one.last_sequence, other.last_sequence),
    )


def alive(snapshot: Snapshot, first: int, last: int) -> Sequences:
    """The events between two sequences, ascending."""
    found = [
        segment.sequences(first, last) for segment in snapshot.sealed.segments if segment.row.last_sequence >= first
    ]
    found.append(_unsealed(snapshot, max(first, snapshot.first_unsealed), last))
    return np.concatenate(found)


def _unsealed(snapshot: Snapshot, first: int, last: int) -> Sequences:
    """The events with a row between two sequences, ascending."""
    statement = "SELECT group_concat(sequence) FROM timeline_event WHERE sequence BETWEEN ? AND ?"
    return np.sort(ids_from_text(snapshot.records.execute(statement, (first, last)).get))


def alive_among(snapshot: Snapshot, sequences: Sequences) -> Sequences:
    """The events among these that exist. The given sequences must ascend."""
    found: list[Sequences] = []
    for segment in snapshot.sealed.segments:
        low, high = sequences.searchsorted((segment.row.segment_id, segment.row.last_sequence + 1)).tolist()
        if low < high:
            some = sequences[low:high]
            found.append(some[np.isin(some, segment.sequences(int(some[0]), int(some[-1])), assume_unique=True)])
    rest = sequences[sequences.searchsorted(snapshot.first_unsealed) :]
    if len(rest):
        first, last = int(rest[0]), int(rest[-1])
        if len(rest) > (last - first) * SCANNED_SHARE:
            found.append(rest[np.isin(rest, _unsealed(snapshot, first, last), assume_unique=True)])
        else:
            found.append(np.array(sorted(existing_events(snapshot.records, rest)), np.int64))
    return np.concatenate([*found, np.empty(0, np.int64)])


def count_behind(snapshot: Snapshot, sequence: int) -> int:
    """The number of events after a sequence."""
    count = 0
    for segment in snapshot.sealed.segments:
        if segment.row.segment_id > sequence:
            count += segment.event_count
        elif segment.row.last_sequence > sequence:
            count += len(segment.sequences(sequence + 1))
    statement = "SELECT count(*) FROM timeline_event WHERE sequence > ?"
    bound = max(sequence, snapshot.first_unsealed - 1)
    return count + int(snapshot.records.execute(statement, (bound,)).get)


def events(snapshot: Snapshot, wanted: Sequence[int], bytes_max: int) -> tuple[list[StoredEvent], int]:
    """The existing events among these, in the given order, up to a total size of their bodies; and how
    many of the wanted ones that includes.
    """
    found: list[StoredEvent] = []
    size = done = 0
    ids, sealed = snapshot.segment_ids, snapshot.sealed.segments
    for place, some in groupby(wanted, partial(bisect_right, ids)):
        run = [*some]
        segment = sealed[place - 1] if 0 < place <= len(sealed) else None
        dead = segment.dead_set if segment else ()
        with Source(snapshot, segment).lend() as connection:
            row: Any
            # Row by row, so that no more is read than needed.
            for row in connection.execute(_EVENTS, (id_array(run),)):
                number, sequence, time_us, body = row
                if sequence not in dead:
                    position = EventPosition(time_us, event_id_of(body))
                    found.append(StoredEvent(position, sequence, ids[place - 1], body))
                    size += len(body)
                if size >= bytes_max:
                    return found, done + number
        done += len(run)
    return found, done


def with_hashes(
    connection: apsw.Connection, column: str, numbers: Sequence[int], *, first: int = 0
) -> list[tuple[int, bytes]]:
    """The events in a table with one of these hashes, from a sequence on: (sequence, body), ascending."""
    statement = (
        f"SELECT sequence, body FROM timeline_event WHERE {column} IN (SELECT value FROM carray(?))"
        " AND +sequence >= ? ORDER BY +sequence"
    )
    return fetch(connection, statement, (id_array(numbers), first))
