"""The messages that wait for the extractor, in batches: stored in the vault, each batch under its own key.

A batch belongs to one conversation, and has the sequences of its messages: no text, and of the names only a keyed hash.
Messages are added to the conversation's open batch. A closed batch does not change except for its failed attempts.
"""

import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from mnemon_server.domain.clock import to_microseconds
from mnemon_server.domain.encoding import owner_values
from mnemon_server.domain.events import Event
from mnemon_server.engines.promises.vault import Vault, VaultTransaction
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.bridge.ledger import BridgeLedger

PREFIX = "bridge.pending."
_BYTES_PER_TOKEN = 4
_TOKENS_OF_A_MESSAGE = 20
"""For its role, name and time."""
_DIGITS = 20


class StoredMessage(NamedTuple):
    """A message with its position in the timeline."""

    event: Event
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """When a batch ends."""

    quiet_s: float = 30.0
    """After this time without a further message."""
    messages_max: int = 20
    tokens_max: int = 4_000
    """Estimated. A longer message makes its own batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingBatch:
    """Messages of one conversation that are extracted together."""

    conversation: str
    """The keyed hash of the conversation and its scope."""
    sequences: tuple[int, ...]
    tokens: int
    last_us: int
    """When the last message was added, in microseconds since 1970."""
    is_closed: bool = False
    attempts: int = 0
    """Answers about it that were refused."""
    refusal: str = ""
    """Why the last one was."""

    @property
    def key(self) -> str:
        """The key of its value. The keys of a conversation are in the order of its messages, the open batch first."""
        return f"{PREFIX}{self.conversation}" + (f".{self.sequences[0]:0{_DIGITS}}" if self.is_closed else "")

    def to_text(self) -> str:
        """The value."""
        values = {
            "sequences": self.sequences,
            "tokens": self.tokens,
            "last_us": self.last_us,
            "attempts": self.attempts,
            "refusal": self.refusal,
        }
        return json.dumps(values, separators=(",", ":"))


def batch_of(key: str, text: str) -> PendingBatch:
    """The batch that is stored under a key."""
    conversation, _, first = key.removeprefix(PREFIX).partition(".")
    values: dict[str, Any] = json.loads(text)
    sequences = tuple(values.pop("sequences"))
    return PendingBatch(conversation=conversation, sequences=sequences, is_closed=bool(first), **values)


@dataclass(eq=False, repr=False, slots=True)
class PendingWrites:
    """Changes the batches within a transaction."""

    _tx: VaultTransaction
    _secret: bytes
    """Keys the hashes of conversations."""
    _limits: BatchLimits
    changed: dict[str, PendingBatch | None] = field(default_factory=dict)
    """The batches that were stored, by key; None for one that was removed."""

    def add(self, message: StoredMessage) -> None:
        """Adds a message to the open batch of its conversation."""
        conversation = conversation_hash(message.event, self._secret)
        tokens = len(message.event.content.encode()) // _BYTES_PER_TOKEN + _TOKENS_OF_A_MESSAGE
        before = self._open(conversation)
        if before is not None and before.tokens + tokens > self._limits.tokens_max:
            self.close(before)
            before = None
        batch = PendingBatch(
            conversation=conversation,
            sequences=(*(before.sequences if before else ()), message.sequence),
            tokens=tokens + (before.tokens if before else 0),
            last_us=to_microseconds(self._tx.now),
        )
        self._store(batch)
        if len(batch.sequences) >= self._limits.messages_max or batch.tokens >= self._limits.tokens_max:
            self.close(batch)

    def close(self, batch: PendingBatch) -> PendingBatch:
        """Closes an open batch."""
        closed = replace(batch, is_closed=True)
        self.remove(batch)
        self._store(closed)
        return closed

    def note_refusal(self, batch: PendingBatch, message: str, attempts: int) -> None:
        """Stores how often the answers about a batch were refused, and why the last one was."""
        self._store(replace(batch, attempts=attempts, refusal=message))

    def remove(self, batch: PendingBatch) -> None:
        """Removes a batch."""
        self._tx.remove_value(batch.key)
        self.changed[batch.key] = None

    def _open(self, conversation: str) -> PendingBatch | None:
        key = f"{PREFIX}{conversation}"
        text = self._tx.value(key)
        return batch_of(key, text) if text else None

    def _store(self, batch: PendingBatch) -> None:
        self._tx.set_value(batch.key, batch.to_text())
        self.changed[batch.key] = batch


class PendingBatches:
    """The stored batches, in memory. Belongs to one event loop; one task at a time may call it."""

    def __init__(self, vault: Vault, ledger: BridgeLedger, limits: BatchLimits, offload: Offload) -> None:
        self._vault = vault
        self._ledger = ledger
        self._limits = limits
        self._offload = offload
        self._version = 0
        self._batches: dict[str, dict[str, PendingBatch]] = {}
        # The conversations, so that looking for the next batch does not take longer the more of them wait.
        self._closed: dict[str, None] = {}
        self._open: dict[str, None] = {}

    def writes(self, tx: VaultTransaction) -> PendingWrites:
        """Changes of batches within a transaction of the ledger; pass what they are to `apply` after the commit."""
        return PendingWrites(tx, self._vault.changes.origin, self._limits)

    def apply(self, changed: Mapping[str, PendingBatch | None]) -> None:
        """Takes what a transaction has changed, unless everything is to be read again."""
        if self._version == self._ledger.version:
            self._take(changed)

    async def load(self) -> None:
        """Reads what the vault stores, unless it is known."""
        version = self._ledger.version
        if self._version != version:
            batches = await self._offload(self._read)
            self._batches, self._closed, self._open = {}, {}, {}
            self._take({batch.key: batch for batch in batches})
            self._version = version

    def closed_ones(self) -> Iterator[PendingBatch]:
        """The first closed batch of each conversation that has one. What was refused last comes last."""
        for conversation in self._closed:
            closed = (batch for batch in self._batches[conversation].values() if batch.is_closed)
            yield min(closed, key=lambda batch: batch.sequences)

    def open_ones(self) -> Iterator[PendingBatch]:
        """The open batches of conversations without closed ones, about in the order of their last messages."""
        for conversation in self._open:
            [batch] = self._batches[conversation].values()
            yield batch

    def _read(self) -> list[PendingBatch]:
        batches = [batch_of(key, text) for key, text in self._vault.values(PREFIX).items()]
        return sorted(batches, key=lambda batch: batch.last_us)

    def _take(self, changed: Mapping[str, PendingBatch | None]) -> None:
        for key, batch in changed.items():
            conversation = key.removeprefix(PREFIX).partition(".")[0]
            batches = self._batches.setdefault(conversation, {})
            batches.pop(key, None)
            if batch is not None:
                batches[key] = batch
            self._closed.pop(conversation, None)
            self._open.pop(conversation, None)
            if not batches:
                del self._batches[conversation]
            elif any(each.is_closed for each in batches.values()):
                self._closed[conversation] = None
            else:
                self._open[conversation] = None


def conversation_hash(event: Event, secret: bytes) -> str:
    """The keyed hash of an event's conversation and owner, in hexadecimal digits."""
    named: Sequence[str] = (*owner_values(event.scope), event.conversation)
    return hmac.digest(secret, json.dumps(named).encode(), "sha256").hex()
