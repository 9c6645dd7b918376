"""The contract of a store of tenants."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from mnemon_server.domain.access.tenants import Tenant, TenantChange


@dataclass(frozen=True, slots=True)
class StoredTenant:
    """A tenant with its place in the order of creation."""

    position: int
    tenant: Tenant


class TenantStore(Protocol):
    """Keeps which tenants exist. Several processes may have it open; any thread may call it, and calls block.

    A tenant begins with its first API key, too. All methods raise StorageFailedError if the disk fails, and
    StorageFullError if it is full.
    """

    def page_key(self) -> bytes:
        """32 random bytes that are made with the store, and never change."""

    def version(self) -> int:
        """A number that differs once any process has changed a tenant."""

    def may_have_changed(self) -> bool:
        """Whether `version` may return something else than the last time. Takes microseconds, and does not block."""

    def get(self, tenant: str) -> Tenant | None:
        """A tenant; None if it does not exist."""

    def read(self, *, after: int, limit: int) -> Sequence[StoredTenant]:
        """The tenants after a position, in the order of their creation."""

    def special(self) -> Sequence[Tenant]:
        """The tenants that are suspended or being deleted, or have quotas of their own."""

    def ended(self) -> frozenset[str]:
        """The tenants that were forgotten, and do not exist again."""

    def add(self, tenant: Tenant) -> bool:
        """Adds a tenant; returns False if it exists."""

    def adopt(self, tenants: Iterable[str], now: datetime) -> None:
        """Adds those tenants that do not exist yet."""

    def begin(self, tenants: Iterable[str], now: datetime) -> None:
        """Adds those tenants that do not exist, and never did."""

    def update(self, tenant: str, change: TenantChange, now: datetime) -> Tenant | None:
        """Changes a tenant, and returns it; None if it does not exist or is being deleted."""

    def mark_deleted(self, tenant: str, now: datetime) -> bool:
        """Removes the keys of a suspended tenant, and marks it as deleted; returns False if it is not suspended."""

    def remove(self, tenant: str) -> None:
        """Forgets a tenant that is marked as deleted."""
