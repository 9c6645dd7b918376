"""Finds the first events in time order across several blocks."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mnemon_server.domain.records import INT64_MAX, INT64_MIN
from mnemon_server.engines.events.index.blocks import BlockView
from mnemon_server.engines.events.index.rows import EventRef, Positions, Times
from mnemon_server.engines.events.index.selection import Query, rim
from mnemon_server.engines.events.named_tuples import maker

_new_ref = maker(EventRef)


class Found(NamedTuple):
    """Some events of one block."""

    view: BlockView
    positions: Positions
    times: Times

    @classmethod
    def of(cls, view: BlockView, positions: Positions) -> "Found":
        """These events with their times."""
        return cls(view, positions, view.times(positions))

    def columns(self) -> list[Times]:
        """The columns of their references."""
        view, positions = self.view, self.positions
        segments = np.full(len(positions), view.segment_id, np.int64)
        return [self.times, view.sequences(positions), segments, view.offsets(positions)]


def find_all(views: Sequence[BlockView], query: Query) -> list[Found]:
    """All matches."""
    return [Found.of(view, view.select(query)) for view in views]


def find_first(views: Sequence[BlockView], query: Query, limit: int, *, oldest_first: bool) -> list[Found]:
    """At least the `limit` newest or oldest matches, and all matches with the same time as the last of these.

    Blocks are searched in time order, until no remaining block can contribute.
    """
    found: list[Found] = []
    missing = limit
    if limit < 1 or query.start_us > query.end_us:
        return found
    for view in _in_order(views, oldest_first=oldest_first):
        if missing <= 0:
            reach = rim(np.concatenate([part.times for part in found]), limit, oldest_first=oldest_first)
            query = query.between(INT64_MIN, reach) if oldest_first else query.between(reach, INT64_MAX)
            missing = limit
        if view.max_time < query.start_us or view.min_time > query.end_us:
            continue
        found.append(Found.of(view, view.first(query, limit, oldest_first=oldest_first)))
        missing -= len(found[-1].positions)
    return found


def references(found: Sequence[Found], *, oldest_first: bool, limit: int | None = None) -> list[EventRef]:
    """References to these events, ordered by time, then by sequence.

    With `limit`, only the first ones, and all with the same time as the last of these.
    """
    parts = [part for part in found if len(part.positions)]
    if not parts:
        return []
    columns = [part.columns() for part in parts]
    # Usually all are in one block.
    joined = columns[0] if len(columns) == 1 else [np.concatenate(pieces) for pieces in zip(*columns, strict=True)]
    times, sequences, *_ = joined
    order = np.lexsort((sequences, times))
    if not oldest_first:
        order = order[::-1]
    if limit is not None and limit < len(order):
        reach = times[order[limit - 1]]
        order = order[: np.count_nonzero(times <= reach if oldest_first else times >= reach)]
    return list(map(_new_ref, zip(*(column[order].tolist() for column in joined), strict=True)))


def references_in_order(view: BlockView, positions: Positions) -> list[EventRef]:
    """References to these events of one block, in the order of the positions."""
    times, sequences, offsets = view.times(positions), view.sequences(positions), view.offsets(positions)
    columns = times.tolist(), sequences.tolist(), [view.segment_id] * len(times), offsets.tolist()
    return list(map(_new_ref, zip(*columns, strict=True)))


def _in_order(views: Sequence[BlockView], *, oldest_first: bool) -> list[BlockView]:
    if oldest_first:
        return sorted(views, key=lambda view: view.min_time)
    return sorted(views, key=lambda view: -view.max_time)
