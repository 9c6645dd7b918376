"""Tenants: whom a server serves, each with a vault of its own."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from mnemon_server.domain.access import TENANT_ID
from mnemon_server.domain.access.quotas import UNLIMITED, Quotas, quota_violations
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.validation import name_violations

DISPLAY_NAME_BYTES_MAX = 256
REASON_BYTES_MAX = 1_024


@dataclass(frozen=True, slots=True)
class Suspension:
    """Why a tenant is not served for now."""

    reason: str
    """The reason, for its callers."""
    since: datetime


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant, as operators see it."""

    tenant: str
    """Its id, which its credentials and its folder have."""
    display_name: str
    """The display name; may be empty."""
    created_at: datetime
    updated_at: datetime
    quotas: Quotas = UNLIMITED
    """Its own; where they are None, those of the settings hold."""
    suspension: Suspension | None = None
    """None while it is served."""
    deleted_at: datetime | None = None
    """When it was deleted; its last files are being removed."""


@dataclass(frozen=True, slots=True)
class TenantChange:
    """Changes of a tenant; None leaves a part unchanged."""

    display_name: str | None = None
    quotas: Quotas | None = None
    """All quotas anew."""
    is_suspended: bool | None = None
    reason: str = ""
    """Why it is suspended."""


def tenant_violations(tenant: str, display_name: str, quotas: Quotas) -> Iterator[FieldViolation]:
    """Violations in a tenant that is to be created."""
    if not TENANT_ID.fullmatch(tenant):
        yield FieldViolation(
            "tenant", 'must be 1 to 63 lower-case letters, digits, "_" and "-", a letter or digit first'
        )
    yield from change_violations(TenantChange(display_name=display_name, quotas=quotas))


def change_violations(change: TenantChange) -> Iterator[FieldViolation]:
    """Violations in a change of a tenant."""
    if change.display_name is not None and _size(change.display_name) > DISPLAY_NAME_BYTES_MAX:
        yield FieldViolation("display_name", f"must be at most {DISPLAY_NAME_BYTES_MAX} bytes")
    yield from name_violations(change.display_name or "", "display_name")
    if change.quotas is not None:
        yield from quota_violations(change.quotas)
    if change.is_suspended and (not change.reason.strip() or _size(change.reason) > REASON_BYTES_MAX):
        yield FieldViolation("reason", f"must tell the tenant why it is suspended, in 1 to {REASON_BYTES_MAX:,} bytes")
    yield from name_violations(change.reason, "reason")


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
