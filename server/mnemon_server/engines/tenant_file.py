"""Tenants in the file `access.db`."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from mnemon_server.domain.access.quotas import UNLIMITED, Quotas
from mnemon_server.domain.access.tenants import Suspension, Tenant, TenantChange
from mnemon_server.domain.clock import from_microseconds, to_microseconds
from mnemon_server.engines.access_file import AccessTable
from mnemon_server.engines.promises.tenants import StoredTenant, TenantStore

_SELECT = """
SELECT position, tenant, display_name, create_time, update_time, suspend_time, suspend_reason, delete_time, quotas
FROM tenant
"""


class TenantFile(AccessTable, TenantStore):
    """The tenants of a data folder."""

    def get(self, tenant: str) -> Tenant | None:
        """See TenantStore."""
        with self._file.working() as connection:
            # To the last row: a statement that has not ended would keep other processes from writing.
            rows = connection.execute(f"{_SELECT} WHERE tenant = ?", (tenant,)).fetchall()
            return _stored(rows[0]).tenant if rows else None

    def read(self, *, after: int, limit: int) -> Sequence[StoredTenant]:
        """See TenantStore."""
        with self._file.working() as connection:
            rows = connection.execute(f"{_SELECT} WHERE position > ? ORDER BY position LIMIT ?", (after, limit))
            return [_stored(row) for row in rows]

    def special(self) -> Sequence[Tenant]:
        """See TenantStore."""
        with self._file.working() as connection:
            rows = connection.execute(f"{_SELECT} WHERE coalesce(suspend_time, delete_time, quotas) IS NOT NULL")
            return [_stored(row).tenant for row in rows]

    def ended(self) -> frozenset[str]:
        """See TenantStore."""
        with self._file.working() as connection:
            return frozenset(name for (name,) in connection.execute("SELECT tenant FROM ended_tenant"))

    def add(self, tenant: Tenant) -> bool:
        """See TenantStore."""
        with self._file.writing() as connection:
            connection.execute(
                "INSERT INTO tenant (tenant, display_name, create_time, update_time, quotas) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT DO NOTHING",
                (
                    tenant.tenant,
                    tenant.display_name,
                    to_microseconds(tenant.created_at),
                    to_microseconds(tenant.updated_at),
                    _text(tenant.quotas),
                ),
            )
            return connection.changes() > 0

    def adopt(self, tenants: Iterable[str], now: datetime) -> None:
        """See TenantStore."""
        with self._file.writing() as connection:
            connection.executemany(
                "INSERT INTO tenant (tenant, create_time, update_time) VALUES (?1, ?2, ?2) ON CONFLICT DO NOTHING",
                [(tenant, to_microseconds(now)) for tenant in tenants],
            )

    def begin(self, tenants: Iterable[str], now: datetime) -> None:
        """See TenantStore."""
        missing = [(tenant, to_microseconds(now)) for tenant in dict.fromkeys(tenants) if self.get(tenant) is None]
        if missing:
            with self._file.writing() as connection:
                connection.executemany(
                    "INSERT INTO tenant (tenant, create_time, update_time) SELECT ?1, ?2, ?2 "
                    "WHERE ?1 NOT IN (SELECT tenant FROM ended_tenant) ON CONFLICT DO NOTHING",
                    missing,
                )

    def update(self, tenant: str, change: TenantChange, now: datetime) -> Tenant | None:
        """See TenantStore."""
        with self._file.writing() as connection:
            connection.execute(
                "UPDATE tenant SET update_time = ?2, display_name = coalesce(?3, display_name), "
                "suspend_time = CASE ?4 WHEN 1 THEN coalesce(suspend_time, ?2) WHEN 0 THEN NULL ELSE suspend_time END, "
                "suspend_reason = CASE ?4 WHEN 1 THEN ?5 WHEN 0 THEN NULL ELSE suspend_reason END, "
                "quotas = CASE WHEN ?6 THEN ?7 ELSE quotas END "
                "WHERE tenant = ?1 AND delete_time IS NULL",
                (
                    tenant,
                    to_microseconds(now),
                    change.display_name,
                    change.is_suspended,
                    change.reason,
                    change.quotas is not None,
                    _text(change.quotas or UNLIMITED),
                ),
            )
            found = connection.changes() > 0
            rows = connection.execute(f"{_SELECT} WHERE tenant = ?", (tenant,)).fetchall()
            return _stored(rows[0]).tenant if found else None

    def mark_deleted(self, tenant: str, now: datetime) -> bool:
        """See TenantStore."""
        with self._file.writing() as connection:
            connection.execute(
                "UPDATE tenant SET delete_time = ? "
                "WHERE tenant = ? AND suspend_time IS NOT NULL AND delete_time IS NULL",
                (to_microseconds(now), tenant),
            )
            if not connection.changes():
                return False
            connection.execute("DELETE FROM api_key WHERE tenant = ?", (tenant,))
            return True

    def remove(self, tenant: str) -> None:
        """See TenantStore."""
        with self._file.writing() as connection:
            connection.execute("DELETE FROM tenant WHERE tenant = ? AND delete_time IS NOT NULL", (tenant,))


def _text(quotas: Quotas) -> str | None:
    return json.dumps(quotas.as_dict()) if quotas != UNLIMITED else None


def _stored(row: tuple[Any, ...]) -> StoredTenant:
    position, tenant, display_name, created, updated, suspended, reason, deleted, quotas = row
    return StoredTenant(
        position,
        Tenant(
            tenant,
            display_name,
            from_microseconds(created),
            from_microseconds(updated),
            quotas=Quotas(**json.loads(quotas)) if quotas else UNLIMITED,
            suspension=None if suspended is None else Suspension(reason, from_microseconds(suspended)),
            deleted_at=None if deleted is None else from_microseconds(deleted),
        ),
    )
