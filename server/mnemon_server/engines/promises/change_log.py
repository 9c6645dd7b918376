"""The contract of a vault's change log."""

from concurrent.futures import Future
from datetime import datetime
from typing import Protocol

from mnemon_server.domain.changes import ChangeFilter, ChangeLogState, ChangeSlice

TRIM_MAX = 5_000
"""Maximum number of changes that one call of `trim` drops."""


class ChangeLog(Protocol):
    """The changes of a vault in commit order. An entry is written in the same transaction as the change that it
    describes.

    Any thread may call any method. Reads block, and see everything acknowledged before they began. A change that they
    return is visible to every other read of the vault.
    """

    @property
    def epoch(self) -> bytes:
        """16 random bytes drawn when the vault was created, and again when a backup of it was restored. Cursors are
        bound to them. Secret.
        """

    @property
    def origin(self) -> bytes:
        """The epoch with which the vault was created. Secret."""

    def read(self, after: int, *, limit: int, where: ChangeFilter) -> ChangeSlice:
        """Up to `limit` changes after `after` that match, in order, and how far the log was read to find them."""

    def position_before(self, time: datetime) -> int:
        """The position after which every change was committed at `time` or later."""

    def state(self) -> ChangeLogState:
        """Which part of the log is kept."""

    def trim(self, *, before: datetime, keep_max: int, keep_after: int | None = None) -> Future[int]:
        """Drops the oldest changes: those committed before a time, and all but the newest `keep_max`.

        Changes after the position `keep_after` stay, however old or many they are. A call drops at most TRIM_MAX, so
        that no write waits long, and returns the number dropped; fewer than TRIM_MAX means that it is done.
        """
