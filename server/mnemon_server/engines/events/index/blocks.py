"""The interface of blocks for queries, common to open and sealed blocks."""

from typing import Protocol

from mnemon_server.engines.events.index.hash_index import Matches
from mnemon_server.engines.events.index.rows import Codes, Flags, Hashes, Positions, Times
from mnemon_server.engines.events.index.selection import Query
from mnemon_server.engines.events.index.summaries import Tally


class BlockView(Protocol):
    """The events of a segment at one point in time, addressed by position. Dead events are never returned.

    A query must be created after the view was taken. Positions are only valid within their view.
    """

    @property
    def segment_id(self) -> int:
        """The sequence of the segment's first event."""

    @property
    def last_sequence(self) -> int:
        """The sequence of the last event."""

    @property
    def count(self) -> int:
        """The number of events, including dead ones."""

    @property
    def alive_count(self) -> int:
        """The number of events that are not dead."""

    @property
    def min_time(self) -> int:
        """The earliest time, including dead events."""

    @property
    def max_time(self) -> int:
        """The latest time, including dead events."""

    def select(self, query: Query) -> Positions:
        """The positions of all matches, ascending."""

    def first(self, query: Query, limit: int, *, oldest_first: bool) -> Positions:
        """At least the `limit` newest or oldest matches, and all matches with the same time as the last of these.

        The result may contain more, in any order.
        """

    def tally(self, query: Query) -> tuple[int, int]:
        """The number of matches regardless of time, and the number of matches."""

    def summarize(self, query: Query) -> Tally | None:
        """The counts of all matches; None without any."""

    def find_ids(self, hashes: Hashes) -> Matches:
        """The events with these hashes of their ids."""

    def find_keys(self, users: Codes, times: Times, hashes: Hashes) -> Matches:
        """The events with this user, this time, and this key hash."""

    def find_sequences(self, sequences: Times) -> Positions:
        """The positions of the events with these sequences, as far as they exist; ascending."""

    def are_alive(self, sequences: Times) -> Flags:
        """Flags for the sequences, from `segment_id` to `last_sequence`, of events that are not dead."""

    def times(self, positions: Positions) -> Times:
        """The times of the events."""

    def sequences(self, positions: Positions) -> Times:
        """The sequences of the events."""

    def offsets(self, positions: Positions) -> Times:
        """The offsets of the events' frames; NO_OFFSET in an open block."""

    def type_codes(self, positions: Positions) -> Codes:
        """The codes of the events' types."""
