"""The bodies of the events that were committed last, for those who follow the commits."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from mnemon_server.engines.events.rows.tables import EventValues

BYTES_MAX = 4 << 20
_RUN_ROWS = 1_000


class RecentBodies:
    """Bodies of unsealed events in memory, so that their rows need not be read again a moment after they were written.

    Each step of a SELECT releases the interpreter lock. A thread that reads thousands of rows while events are being
    stored spends more time waiting for the lock than reading, and keeps the other threads from their work.

    The writer's thread changes it, after its commits. Any thread may read, without a lock; it gets fewer events, or
    None, if some are forgotten meanwhile.
    """

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        """Starts empty. Holds up to about `bytes_max` bytes of bodies, and at least the events of the last commit."""
        self._bytes_max = bytes_max
        self._runs: list[_Run] = []
        self._last = 0

    def add(self, rows: list[EventValues], byte_count: int) -> None:
        """Adds the newest committed events, ascending, with the size of their bodies. The oldest are forgotten.

        The list then belongs to this object.
        """
        runs = self._runs
        if runs and len(runs[-1].rows) + len(rows) <= _RUN_ROWS:
            runs[-1].rows.extend(rows)
            runs[-1].byte_count += byte_count
        else:
            runs = [*runs, _Run(rows, byte_count)]
        size = sum(run.byte_count for run in runs)
        while size > self._bytes_max and len(runs) > 1:
            size -= runs[0].byte_count
            runs = runs[1:]
        self._runs, self._last = runs, rows[-1][0]

    def start(self, last_sequence: int) -> None:
        """Forgets all events: some were removed, or the file was opened again."""
        self._runs, self._last = [], last_sequence

    def get(self, sequences: Sequence[int]) -> dict[int, bytes]:
        """The bodies of those of these events that it holds."""
        runs = self._runs
        if not runs or max(sequences) < runs[0].first:
            return {}
        firsts = [run.first for run in runs]
        found: dict[int, bytes] = {}
        for sequence in sequences:
            if sequence >= firsts[0]:
                run = bisect_right(firsts, sequence) - 1
                rows = runs[run].rows
                # Mostly the sequences of a run have no gaps.
                place = sequence - firsts[run]
                if place >= len(rows) or rows[place][0] != sequence:
                    place = bisect_left(rows, sequence, key=_sequence)
                if place < len(rows) and rows[place][0] == sequence:
                    found[sequence] = rows[place][-1]
        return found

    def after(self, segment_id: int, sequence: int) -> list[tuple[int, bytes]] | None:
        """All events of a segment after a sequence: (sequence, body), ascending. None if it does not hold them all."""
        last, runs, first = self._last, self._runs, max(sequence + 1, segment_id)
        if first > last:
            return []
        if not runs or runs[0].first > first:
            return None
        found: list[tuple[int, bytes]] = []
        for run in runs:
            rows = run.rows[bisect_left(run.rows, first, key=_sequence) :]
            found += [(row[0], row[-1]) for row in rows if row[1] == segment_id]
        return found


@dataclass(slots=True)
class _Run:
    """Consecutive events. Their list may grow while others read it."""

    rows: list[EventValues]
    byte_count: int

    @property
    def first(self) -> int:
        return self.rows[0][0]


_sequence = itemgetter(0)
