"""The first events of some order in time, out of blocks that each know theirs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mnemon_server.domain.records import INT64_MAX, INT64_MIN
from mnemon_server.engines.segments.blocks import BlockView
from mnemon_server.engines.segments.rows import EventRef, Positions, Times
from mnemon_server.engines.segments.selection import Query, rim


class Found(NamedTuple):
    """Some events of one block."""

    view: BlockView
    positions: Positions
    times: Times

    @classmethod
    def of(cls, view: BlockView, positions: Positions) -> "Found":
        """These events, with their times."""
        return cls(view, positions, view.times(positions))

    def within(self, start_us: int, end_us: int) -> "Found":
        """Those in a span of time, both ends included."""
        keep = (self.times >= start_us) & (self.times <= end_us)
        return Found(self.view, self.positions[keep], self.times[keep])


def find_all(views: Sequence[BlockView], query: Query) -> list[Found]:
    """All that matches."""
    return [Found.of(view, view.select(query)) for view in views]


def find_first(views: Sequence[BlockView], query: Query, limit: int, *, oldest_first: bool) -> list[Found]:
    """Of what matches the `limit` newest or oldest, and all that are as old as the last of them.

    Blocks are asked in order of time, and none any more that cannot have any of those.
    """
    found: list[Found] = []
    missing = limit
    if limit < 1 or query.start_us > query.end_us:
        return found
    for view in _in_order(views, oldest_first=oldest_first):
        if view.max_time < query.start_us or view.min_time > query.end_us:
            continue
        found.append(Found.of(view, view.first(query, limit, oldest_first=oldest_first)))
        missing -= len(found[-1].positions)
        if missing <= 0:
            reach = rim(np.concatenate([part.times for part in found]), limit, oldest_first=oldest_first)
            query = query.between(INT64_MIN, reach) if oldest_first else query.between(reach, INT64_MAX)
    return [part.within(query.start_us, query.end_us) for part in found]


def references(found: Sequence[Found], *, oldest_first: bool) -> list[EventRef]:
    """Where these events are, by time, and those of the same time by sequence."""
    parts = [part for part in found if len(part.positions)]
    if not parts:
        return []
    times = np.concatenate([part.times for part in parts])
    sequences = np.concatenate([part.view.sequences(part.positions) for part in parts])
    offsets = np.concatenate([part.view.offsets(part.positions) for part in parts])
    segments = np.repeat([part.view.segment_id for part in parts], [len(part.positions) for part in parts])
    order = np.lexsort((sequences, times))
    if not oldest_first:
        order = order[::-1]
    columns = (column[order].tolist() for column in (times, sequences, segments, offsets))
    return list(map(EventRef._make, zip(*columns, strict=True)))


def references_in_order(view: BlockView, positions: Positions) -> list[EventRef]:
    """Where these events of one block are, in the order of the positions."""
    columns = (view.times(positions), view.sequences(positions), view.offsets(positions))
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [EventRef(time_us, sequence, view.segment_id, offset) for time_us, sequence, offset in rows]


def _in_order(views: Sequence[BlockView], *, oldest_first: bool) -> list[BlockView]:
    if oldest_first:
        return sorted(views, key=lambda view: view.min_time)
    return sorted(views, key=lambda view: -view.max_time)
