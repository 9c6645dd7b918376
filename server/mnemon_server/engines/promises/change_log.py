"""What the log of a vault promises."""

from concurrent.futures import Future
from datetime import datetime
from typing import Protocol

from mnemon_server.domain.changes import ChangeFilter, ChangeLogState, ChangeSlice

TRIM_MAX = 5_000
"""Most changes that go at a time."""


class ChangeLog(Protocol):
    """What happened in a vault, in the order of commits; what is said of a change is in the change's own transaction.

    Any thread may call any method; reads block, and see everything acknowledged before they began. What they tell of is
    there for every other read of the vault.
    """

    @property
    def epoch(self) -> bytes:
        """16 random bytes drawn when the vault was created: what cursors are bound to. Secret."""

    def read(self, after: int, *, limit: int, where: ChangeFilter) -> ChangeSlice:
        """Up to `limit` changes behind `after` that match, in order, and how far the log was read for them."""

    def position_before(self, time: datetime) -> int:
        """The position behind which every change was committed at `time` or later."""

    def state(self) -> ChangeLogState:
        """What is kept."""

    def trim(self, *, before: datetime, keep_max: int, keep_after: int | None = None) -> Future[int]:
        """Drops the oldest changes: those committed before a time, and all but the newest `keep_max`.

        Whatever is behind the position `keep_after` stays, however old it is and however many they are. Drops at most
        TRIM_MAX at a time, so that no write waits long; returns how many went, fewer when nothing is left to drop.
        """
