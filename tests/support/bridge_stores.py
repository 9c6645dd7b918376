"""A timeline and a store of statements over one vault, with a bridge between them that a test opens, and cuts off."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from mnemon_server.domain.bridge import LINK_KEY, BridgeStatus
from mnemon_server.domain.changes import Change, ChangeFilter, ChangeType
from mnemon_server.domain.episodic import EpisodicEvent, EventReceipt, EventSelection, PruneReason
from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.domain.records import RequestKey, Scope
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.embedding.base import Embedder
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.embedding.hashing import HashingEmbedder
from mnemon_server.engines.promises.timeline import EventWrite, Timeline, TimelineWarning
from mnemon_server.engines.promises.vault import TransactionReceipt, Vault, VaultTransaction
from mnemon_server.services.bridge.bridge import Bridge
from mnemon_server.services.bridge.state import STATE_KEY, state_from_json
from mnemon_server.services.conflicts.resolution import ConflictResolver
from mnemon_server.services.conflicts.service import ConflictStore
from mnemon_server.services.rules.store import RuleStore
from mnemon_server.services.semantic.store import SemanticSettings, SemanticStore
from mnemon_server.services.shared.offload import Offload
from mnemon_server.services.shared.write_pressure import WriteLatency

from tests.support.memory_stores import MovingClock
from tests.support.semantic_stores import ADA, DIMENSION, WAIT_S, eventually, open_vault

WARNING = TimelineWarning("critical", "the disk is slow", "use another one")
RETRY_S = 0.01


class CutVault:
    """A vault whose connection breaks with one of its transactions, before or after it was committed."""

    def __init__(self, vault: Vault, transactions: int, *, commits: bool) -> None:
        self._vault = vault
        self._left = transactions
        self._commits = commits
        self.cut = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._vault, name)

    def transact(
        self, program: Callable[[VaultTransaction], str], *, request: RequestKey | None = None
    ) -> "Future[TransactionReceipt]":
        """Like the vault's, while it lasts."""
        self._left -= 1
        if self._left > 0:
            return self._vault.transact(program, request=request)
        if self._left == 0 and self._commits:
            self._vault.transact(program, request=request).result()
        self._loop.call_soon_threadsafe(self.cut.set)
        failed: Future[TransactionReceipt] = Future()
        failed.set_exception(StorageFailedError("cut off"))
        return failed

    def recover(self) -> None:
        """It stays cut off."""


