"""What the index asks of a block, whether it is open or sealed."""

from typing import Protocol

from mnemon_server.engines.timeline.index.hash_index import Matches
from mnemon_server.engines.timeline.index.rows import Codes, Hashes, Positions, Times
from mnemon_server.engines.timeline.index.selection import Query


class BlockView(Protocol):
    """The events of a segment as they are at one moment, by position; dead ones are never found.

    A query must have been made after the view was taken. Positions mean nothing outside of their view.
    """

    @property
    def segment_id(self) -> int:
        """The sequence of the segment's first event."""

    @property
    def last_sequence(self) -> int:
        """The sequence of the last event."""

    @property
    def count(self) -> int:
        """How many events there are, dead ones included."""

    @property
    def alive_count(self) -> int:
        """How many events are not dead."""

    @property
    def min_time(self) -> int:
        """The earliest time, of dead events, too."""

    @property
    def max_time(self) -> int:
        """The latest time, of dead events, too."""

    def select(self, query: Query) -> Positions:
        """All that matches, ascending."""

    def first(self, query: Query, limit: int, *, oldest_first: bool) -> Positions:
        """Of what matches, at least the `limit` newest or oldest, and all that are of the last one's time.

        There may be more than these, in any order.
        """

    def tally(self, query: Query) -> tuple[int, int]:
        """How many match in all but time, and how many match."""

    def find_ids(self, hashes: Hashes) -> Matches:
        """Which events have these hashes of their ids."""

    def find_keys(self, users: Codes, times: Times, hashes: Hashes) -> Matches:
        """Which events have this user, this time, and this hash of their key."""

    def find_sequences(self, sequences: Times) -> Positions:
        """Where the events with these sequences are, of those that it has; ascending."""

    def times(self, positions: Positions) -> Times:
        """When they happened."""

    def sequences(self, positions: Positions) -> Times:
        """Their sequences."""

    def offsets(self, positions: Positions) -> Times:
        """Where their frames start, NO_OFFSET in an open block."""

    def type_codes(self, positions: Positions) -> Codes:
        """The codes of their types."""
