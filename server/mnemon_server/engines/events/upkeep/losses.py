"""Determines which events were lost to damage: exactly, if the segment's original events are known."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from mnemon_server.domain.events import LostRange
from mnemon_server.engines.events.format.salvage import Damage
from mnemon_server.engines.events.upkeep.manifest import SegmentRow


@dataclass(frozen=True, slots=True)
class Lost:
    """A run of lost events, with the number of events between its ends."""

    first: int
    last: int
    count: int

    def of(self, segment_id: int, time: datetime) -> LostRange:
        """Its form for records.db."""
        return LostRange(segment_id, self.first, self.last, self.count, time)


def lost_of_known(held: Sequence[int], missing: Iterable[int]) -> list[Lost]:
    """The runs of `missing` within `held`, the segment's original events, ascending. Neighbours in `held` form
    one run.
    """
    wanted, runs = set(missing), list[Lost]()
    first = last = count = 0
    for sequence in held:
        if sequence in wanted:
            first, last, count = first or sequence, sequence, count + 1
        elif count:
            runs.append(Lost(first, last, count))
            first = count = 0
    return [*runs, Lost(first, last, count)] if count else runs


def lost_of_unknown(
    row: SegmentRow, damages: Sequence[Damage], found: Sequence[int], gone: Iterable[int]
) -> list[Lost]:
    """The losses if only the number of the segment's original events is known: what was in the damaged ranges.

    Args:
        row: the segment.
        damages: the damaged ranges of its file.
        found: the events that were found, ascending.
        gone: events that had been removed before.
    """
    known = set(found).union(gone)
    missing = row.event_count - len(known)
    gaps = [(damage.after, damage.before) for damage in damages]
    if not gaps or gaps[-1][1] is not None:
        # A file that was cut at a frame boundary has no visible damage, but the events after it are lost.
        gaps.append((found[-1] if found else None, None))
    lost: list[Lost] = []
    for after, before in gaps:
        first = row.first_sequence if after is None else after + 1
        last = row.last_sequence if before is None else before - 1
        candidates = [sequence for sequence in range(first, last + 1) if sequence not in known]
        if candidates and missing > 0:
            # Sequences may have been missing since an earlier rewrite, so fewer may be lost than would fit.
            count = min(len(candidates), missing)
            missing -= count
            lost.append(Lost(candidates[0], candidates[-1], count))
    return lost
