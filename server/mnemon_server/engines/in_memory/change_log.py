"""The change log in a list."""

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from mnemon_server.domain.changes import Change, ChangeFilter, ChangeLogState, ChangeSlice, ChangeType
from mnemon_server.domain.records import RequestKey, Scope
from mnemon_server.engines.in_memory.commit_lock import CommitLock
from mnemon_server.engines.promises.change_log import TRIM_MAX

T = TypeVar("T")


@dataclass(slots=True)
class Call:
    """One call, and the changes that it makes, which share one commit time."""

    now: datetime
    """The time by the clock."""
    time: datetime
    """The commit time, which never decreases."""
    request_id: str
    changes: list[Change] = field(default_factory=list)
    sequence: int = 0
    """Position of the newest change of the call; 0 if it changed nothing."""

    def add(
        self,
        sequence: int,
        change: ChangeType,
        record_id: str,
        revision: int,
        scope: Scope,
        changed: tuple[str, ...] = (),
        details: str = "",
    ) -> None:
        """Adds a change."""
        self.sequence = sequence
        self.changes.append(
            Change(
                sequence=sequence,
                commit=self.changes[0].sequence if self.changes else sequence,
                time=self.time,
                type=change,
                record_id=record_id,
                revision=revision,
                scope=scope,
                request_id=self.request_id,
                changed=changed,
                details=details,
            )
        )


class InMemoryChangeLog:
    """See ChangeLog."""

    def __init__(self, commits: CommitLock) -> None:
        self._commits = commits
        self._changes: list[Change] = []
        self._floor = self._head = 0
        self._head_time: datetime | None = None
        self.epoch = self.origin = os.urandom(16)

    @property
    def head(self) -> int:
        """The position of the newest change; 0 if there never was one."""
        return self._head

    def run(self, request: RequestKey | None, perform: Callable[[Call], T]) -> T:
        """Runs a call, and adds its changes to the log unless it raises."""
        now = self._commits.clock()
        time = max(now, self._head_time) if self._head_time else now
        call = Call(now, time, request.request_id if request else "")
        result = perform(call)
        if call.changes:
            self._changes += call.changes
            self._head, self._head_time = call.changes[-1].sequence, time
        return result

    def read(self, after: int, *, limit: int, where: ChangeFilter) -> ChangeSlice:
        """See ChangeLog."""
        with self._commits.lock:
            start = bisect_right(self._changes, after, key=lambda change: change.sequence)
            found = [change for change in self._changes[start:] if where.matches(change)][:limit]
            position = found[-1].sequence if len(found) == limit else max(after, self._head)
            return ChangeSlice(tuple(found), position, caught_up=position >= self._head, floor=self._floor)

    def position_before(self, time: datetime) -> int:
        """See ChangeLog."""
        with self._commits.lock:
            first = bisect_left(self._changes, time, key=lambda change: change.time)
            return self._changes[first].sequence - 1 if first < len(self._changes) else self._head

    def state(self) -> ChangeLogState:
        """See ChangeLog."""
        with self._commits.lock:
            first_time = self._changes[0].time if self._changes else None
            return ChangeLogState(self._floor, self._head, len(self._changes), first_time, self._head_time)

    def saved(self) -> Callable[[], None]:
        """Returns a function that restores the current entries. Call it with the lock held."""
        former = list(self._changes)

        def restore() -> None:
            self._changes = former

        return restore

    def forget(self, sequences: Sequence[int]) -> int:
        """See VaultTransaction."""
        gone, before = set(sequences) - {self._head}, len(self._changes)
        self._changes = [change for change in self._changes if change.sequence not in gone]
        return before - len(self._changes)

    def trim(self, *, before: datetime, keep_max: int, keep_after: int | None = None) -> Future[int]:
        """See ChangeLog."""
        return self._commits.write(None, lambda: self._trim(before, keep_max, keep_after))

    def _trim(self, before: datetime, keep_max: int, keep_after: int | None) -> int:
        old = bisect_left(self._changes, before, key=lambda change: change.time)
        last = self._head if keep_after is None else keep_after
        free = bisect_right(self._changes, last, key=lambda change: change.sequence)
        dropped = min(max(old, len(self._changes) - keep_max, 0), free, TRIM_MAX)
        if dropped:
            self._floor = self._changes[dropped - 1].sequence
            del self._changes[:dropped]
        return dropped
