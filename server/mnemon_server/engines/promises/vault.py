"""What a vault promises: all records of one tenant behind one writer."""

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
    """A running transaction; belongs to the writer's thread, and must not be kept beyond the program."""

    @property
    def now(self) -> datetime:
        """The time of the commit."""

    def collection(self, collection: Collection) -> RecordTransaction:
        """One collection."""

    def value(self, key: str) -> str | None:
        """What `set_value` left under this key; None where nothing is."""

    def set_value(self, key: str, value: str) -> None:
        """Keeps a small text of the vault's own."""

    def note_change(
        self, change: ChangeType, record_id: str, *, revision: int = 0, scope: Scope = Scope(), details: str = ""
    ) -> None:
        """Tells the log of a change, in the order of the calls."""


@dataclass(frozen=True, slots=True)
class TransactionReceipt:
    """What is promised of a transaction once it has been handed out."""

    answer: str
    """What its program returned; of a replay, the first time."""
    commit_time: datetime
    sequence: int = 0
    """Of its newest change; the last one's where it made none."""
    replayed: bool = False


class Vault(Protocol):
    """All records of one tenant. Collections share one writer, one order of changes, and one log of them."""

    @property
    def changes(self) -> ChangeLog:
        """The log."""

    @property
    def timeline(self) -> Timeline:
        """The timeline; the same object every time."""

    def collection(self, collection: Collection) -> RecordEngine:
        """One collection; the same object every time."""

    def transact(
        self, program: Callable[[VaultTransaction], str], *, request: RequestKey | None = None
    ) -> Future[TransactionReceipt]:
        """Runs a program that reads and writes, and commits all that it did, or nothing where it raises.

        It runs on the writer's thread, and so must be quick and must not ask the vault but through its transaction;
        where the transaction is repeated it runs again, and the last run counts. What it writes is one commit of the
        log. It returns an answer that is kept for the request's lifetime. The future raises what the program raised,
        and otherwise as the future of a RecordEngine's write.
        """

    def value(self, key: str) -> str | None:
        """What `VaultTransaction.set_value` left under this key; None where nothing is."""

    def subscribe(self, on_commit: Callable[[], None]) -> Callable[[], None]:
        """Calls `on_commit` after every commit, on a thread of the engine's; must not block. Returns what ends it."""

    def failure(self) -> str | None:
        """Why writes are not accepted, as a sentence for clients; None while they are."""

    def recover(self) -> None:
        """Opens the vault anew after a failure; see RecordEngine."""

    def close(self) -> None:
        """Finishes the writes that were accepted and gives everything back. Calling it again does nothing."""
