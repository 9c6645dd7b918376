"""The contract of a vault: all records of one tenant behind one writer."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import Collection
from mnemon_server.domain.records import RequestKey, Scope
from mnemon_server.engines.promises.change_log import ChangeLog
from mnemon_server.engines.promises.records import RecordEngine, RecordTransaction
from mnemon_server.engines.promises.timeline import Timeline


class VaultTransaction(Protocol):
    """A running transaction. It belongs to the writer's thread, and must not be used after its program returns."""

    @property
    def now(self) -> datetime:
        """The commit time."""

    def collection(self, collection: Collection) -> RecordTransaction:
        """One collection."""

    def value(self, key: str) -> str | None:
        """The text that `set_value` stored under this key, or None."""

    def set_value(self, key: str, value: str) -> None:
        """Stores a small text of the vault's own."""

    def note_change(
        self, change: ChangeType, record_id: str, *, revision: int = 0, scope: Scope = Scope(), details: str = ""
    ) -> None:
        """Adds an entry to the change log, in the order of the calls."""


@dataclass(frozen=True, slots=True)
class TransactionReceipt:
    """The confirmation of a transaction. Its promises hold once a caller has it."""

    answer: str
    """What the program returned; for a replay, what it returned the first time."""
    commit_time: datetime
    sequence: int = 0
    """The sequence number of its newest change, or of the newest change in the vault if it made none."""
    replayed: bool = False


class Vault(Protocol):
    """All records of one tenant. Collections share one writer, one order of changes, and one change log."""

    @property
    def changes(self) -> ChangeLog:
        """The change log."""

    @property
    def timeline(self) -> Timeline:
        """The timeline, always the same object."""

    def collection(self, collection: Collection) -> RecordEngine:
        """A collection, always the same object."""

    def transact(
        self, program: Callable[[VaultTransaction], str], *, request: RequestKey | None = None
    ) -> Future[TransactionReceipt]:
        """Runs a program that reads and writes, and commits all of its writes, or none if it raises.

        The program runs on the writer's thread, so it must be quick, and must use the vault only through its
        transaction. If the transaction is repeated, it runs again, and only the last run counts. Its writes are one
        commit in the log. It returns an answer, which is kept for the request's lifetime. The future raises what the
        program raised, or the same errors as the future of a RecordEngine's write.
        """

    def is_answered(self, request_id: str) -> bool:
        """Whether an answer is stored for this request id, so that a write with it would change nothing."""

    def value(self, key: str) -> str | None:
        """The text that `VaultTransaction.set_value` stored under this key, or None."""

    def subscribe(self, on_commit: Callable[[], None]) -> Callable[[], None]:
        """Calls `on_commit` after every commit, on a thread of the engine. It must not block. Returns a function that
        ends it.
        """

    def failure(self) -> str | None:
        """Why writes are refused, as a sentence for clients; None if they are accepted."""

    def recover(self) -> None:
        """Reopens the vault after a failure; see RecordEngine."""

    def close(self) -> None:
        """Finishes the accepted writes and releases all resources. Further calls have no effect."""
