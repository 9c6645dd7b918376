"""Summarises events: counts by type and by day."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.events.index.interning import Interner
from mnemon_server.engines.events.index.rows import Codes, Summary, Times

DAY_US = 86_400_000_000


class Counted(NamedTuple):
    """Different numbers, ascending, and how often each occurs."""

    numbers: NDArray[np.int64]
    counts: NDArray[np.int64]


class Tally(NamedTuple):
    """Counts of some events of one block."""

    types: Counted
    days: Counted
    """Days since 1970-01-01 (UTC)."""
    earliest_us: int
    latest_us: int

    @classmethod
    def of(cls, types: Codes, times: Times) -> "Tally | None":
        """The counts of events with these types and times; None without events."""
        if not len(times):
            return None
        return cls(_counted(types), _counted(times // DAY_US), int(times.min()), int(times.max()))


def summarize(tallies: Iterable[Tally | None], types: Interner[str]) -> Summary:
    """The summary of all counted events."""
    found = [tally for tally in tallies if tally is not None]
    per_type = _together([tally.types for tally in found])
    per_day = _together([tally.days for tally in found])
    return Summary(
        count=sum(per_type.values()),
        earliest_us=min((tally.earliest_us for tally in found), default=None),
        latest_us=max((tally.latest_us for tally in found), default=None),
        per_type={types.value(code): count for code, count in per_type.items()},
        per_day=per_day,
    )


def _together(counted: list[Counted]) -> dict[int, int]:
    """The counts of all, by ascending number."""
    if not counted:
        return {}
    numbers, places = np.unique(np.concatenate([one.numbers for one in counted]), return_inverse=True)
    counts = np.zeros(len(numbers), np.int64)
    np.add.at(counts, places, np.concatenate([one.counts for one in counted]))
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))


def _counted(values: Codes | Times) -> Counted:
    low, high = int(values.min()), int(values.max())
    if high - low > len(values):
        numbers, counts = np.unique(values, return_counts=True)
        return Counted(numbers.astype(np.int64), counts)
    tally = np.bincount((values - values.dtype.type(low)).astype(np.intp))
    present = np.flatnonzero(tally)
    return Counted(present + low, tally[present])
