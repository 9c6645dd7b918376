"""Summarises events: counts by type and by day."""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from mnemon_server.engines.timeline.index.interning import Interner
from mnemon_server.engines.timeline.index.paging import Found
from mnemon_server.engines.timeline.index.rows import Codes, Summary, Times

DAY_US = 86_400_000_000


def summarize(found: Iterable[Found], types: Interner[str]) -> Summary:
    """The summary of all given events."""
    per_type: Counter[int] = Counter()
    per_day: Counter[int] = Counter()
    earliest, latest = [], []
    for view, positions, times in found:
        if len(positions):
            per_type.update(_tally(view.type_codes(positions)))
            per_day.update(_tally(times // DAY_US))
            earliest.append(int(times.min()))
            latest.append(int(times.max()))
    return Summary(
        count=per_type.total(),
        earliest_us=min(earliest, default=None),
        latest_us=max(latest, default=None),
        per_type={types.value(code): count for code, count in sorted(per_type.items())},
        per_day=dict(sorted(per_day.items())),
    )


def _tally(values: Codes | Times) -> dict[int, int]:
    """The frequency of each value."""
    low, high = int(values.min()), int(values.max())
    if high - low > len(values):
        different, counts = np.unique(values, return_counts=True)
        return dict(zip(different.tolist(), counts.tolist(), strict=True))
    counts = np.bincount((values - values.dtype.type(low)).astype(np.intp))
    present = np.flatnonzero(counts)
    return dict(zip((present + low).tolist(), counts[present].tolist(), strict=True))
