"""Counts the events in the log that the bridge has not handled yet: each once, however often the number is read."""

from array import array
from bisect import bisect_right

from mnemon_server.domain.changes import ChangeFilter, ChangeType
from mnemon_server.engines.promises.change_log import ChangeLog

QUEUED = ChangeFilter(types=frozenset({ChangeType.EPISODIC_SAVED, ChangeType.EPISODIC_PRUNED}))
READ_MAX = 1_000
COUNTED_MAX = 20_000
"""Entries counted at a time; the next call continues from there."""


class BridgeQueue:
    """Counts the events behind a position. One thread at a time may call it."""

    def __init__(self, log: ChangeLog) -> None:
        self._log = log
        self._position = self._counted_to = 0
        self._sequences = array("q")

    def depth(self, position: int) -> int:
        """The number of events behind the position; for a long queue, a lower bound. Reads the log."""
        if not self._position <= position <= self._counted_to:
            self._counted_to, self._sequences = position, array("q")
        self._position = position
        del self._sequences[: bisect_right(self._sequences, position)]
        for _ in range(COUNTED_MAX // READ_MAX):
            found = self._log.read(self._counted_to, limit=READ_MAX, where=QUEUED)
            self._sequences.extend(change.sequence for change in found.changes)
            self._counted_to = found.position
            if found.caught_up:
                break
        return len(self._sequences)