class BridgedStores:
    """Both stores, their vault, and what opens a bridge between them."""

    def __init__(self, vault: Vault, semantic: SemanticStore, conflicts: ConflictStore, clock: MovingClock) -> None:
        self.vault, self.semantic, self.conflicts, self.clock = vault, semantic, conflicts, clock
        self.offload = Offload(2, "bridge-reader")

    @property
    def timeline(self) -> Timeline:
        """The vault's."""
        return self.vault.timeline

    def bridge(self, vault: Vault | None = None) -> Bridge:
        """A bridge that is yet to be opened."""
        return Bridge(
            vault or self.vault,
            self.timeline,
            self.semantic,
            offload=self.offload,
            retry_first_s=RETRY_S,
            retry_max_s=RETRY_S,
        )

    def happen(self, *events: EpisodicEvent) -> list[EventReceipt]:
        """Records events."""
        writes = [EventWrite(replace(event, record_time=self.clock()), id_is_new=False) for event in events]
        receipts = self.timeline.append(writes).result()
        assert all(isinstance(receipt, EventReceipt) for receipt in receipts)
        return cast("list[EventReceipt]", receipts)

    def forget(self, *event_ids: str) -> None:
        """Prunes events."""
        found = [stored for stored in self.timeline.get(event_ids) if stored is not None]
        assert len(found) == len(event_ids)
        self.timeline.prune(found, PruneReason.RETENTION).result()

    def warn(self, warning: TimelineWarning | None = WARNING) -> None:
        """Notes that the timeline is unwell, or with None that it is well."""
        self.timeline.warn(warning).result()

    def changes(self, *types: ChangeType) -> list[Change]:
        """What the log says."""
        return list(self.vault.changes.read(0, limit=100_000, where=ChangeFilter(frozenset(types))).changes)

    async def statements(self, *, hidden: bool = True) -> list[SemanticMemory]:
        """All that is known."""
        return list((await self.semantic.list(limit=1_000, show_superseded=hidden)).memories)

    async def known(self) -> dict[str, tuple[str, ...]]:
        """What is known and visible: its content, and the events that it is linked to."""
        return {memory.content: links(memory) for memory in await self.statements(hidden=False)}

    def event_ids(self) -> set[str]:
        """The events that there are."""
        sequences = self.timeline.sequences(EventSelection()).tolist()
        return {stored.position.event_id for stored in self.timeline.read(sequences)}

    async def settled(self, bridge: Bridge) -> BridgeStatus:
        """The status once nothing is left to be handled, and the whole log was looked at."""
        found = BridgeStatus(activity=(await bridge.status()).activity)

        async def is_settled() -> bool:
            nonlocal found
            found = await bridge.status()
            at_rest = bridge.keep_after() == self.vault.changes.state().head
            return at_rest and not found.queue_depth and not found.message

        await eventually(is_settled)
        return found

    async def run(self) -> BridgeStatus:
        """Opens a bridge until nothing is left to be handled."""
        async with self.bridge() as bridge:
            return await self.settled(bridge)

    async def run_cut_off(self, transactions: int, *, commits: bool) -> None:
        """Opens a bridge whose connection breaks with its n-th transaction, or until nothing is left to be handled."""
        vault = CutVault(self.vault, transactions, commits=commits)
        async with self.bridge(cast("Vault", vault)) as bridge:
            cut, done = asyncio.ensure_future(vault.cut.wait()), asyncio.ensure_future(self.settled(bridge))
            await asyncio.wait([cut, done], return_when=asyncio.FIRST_COMPLETED)
            cut.cancel()
            done.cancel()

    def kept_position(self) -> int:
        """How far the bridge has come, as the vault keeps it."""
        return state_from_json(self.vault.value(STATE_KEY)).position


@asynccontextmanager
async def open_bridged(
    engine: str = "in_memory",
    folder: Path = Path(),
    *,
    embedder: Embedder | None = None,
    capacity: int = 100_000,
) -> AsyncIterator[BridgedStores]:
    """A timeline and a store of statements over one vault, whose conflicts are settled by rules."""
    clock, embedder = MovingClock(), embedder or HashingEmbedder(DIMENSION)
    vault = open_vault(engine, folder, clock, embedder)
    try:
        async with EmbeddingBatcher(embedder) as batcher:
            rules = RuleStore(vault)
            conflicts = ConflictStore(vault, batcher, rules=rules, clock=clock)
            semantic = SemanticStore(
                vault,
                batcher,
                resolver=ConflictResolver(rules),
                settings=SemanticSettings(capacity, WriteLatency(60.0)),
            )
            stores = BridgedStores(vault, semantic, conflicts, clock)
            assert await asyncio.to_thread(stores.timeline.wait_until_warm, WAIT_S)
            yield stores
            await semantic.aclose()
            await conflicts.aclose()
            await rules.aclose()
            stores.offload.close()
    finally:
        vault.close()
        embedder.close()


def happening(
    event_id: str,
    content: str = "",
    *,
    event_type: str = "task",
    importance: float | None = 0.9,
    scope: Scope = ADA,
    ago: timedelta = timedelta(0),
    **fields: Any,
) -> EpisodicEvent:
    """An event that the default policy lets through; its content names it where none is given."""
    return EpisodicEvent(
        event_id=event_id,
        event_type=event_type,
        event_time=MovingClock()() - ago,
        content=content or f"what happened in {event_id}",
        scope=scope,
        importance=importance,
        **fields,
    )


def links(memory: SemanticMemory) -> tuple[str, ...]:
    """The events that a statement is linked to."""
    found = memory.metadata.get(LINK_KEY, ())
    assert isinstance(found, tuple)
    return found


def details(event: Change) -> dict[str, Any]:
    """What an event says beyond its type."""
    return json.loads(event.details)  # type: ignore[no-any-return]


def contents(memories: Sequence[SemanticMemory]) -> list[str]:
    """What statements say."""
    return [memory.content for memory in memories]
