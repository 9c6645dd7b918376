"""Tenants: which exist, and which of them are served."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Self

from mnemon_server.domain.access import DEFAULT_TENANT
from mnemon_server.domain.access.errors import TenantExistsError, TenantNotFoundError, TenantSuspendedError
from mnemon_server.domain.access.quotas import UNLIMITED, Quotas
from mnemon_server.domain.access.tenants import (
    Tenant,
    TenantChange,
    change_violations,
    tenant_violations,
)
from mnemon_server.domain.clock import Clock, system_clock
from mnemon_server.domain.errors import (
    InvalidArgumentError,
    InvalidOperationError,
    PermissionDeniedError,
)
from mnemon_server.domain.records import PageOf
from mnemon_server.engines.promises.tenants import TenantStore
from mnemon_server.services.access.unknown import UnknownError
from mnemon_server.services.background.listeners import Listeners
from mnemon_server.services.background.periodic import Periodic

REFRESH_S = 0.2
"""How often the tenants that matter to calls are read again if another process changed some."""


class UnknownTenantError(UnknownError):
    """A token names a tenant that does not exist, or that was not asked for yet."""


class Tenants(Periodic):
    """All tenants of a server. Follows changes that other processes make. Belongs to one event loop.

    Only those that are not served or have quotas of their own are in memory, since every call asks for them, and the
    ids of those that were deleted, and of those that tokens have named.
    """

    def __init__(self, store: TenantStore, *, clock: Clock = system_clock) -> None:
        """Reads nothing yet."""
        super().__init__("changes of tenants could not be read", interval_s=REFRESH_S)
        self._store = store
        self._clock = clock
        self._version = -1
        self.page_key = b""
        """The secret that seals page tokens of lists of tenants; a restart does not change it."""
        self._special: Mapping[str, Tenant] = {}
        self._unserved: Mapping[str, str | None] = {}
        """Why they are suspended; None for those that were deleted."""
        self._known: set[str] = set()
        """Tenants that exist, or did: then they are among those that were deleted."""
        self.listeners = Listeners()
        """Called after each change."""

    async def __aenter__(self) -> Self:
        self.page_key = await asyncio.to_thread(self._store.page_key)
        await self._refresh()
        return await super().__aenter__()

    @property
    def deleted(self) -> tuple[str, ...]:
        """The tenants that were deleted, and whose files must go."""
        return tuple(name for name, tenant in self._special.items() if tenant.deleted_at is not None)

    @property
    def quotas(self) -> dict[str, Quotas]:
        """The quotas of tenants that have some of their own."""
        return {name: tenant.quotas for name, tenant in self._special.items() if tenant.quotas != UNLIMITED}

    def require_served(self, tenant: str) -> None:
        """Raises TenantSuspendedError if the tenant is suspended, or was deleted and not created again."""
        if tenant in self._unserved:
            reason = self._unserved[tenant]
            why = "was deleted" if reason is None else f"is suspended: {reason}"
            raise TenantSuspendedError(f"the tenant {tenant!r} {why}")

    def require_known(self, tenant: str, *, begins: bool) -> None:
        """Checks that a tenant exists which a token names; if it `begins` so, it does once it was looked for.

        Raises:
            UnknownTenantError: it does not, as far as is known without looking for it.
            TenantSuspendedError: as `require_served`.
        """
        self.require_served(tenant)
        if tenant not in self._known:
            refusal = PermissionDeniedError(f"the tenant {tenant!r} does not exist; an operator can create it")
            raise UnknownTenantError(refusal, lambda: self._look_for(tenant, begins=begins))

    async def _look_for(self, tenant: str, *, begins: bool) -> None:
        if begins:
            await self.begin((tenant,))
        if await self.exists(tenant):
            self._known.add(tenant)

    async def begin(self, tenants: Iterable[str]) -> None:
        """Makes tenants that the identity file or a token names, except for those that were deleted."""
        await asyncio.to_thread(self._store.begin, tuple(tenants), self._clock())

    async def adopt(self, tenants: Iterable[str]) -> None:
        """Makes tenants known that have a vault."""
        await asyncio.to_thread(self._store.adopt, tuple(tenants), self._clock())

    async def create(self, tenant: str, display_name: str, quotas: Quotas = UNLIMITED) -> Tenant:
        """Makes a tenant, without any key; with `quotas` of its own.

        Raises:
            InvalidArgumentError: the id or the name is invalid.
            TenantExistsError: a tenant has this id, or had it until a moment ago.
        """
        if violations := list(tenant_violations(tenant, display_name, quotas)):
            raise InvalidArgumentError(violations)
        now = self._clock()
        made = Tenant(tenant, display_name, now, now, quotas)
        if not await asyncio.to_thread(self._store.add, made):
            raise TenantExistsError(tenant)
        await self._refresh()
        return made

    async def get(self, tenant: str) -> Tenant:
        """A tenant. Raises TenantNotFoundError if it does not exist."""
        found = await asyncio.to_thread(self._store.get, tenant)
        if found is None:
            raise TenantNotFoundError(tenant)
        return found

    async def exists(self, tenant: str) -> bool:
        """Whether there is such a tenant, even if it is being deleted."""
        return await asyncio.to_thread(self._store.get, tenant) is not None

    async def list(self, *, after: int, limit: int) -> PageOf[Tenant]:
        """The tenants after a position, in the order of their creation."""
        rows = await asyncio.to_thread(self._store.read, after=after, limit=limit + 1)
        page = rows[:limit]
        return PageOf(tuple(row.tenant for row in page), page[-1].position if len(rows) > limit else None)

    async def change(self, tenant: str, change: TenantChange) -> Tenant:
        """Changes a tenant. A suspension takes effect at once in this process, and within seconds in others.

        Raises:
            InvalidArgumentError: the change is invalid.
            TenantNotFoundError: it does not exist.
            InvalidOperationError: it is being deleted.
        """
        if violations := list(change_violations(change)):
            raise InvalidArgumentError(violations)
        changed = await asyncio.to_thread(self._store.update, tenant, change, self._clock())
        if changed is None:
            await self.get(tenant)
            raise InvalidOperationError(f"the tenant {tenant!r} was deleted; its files are being removed")
        await self._refresh()
        return changed

    async def delete(self, tenant: str, *, allow_missing: bool = False) -> None:
        """Ends a suspended tenant and its keys for good. Its files are removed afterwards. Repeating it does no harm.

        Raises:
            TenantNotFoundError: it does not exist, and `allow_missing` is false.
            InvalidArgumentError: it does not exist, and no tenant can have this name.
            InvalidOperationError: it is not suspended, or is the default one.
        """
        if tenant == DEFAULT_TENANT:
            raise InvalidOperationError(f"every server has the tenant {DEFAULT_TENANT!r}; it can only be suspended")
        if allow_missing and not await self.exists(tenant):
            # A name that no tenant can have is a mistake, not a tenant that is gone.
            if violations := list(tenant_violations(tenant, "", UNLIMITED)):
                raise InvalidArgumentError(violations)
            return
        marked = await asyncio.to_thread(self._store.mark_deleted, tenant, self._clock())
        if not marked and (await self.get(tenant)).deleted_at is None:
            raise InvalidOperationError(f"the tenant {tenant!r} is being served; suspend it, then delete it")
        await self._refresh()

    async def forget(self, tenant: str) -> None:
        """Frees the id of a deleted tenant, once its files are gone."""
        await asyncio.to_thread(self._store.remove, tenant)
        await self._refresh()

    async def _turn(self) -> float | None:
        # Asking the store itself takes a thread and half a millisecond, five times a second.
        if self._store.may_have_changed():
            await self._refresh()
        return None

    async def _refresh(self) -> None:
        async with self._unstoppable:
            version = await asyncio.to_thread(self._store.version)
            if version != self._version:
                # In this order: a tenant that another process forgets in between is in both.
                special, ended = await asyncio.to_thread(lambda: (self._store.special(), self._store.ended()))
                self._special = {each.tenant: each for each in special}
                # Only suspended tenants can be deleted.
                suspended = {
                    each.tenant: each.suspension.reason if each.deleted_at is None else None
                    for each in special
                    if each.suspension is not None
                }
                self._unserved = {**suspended, **dict.fromkeys(ended)}
                self._version = version
                self.listeners.tell()
