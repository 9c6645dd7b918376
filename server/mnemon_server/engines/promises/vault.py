"""The contract of a vault: all records of one tenant behind one writer."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import Collection
from mnemon_server.domain.records import RequestKey, Scope, WriteOutcome, WriteReceipt
from mnemon_server.engines.promises.change_log import ChangeLog
from mnemon_server.engines.promises.events import EventEngine
from mnemon_server.engines.promises.marks import Marks
from mnemon_server.engines.promises.records import RecordEngine, RecordTransaction
from mnemon_server.engines.promises.values import Vector


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

    def remove_value(self, key: str) -> None:
        """Removes the text under this key, if there is one."""

    def entomb(self, keys: Sequence[bytes], time: datetime) -> None:
        """Stores tombstones of what is erased at that time: hashes that do not tell what they are of. One that is
        stored already keeps the later time.
        """

    def tombstones(self, keys: Sequence[bytes]) -> dict[bytes, datetime]:
        """The times of those of these tombstones that are stored."""

    def forget(self, *, changes: Sequence[int] = (), answers: Sequence[str] = ()) -> int:
        """Removes committed entries of the change log by sequence, and answers to requests by the ids that
        `Vault.answers` gives; returns how many. The newest entry of the log stays.
        """

    def note_change(
        self, change: ChangeType, record_id: str, *, revision: int = 0, scope: Scope = Scope(), details: str = ""
    ) -> None:
        """Adds an entry to the change log, in the order of the calls."""


@dataclass(frozen=True, slots=True)
class TransactionReceipt:
    """The confirmation of a transaction. Its promises hold once a caller has it."""

    answer: str
    """The program's result; for a replay, its first result."""
    commit_time: datetime
    sequence: int = 0
    """The sequence number of its newest change, or of the newest change in the vault if it made none."""
    replayed: bool = False

    def of_record(self, record_id: str, outcome: str, revision: int) -> WriteReceipt:
        """The receipt for the write of a record, whose outcome and revision are in the answer."""
        return WriteReceipt(record_id, WriteOutcome(outcome), revision, self.commit_time, self.replayed, self.sequence)


@dataclass(frozen=True, slots=True)
class FileScan:
    """The result of a scan of a vault's files."""

    files: int = 0
    bytes: int = 0
    found: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """By file, relative to the vault's folder: the numbers of the marks that are in it. Files without marks are left
    out.
    """


class Vault(Protocol):
    """All records of one tenant. Collections share one writer, one order of changes, and one change log."""

    @property
    def changes(self) -> ChangeLog:
        """The change log."""

    @property
    def events(self) -> EventEngine:
        """The timeline, always the same object."""

    def collection(self, collection: Collection) -> RecordEngine:
        """A collection, always the same object."""

    def past(self, collection: Collection, at: datetime) -> RecordEngine:
        """The collection as it was at a moment, for the reads of one call. Nothing can be written to it."""

    def misses_history(self, collection: Collection, at: datetime, owner: str = "") -> bool:
        """Whether something may be missing that was known at a moment, because it was removed for good since, or no
        history was kept. `owner` is a user, or the encoded namespace of facts, to ask about alone; empty for all.
        """

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

    def values(self, prefix: str) -> dict[str, str]:
        """The texts that `set_value` stored under keys with a prefix, by key, in the order of the keys."""

    def answers(self, after: str, *, limit: int) -> list[tuple[str, str]]:
        """Up to `limit` stored answers to requests after an id, by ascending id: the id, and the answer as text.

        The text names the ids in the answer in double quotes, or is JSON.
        """

    def tombstones(self, after: bytes, *, limit: int) -> list[tuple[bytes, datetime]]:
        """Up to `limit` tombstones after a key, by ascending key, with their times."""

    def forms_of(self, vector: Vector) -> list[bytes]:
        """The bytes in which the vault stores a vector: in full, and rounded. Empty if it has no files."""

    def scan(self, marks: Marks) -> FileScan:
        """Looks for marks at every byte of every file of the vault, derived data included. Blocks, and reads all."""

    def discard(self, files: Sequence[str]) -> None:
        """Deletes those of these files that lie in quarantine, by the names that `scan` gives. Blocks."""

    def set_unfinished(self, *, is_unfinished: bool) -> None:
        """Says whether work is to go on after a restart without waiting for a call that opens the vault. Durable on
        return.
        """

    def subscribe(self, on_commit: Callable[[], None]) -> Callable[[], None]:
        """Calls `on_commit` after every commit, on a thread of the engine. It must not block. Returns a function that
        ends it.
        """

    def waiting_writes(self) -> int:
        """About how many writes wait for a transaction."""

    def is_shadow_current(self) -> bool:
        """Whether the shadow model had embedded everything at the last check; true without a shadow model."""

    def failure(self) -> str | None:
        """Why writes are refused, as a sentence for clients; None if they are accepted."""

    def recover(self) -> None:
        """Reopens the vault after a failure; see RecordEngine."""

    def close(self) -> None:
        """Finishes the accepted writes and releases all resources. Further calls have no effect."""
