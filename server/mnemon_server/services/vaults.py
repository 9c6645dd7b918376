"""The vaults of all tenants: opens each on first use, closes it when idle, and limits how many are open at once."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Self

from mnemon_server.domain.access import check_tenant
from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.domain.access.errors import TenantSuspendedError
from mnemon_server.domain.errors import MnemonError, NotServingError, TooManyVaultsError
from mnemon_server.embedding.base import EmbeddingModel
from mnemon_server.services.archive.store import ArchiveStore
from mnemon_server.services.background.gauges import VaultGauges
from mnemon_server.services.backup.store import BackupStore
from mnemon_server.services.bridge.bridge import Bridge
from mnemon_server.services.conflicts.service import ConflictStore
from mnemon_server.services.conversations.store import ConversationStore
from mnemon_server.services.documents.store import DocumentStore
from mnemon_server.services.erasure.store import Eraser
from mnemon_server.services.events.store import EventStore
from mnemon_server.services.facts.store import FactStore
from mnemon_server.services.feed.feed import ChangeFeed
from mnemon_server.services.grants.store import GrantStore
from mnemon_server.services.history.versions import VersionStore
from mnemon_server.services.memories.store import MemoryStore
from mnemon_server.services.quarantine.store import QuarantineStore
from mnemon_server.services.recall.store import RecallStore
from mnemon_server.services.rules.store import RuleStore
from mnemon_server.services.semantic.store import SemanticStore
from mnemon_server.services.tools.service import ToolRunner

# The holds of calls and watchers on a tenant's vault.


class VaultLease:
    """Keeps a vault open for the length of a block."""

    __slots__ = ("_bounds", "_entry", "_pool", "_tenant")

    def __init__(self, pool: "VaultPool", tenant: str, bounds: Bounds | None) -> None:
        self._pool = pool
        self._tenant = tenant
        self._bounds = bounds
        self._entry: Entry | None = None

    async def __aenter__(self) -> "OpenVault":
        entry = self._entry = self._pool.acquire_open(self._tenant) or await self._pool.acquire(self._tenant)
        return entry.opening.result().shown_to(self._bounds)

    async def __aexit__(self, *exception: object) -> None:
        if self._entry is not None:
            self._pool.release(self._entry)


class WatchedVault:
    """A vault that a watcher uses whenever it reads: `async with watched as vault`.

    It is lost, and the block must end, if it was closed for another tenant while the watcher rested, or if other
    records exist for the watcher now: a grant or a quarantine has begun or ended.
    """

    def __init__(self, pool: "VaultPool", tenant: str, bounds: Bounds) -> None:
        self._pool = pool
        self._tenant = tenant
        self._bounds = bounds
        self._seen = bounds
        """The bounds of the watcher, with shares and quarantines, when the block began."""
        self._entry: Entry | None = None

    @property
    def is_lost(self) -> bool:
        """Whether the block must end."""
        return self._entry is None or self._entry.opening.result().seen_by(self._bounds) != self._seen

    async def __aenter__(self) -> "OpenVault":
        entry = self._entry = await self._pool.acquire(self._tenant)
        vault = entry.opening.result()
        self._seen = vault.seen_by(self._bounds)
        return vault.shown_to(self._bounds)

    async def __aexit__(self, *exception: object) -> None:
        if self._entry is not None:
            self._pool.release(self._entry)
            self._entry = None

    @contextmanager
    def resting(self) -> Iterator[None]:
        """A context that does not use the vault, after which it may be lost."""
        entry, self._entry = self._entry, None
        if entry is not None:
            self._pool.release(entry)
        try:
            yield
        finally:
            if entry is not None and self._pool.reuse(entry):
                self._entry = entry

    async def wait_for_changes(self, position: int, until: float) -> bool:
        """For a lost vault: waits until it is open again, or is known to have changes after the position.

        Returns False at the deadline, a time of the event loop.
        """
        return await self._pool.wait_for_changes(self._tenant, position, until)


RETRY_AFTER_S = 1.0
RETIRED_POLL_S = 0.05
ROOM_WAIT_S = 10.0
"""How long a call waits for one of the open vaults to become idle."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenVault:
    """The services of one tenant, over one vault. `close` closes everything, in reverse order of opening."""

    documents: DocumentStore
    memories: MemoryStore
    semantic: SemanticStore
    conflicts: ConflictStore
    rules: RuleStore
    episodic: EventStore
    bridge: Bridge
    facts: FactStore
    tools: ToolRunner
    archive: ArchiveStore
    backups: BackupStore
    erasure: Eraser
    recall: RecallStore
    conversations: ConversationStore
    feed: ChangeFeed
    model: EmbeddingModel
    """Makes the vectors."""
    history: VersionStore
    """Earlier versions of records."""
    vault_id: str
    """Identifies the vault; not a secret."""
    page_key: bytes
    """The secret key that seals page tokens; a restart does not change it."""
    is_shadow_current: Callable[[], bool]
    """Whether the shadow model has embedded everything."""
    gauges: Callable[[], Awaitable[VaultGauges]]
    """Reads what operators watch."""
    at: Callable[[datetime], "OpenVault"]
    """The vault as it was at a moment, for the reads of one call: documents, memories, statements, facts, recall."""
    grants: GrantStore
    quarantine: QuarantineStore
    """The sources whose records are hidden."""
    within: Callable[[Bounds], "OpenVault"]
    """The vault within bounds. Services that know no bounds refuse every call."""
    close: Callable[[], Awaitable[None]]

    async def is_ready(self) -> bool:
        """Whether it accepts writes; after a disk failure, tries to reopen the records."""
        return await self.documents.is_ready()

    def seen_by(self, bounds: Bounds) -> Bounds:
        """A caller's bounds with its grants, and without sources in quarantine."""
        seen = self.grants.sharing(bounds) if bounds.is_narrow else bounds
        return replace(seen, hidden=hidden) if (hidden := self.quarantine.hidden) else seen

    def shown_to(self, bounds: Bounds | None) -> "OpenVault":
        """The vault as a caller sees it; for None, the whole vault, including quarantined records."""
        seen = None if bounds is None else self.seen_by(bounds)
        return self.within(seen) if seen else self

    @property
    def is_warm(self) -> bool:
        """Whether the indexes of statements and of the timeline are loaded or built, or cannot be."""
        return self.semantic.is_warm and not self.episodic.is_loading


