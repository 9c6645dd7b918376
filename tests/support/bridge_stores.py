"""A timeline and a store of statements in one vault, with a bridge between them that a test opens and interrupts."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from mnemon_server.domain.bridge import LINK_KEY, BridgeStatus
from mnemon_server.domain.changes import Change, ChangeFilter, ChangeType
from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.domain.events import Event, EventReceipt, EventSelection, PruneReason
from mnemon_server.domain.records import RequestKey, Scope
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.embedding.base import Embedder
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.embedding.factory import HashingEmbedder
from mnemon_server.engines.bound import BoundVault
from mnemon_server.engines.events.tables import HEALTHY
from mnemon_server.engines.promises.events import EventEngine, EventsWarning, EventWrite
from mnemon_server.engines.promises.vault import TransactionReceipt, Vault, VaultTransaction
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.bridge.bridge import Bridge
from mnemon_server.services.bridge.state import STATE_KEY, state_from_json
from mnemon_server.services.conflicts.resolution import ConflictResolver
from mnemon_server.services.conflicts.service import ConflictStore
from mnemon_server.services.quarantine.store import QuarantineStore
from mnemon_server.services.rules.store import RuleStore
from mnemon_server.services.semantic.store import SemanticSettings, SemanticStore
from mnemon_server.services.writing.write_pressure import WriteLatency

from tests.support.memory_stores import MovingClock
from tests.support.semantic_stores import ADA, WAIT_S, eventually
from tests.support.vaults import DIMENSION, open_vault

WARNING = EventsWarning("critical", "the disk is slow", "use another one")
RETRY_S = 0.01


class CutVault:
    """A vault whose connection breaks during one of its transactions, before or after the commit."""

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
        """Like the vault's, until the connection breaks."""
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
        """Does nothing: the connection stays broken."""


class BridgedStores:
    """Both stores, their vault, and what opens a bridge between them."""

    def __init__(self, vault: Vault, semantic: SemanticStore, conflicts: ConflictStore, clock: MovingClock) -> None:
        self.vault, self.semantic, self.conflicts, self.clock = vault, semantic, conflicts, clock
        self.offload = Offload(2, "bridge-reader")
        self.quarantine = QuarantineStore(vault, BoundVault, self.offload)

    @property
    def timeline(self) -> EventEngine:
        """The vault's timeline."""
        return self.vault.events

    def bridge(self, vault: Vault | None = None) -> Bridge:
        """A bridge that is not open yet."""
        return Bridge(
            vault or self.vault,
            self.semantic,
            quarantine=self.quarantine,
            offload=self.offload,
            retry_s=(RETRY_S, RETRY_S),
        )

    def happen(self, *events: Event) -> list[EventReceipt]:
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

    def warn(self, warning: EventsWarning | None = WARNING) -> None:
        """Notes that the timeline is unhealthy, or with None that it is healthy."""
        change = ChangeType.EPISODIC_HEALTHY if warning is None else ChangeType.EPISODIC_WARNING

        def note(tx: VaultTransaction) -> str:
            tx.note_change(change, "timeline", details=json.dumps(asdict(warning or HEALTHY)))
            return ""

        self.vault.transact(note).result()

    def changes(self, *types: ChangeType) -> list[Change]:
        """The changes in the log."""
        return list(self.vault.changes.read(0, limit=100_000, where=ChangeFilter(frozenset(types))).changes)

    async def statements(self, *, hidden: bool = True) -> list[SemanticMemory]:
        """All statements."""
        return list((await self.semantic.list(limit=1_000, show_superseded=hidden)).items)

    async def known(self) -> dict[str, tuple[str, ...]]:
        """The visible statements: their contents, and the events that they are linked to."""
        return {memory.content: links(memory) for memory in await self.statements(hidden=False)}

    def event_ids(self) -> set[str]:
        """The ids of the stored events."""
        sequences = self.timeline.sequences(EventSelection()).tolist()
        return {stored.position.event_id for stored in self.timeline.read(sequences)}

    async def settled(self, bridge: Bridge) -> BridgeStatus:
        """The status once all events are handled and the whole log was read."""
        found = BridgeStatus(activity=(await bridge.status()).activity)

        async def is_settled() -> bool:
            nonlocal found
            # In this order: a bridge that finds a gap moves its position first and closes the gap afterwards.
            at_rest = bridge.keep_after() == self.vault.changes.state().head
            found = await bridge.status()
            return at_rest and not found.queue_depth and not found.message

        await eventually(is_settled)
        return found

    async def run(self) -> BridgeStatus:
        """Opens a bridge until all events are handled."""
        async with self.bridge() as bridge:
            return await self.settled(bridge)

    async def run_cut_off(self, transactions: int, *, commits: bool) -> None:
        """Opens a bridge whose connection breaks at its n-th transaction, or until all events are handled."""
        vault = CutVault(self.vault, transactions, commits=commits)
        async with self.bridge(cast("Vault", vault)) as bridge:
            cut, done = asyncio.ensure_future(vault.cut.wait()), asyncio.ensure_future(self.settled(bridge))
            await asyncio.wait([cut, done], return_when=asyncio.FIRST_COMPLETED)
            cut.cancel()
            done.cancel()

    def kept_position(self) -> int:
        """The position of the bridge that the vault stores."""
        return state_from_json(self.vault.value(STATE_KEY)).position


@asynccontextmanager
async def open_bridged(
    folder: Path,
    *,
    embedder: Embedder | None = None,
    capacity: int = 100_000,
) -> AsyncIterator[BridgedStores]:
    """A timeline and a store of statements in one vault, whose conflicts are settled by rules."""
    clock, embedder = MovingClock(), embedder or HashingEmbedder(DIMENSION)
    vault = open_vault(folder, clock, dimension=embedder.model.dimension)
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
) -> Event:
    """An event that the default policy routes. By default, its content names it."""
    return Event(
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
    """The details of a change."""
    return json.loads(event.details)  # type: ignore[no-any-return]


def contents(memories: Sequence[SemanticMemory]) -> list[str]:
    """The contents of statements."""
    return [memory.content for memory in memories]
