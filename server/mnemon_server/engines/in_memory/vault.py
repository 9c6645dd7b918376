"""A vault in dictionaries, behind one lock."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import datetime

from mnemon_server.domain.clock import Clock, system_clock
from mnemon_server.domain.collections import COLLECTIONS, Collection
from mnemon_server.domain.records import RequestKey
from mnemon_server.engines.in_memory.change_log import Call, InMemoryChangeLog
from mnemon_server.engines.in_memory.collection import InMemoryCollection
from mnemon_server.engines.in_memory.commit_lock import CommitLock
from mnemon_server.engines.in_memory.events import SEGMENT_EVENTS_MAX, InMemoryEvents
from mnemon_server.engines.in_memory.transaction import InMemoryTransaction
from mnemon_server.engines.promises.events import SLICE_READS_MAX
from mnemon_server.engines.promises.marks import Marks
from mnemon_server.engines.promises.values import Vector
from mnemon_server.engines.promises.vault import FileScan, TransactionReceipt, VaultTransaction
from mnemon_server.ranking.heads import NO_HEADS, Heads


class InMemoryVault:
    """See Vault."""

    def __init__(
        self,
        *,
        clock: Clock = system_clock,
        segment_events_max: int = SEGMENT_EVENTS_MAX,
        slice_reads_max: int = SLICE_READS_MAX,
        heads: Heads = NO_HEADS,
    ) -> None:
        self._commits = CommitLock(clock)
        self._changes = InMemoryChangeLog(self._commits)
        self._events = InMemoryEvents(
            self._commits, self._changes, heads, segment_events_max=segment_events_max, reads_max=slice_reads_max
        )
        self._values: dict[str, str] = {}
        self._collections = {
            collection: InMemoryCollection(collection, self._commits, self._changes, heads)
            for collection in COLLECTIONS
        }

    @property
    def changes(self) -> InMemoryChangeLog:
        """See Vault."""
        return self._changes

    @property
    def events(self) -> InMemoryEvents:
        """See Vault."""
        return self._events

    def collection(self, collection: Collection) -> InMemoryCollection:
        """See Vault."""
        return self._collections[collection]

    def transact(
        self, program: Callable[[VaultTransaction], str], *, request: RequestKey | None = None
    ) -> Future[TransactionReceipt]:
        """See Vault."""
        return self._commits.write(request, lambda: self._changes.run(request, lambda call: self._run(program, call)))

    def is_answered(self, request_id: str) -> bool:
        """See Vault."""
        with self._commits.lock:
            return self._commits.is_answered(request_id)

    def value(self, key: str) -> str | None:
        """See Vault."""
        with self._commits.lock:
            return self._values.get(key)

    def values(self, prefix: str) -> dict[str, str]:
        """See Vault."""
        with self._commits.lock:
            return {key: text for key, text in sorted(self._values.items()) if key.startswith(prefix)}

    def answers(self, after: str, *, limit: int) -> list[tuple[str, str]]:
        """See Vault."""
        with self._commits.lock:
            return self._commits.answers(after)[:limit]

    def tombstones(self, after: bytes, *, limit: int) -> list[tuple[bytes, datetime]]:
        """See Vault."""
        with self._commits.lock:
            return sorted((key, time) for key, time in self._commits.tombstones.items() if key > after)[:limit]

    def forms_of(self, vector: Vector) -> list[bytes]:
        """See Vault."""
        return []

    def scan(self, marks: Marks) -> FileScan:
        """See Vault."""
        return FileScan()

    def discard(self, files: Sequence[str]) -> None:
        """See Vault."""

    def set_unfinished(self, *, is_unfinished: bool) -> None:
        """See Vault."""

    def subscribe(self, on_commit: Callable[[], None]) -> Callable[[], None]:
        """See Vault."""
        return self._commits.subscribe(on_commit)

    def waiting_writes(self) -> int:
        """See Vault."""
        return 0

    def is_shadow_current(self) -> bool:
        """See Vault."""
        return True

    def failure(self) -> str | None:
        """See Vault."""
        return None

    def recover(self) -> None:
        """See Vault."""

    def close(self) -> None:
        """See Vault."""
        self._commits.closed = True

    def _run(self, program: Callable[[VaultTransaction], str], call: Call) -> TransactionReceipt:
        transaction = InMemoryTransaction(self._commits, call, self._collections, self._values, self._changes)
        try:
            answer = program(transaction)
        except BaseException:
            transaction.undo()
            raise
        return TransactionReceipt(answer, call.now, sequence=call.sequence or self._changes.head)