@dataclass(slots=True)
class Entry:
    """A tenant's vault that is open, or being opened or closed."""

    tenant: str
    opening: "asyncio.Task[OpenVault]"
    line: asyncio.Lock = field(default_factory=asyncio.Lock)
    """The waiting calls, which go on one by one. Hundreds in one turn of the event loop would hold up all others."""
    users: int = 0
    idle_since: float = 0.0
    closing: "asyncio.Task[None] | None" = None

    @property
    def vault(self) -> OpenVault | None:
        """The vault; None until it is open."""
        return self.opening.result() if self.opening.done() else None


@dataclass(slots=True)
class _Watched:
    """A tenant with watchers, whose vault may be closed while they wait for the next change."""

    watchers: int = 0
    head: int = 0
    """Position of the newest change when the vault was last closed."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and replaced, when its vault begins to open and when it is closed."""

    def notify(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


class VaultPool:
    """Hands out vaults. Belongs to one event loop; an async context manager that closes all of them.

    A vault in use stays open. A vault that was not used for `idle_s` is closed, unless it is watched. When `open_max`
    vaults are open and another one is needed, the one that has been idle longest is closed: one that is not watched, if
    there is one. A watched vault that was closed is opened again by the next call, or as soon as there is room.
    """

    def __init__(
        self,
        open_vault: Callable[[str], Awaitable[OpenVault]],
        *,
        open_max: int,
        idle_s: float,
        room_wait_s: float = ROOM_WAIT_S,
    ) -> None:
        """Opens nothing yet.

        A vault that is not used for `idle_s` seconds is closed. While `open_max` are in use, a call waits at most
        `room_wait_s` seconds for one to become idle.
        """
        self._open_vault = open_vault
        self._open_max = open_max
        self._idle_s = idle_s
        self._room_wait_s = room_wait_s
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._watched: dict[str, _Watched] = {}
        self._entries: dict[str, Entry] = {}
        self._retired: set[str] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def open_tenants(self) -> tuple[str, ...]:
        """The tenants whose vaults are open, or being opened or closed."""
        return tuple(self._entries)

    def use(self, tenant: str, bounds: Bounds | None = None) -> VaultLease:
        """All of the tenant's vault, or as a caller sees it, for the length of `async with pool.use(tenant) as vault`.

        Entering the block raises
            InvalidArgumentError: the tenant id is malformed;
            TenantSuspendedError: the tenant is retired;
            TooManyVaultsError: all vaults that may be open are in use;
            NotServingError: the pool is closed;
            ConfigurationError, StorageFailedError: the vault cannot be opened.
        """
        return VaultLease(self, tenant, bounds)

    @contextmanager
    def watched(self, tenant: str, bounds: Bounds) -> Iterator[WatchedVault]:
        """Registers a watcher of the tenant's vault, as a caller sees it, for the duration of a block."""
        watched = self._watched.setdefault(tenant, _Watched())
        watched.watchers += 1
        try:
            yield WatchedVault(self, tenant, bounds)
        finally:
            watched.watchers -= 1
            if not watched.watchers:
                del self._watched[tenant]

    @property
    def retired(self) -> frozenset[str]:
        """The tenants whose vaults are not opened."""
        return frozenset(self._retired)

    async def retire(self, tenant: str) -> None:
        """Closes the tenant's vault once its last user is gone, and opens it no more until `readmit`."""
        self._retired.add(tenant)
        self._notify_watchers(tenant)
        while (entry := self._entries.get(tenant)) is not None:
            if entry.users:
                await asyncio.sleep(RETIRED_POLL_S)
            else:
                await asyncio.shield(self._begin_closing(entry))

    def readmit(self, tenant: str) -> None:
        """Lets a retired tenant's vault be opened again."""
        self._retired.discard(tenant)

    async def is_ready(self) -> bool:
        """Whether any open vault accepts writes: a problem of one tenant does not stop the others."""
        ready = await asyncio.gather(*(vault.is_ready() for vault in self._open_now()))
        return not ready or any(ready)

    async def gauges(self) -> list[VaultGauges]:
        """The gauges of every open vault."""
        return await asyncio.gather(*(vault.gauges() for vault in self._open_now()))

    def _open_now(self) -> list[OpenVault]:
        return [entry.vault for entry in self._entries.values() if entry.vault and not entry.closing]

    def is_warm(self, tenant: str) -> bool:
        """Whether the indexes of the tenant's vault are warm; true for a vault that is closed."""
        entry = self._entries.get(tenant)
        return entry is None or (entry.vault is not None and entry.vault.is_warm)

    async def __aenter__(self) -> Self:
        self._sweeper = asyncio.create_task(self._sweep())
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for tenant in self._watched:
            self._notify_watchers(tenant)
        closings = [self._begin_closing(entry) for entry in list(self._entries.values())]
        await asyncio.gather(*closings)

    def acquire_open(self, tenant: str) -> Entry | None:
        """Like `acquire`, but at less cost; None if that one would wait or refuse."""
        entry = self._entries.get(tenant)
        if (
            self._closed
            or entry is None
            or entry.closing is not None
            or not entry.opening.done()
            or tenant in self._retired
        ):
            return None
        entry.users += 1
        return entry

    async def acquire(self, tenant: str) -> Entry:
        """For VaultLease: the tenant's entry, open and counted as used."""
        while True:
            if self._closed:
                raise NotServingError("the server is shutting down")
            if tenant in self._retired:
                raise TenantSuspendedError(f"the tenant {tenant!r} was deleted")
            entry = self._entries.get(tenant)
            if entry is None:
                entry = await self._begin_opening(tenant)
            if entry is None:
                continue
            if entry.closing is not None:
                await asyncio.shield(entry.closing)
                continue
            entry.users += 1
            if not entry.opening.done():
                try:
                    async with entry.line:
                        await asyncio.shield(entry.opening)
                except BaseException:
                    self.release(entry)
                    raise
            return entry

    def release(self, entry: Entry) -> None:
        """For VaultLease: counts one user less."""
        entry.users -= 1
        if not entry.users:
            entry.idle_since = asyncio.get_running_loop().time()
            if len(self._waiting) > self._closing_count:
                self._begin_closing(entry)

    def reuse(self, entry: Entry) -> bool:
        """For WatchedVault: adds a user, unless the vault is being closed."""
        if entry.closing is not None:
            return False
        entry.users += 1
        return True

    async def wait_for_changes(self, tenant: str, position: int, until: float) -> bool:
        """For WatchedVault: waits until the tenant's vault is open, or a closed one has changes after the position.

        Returns False at the deadline, a time of the event loop. Returns True also if the next use will raise an error.
        """
        watched = self._watched[tenant]
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                while not self._has_changes(tenant, watched, position):
                    await watched.changed.wait()
                return True
        return False

    def _has_changes(self, tenant: str, watched: _Watched, position: int) -> bool:
        if self._closed or tenant in self._retired:
            return True
        entry = self._entries.get(tenant)
        return watched.head > position if entry is None else entry.closing is None

    def _notify_watchers(self, tenant: str) -> None:
        if (watched := self._watched.get(tenant)) is not None:
            watched.notify()

    @property
    def _closing_count(self) -> int:
        return sum(entry.closing is not None for entry in self._entries.values())

    async def _begin_opening(self, tenant: str) -> Entry | None:
        """A new entry; None after waiting for room, since the caller must then look the tenant up again."""
        check_tenant(tenant)
        if len(self._entries) >= self._open_max:
            await self._make_room()
            return None
        return self._start_opening(tenant)

    def _start_opening(self, tenant: str) -> Entry:
        entry = self._entries[tenant] = Entry(tenant, asyncio.create_task(self._open(tenant)))
        self._notify_watchers(tenant)
        return entry

    async def _open(self, tenant: str) -> OpenVault:
        try:
            return await self._open_vault(tenant)
        except BaseException:
            # Without the entry, the next call tries again.
            self._entries.pop(tenant, None)
            self._let_one_in()
            raise

    async def _make_room(self) -> None:
        """Closes the vault that has been idle longest, or waits until one becomes idle."""
        closing = [entry.closing for entry in self._entries.values() if entry.closing]
        if len(closing) > len(self._waiting):
            await asyncio.shield(closing[0])
            return
        idle = [entry for entry in self._entries.values() if not (entry.users or entry.closing)]
        if idle:
            entry = min(idle, key=lambda entry: (entry.tenant in self._watched, entry.idle_since))
            await asyncio.shield(self._begin_closing(entry))
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(self._room_wait_s):
                await waiting
        except TimeoutError:
            raise TooManyVaultsError(
                f"all {self._open_max} vaults that may be open are in use; try again, or let the server open more "
                "(its setting vaults_open_max)",
                RETRY_AFTER_S,
            ) from None
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    def _let_one_in(self) -> None:
        """Wakes the call that has waited longest for a free place."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return

    def _begin_closing(self, entry: Entry) -> "asyncio.Task[None]":
        if entry.closing is None:
            entry.closing = asyncio.create_task(self._close(entry))
        return entry.closing

    async def _close(self, entry: Entry) -> None:
        try:
            vault = await entry.opening
            try:
                await vault.close()
            finally:
                if (watched := self._watched.get(entry.tenant)) is not None:
                    watched.head = vault.feed.head
        except MnemonError:
            log.warning("a vault could not be closed cleanly", exc_info=True)
        finally:
            self._entries.pop(entry.tenant, None)
            self._notify_watchers(entry.tenant)
            self._let_one_in()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._idle_s / 4)
            now = asyncio.get_running_loop().time()
            for entry in list(self._entries.values()):
                # A vault whose index is being built stays open: closing it would throw that work away.
                vault = entry.vault
                is_idle = not entry.users and vault is not None and vault.is_warm and vault.is_shadow_current()
                if is_idle and entry.tenant not in self._watched and now - entry.idle_since >= self._idle_s:
                    self._begin_closing(entry)
            self._open_watched(now)

    def _open_watched(self, now: float) -> None:
        """Reopens watched vaults while there is room, because only an open vault expires facts,
        prunes its timeline, and so on.
        """
        for tenant in self._watched.keys() - self._entries.keys() - self._retired:
            if len(self._entries) < self._open_max and not self._waiting:
                entry = self._start_opening(tenant)
                entry.idle_since = now
                # Its watchers get the same error.
                entry.opening.add_done_callback(lambda task: task.cancelled() or task.exception())
