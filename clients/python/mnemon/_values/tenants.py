"""Tenants, as operators see them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from mnemon._values.documents import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas(JsonValue):
    """The most that a tenant may use; where it is None, the server's settings decide."""

    calls_per_second: float | None = None
    """Calls that begin in a second, on average."""
    calls_burst: int | None = None
    """Calls that may begin at once after a pause."""
    concurrent_calls: int | None = None
    """Single calls that are not answered yet."""
    open_streams: int | None = None
    """Streams that are open at once."""
    mib_in_flight: float | None = None
    """MiB of memory for requests that are being answered, and for answers on their way."""
    records: int | None = None
    """Records of all kinds that are stored, events included."""
    disk_mib: float | None = None
    """MiB of the vault's files."""
    embedding_seconds_per_minute: float | None = None
    """Seconds for which the embedding model runs, in a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspension(JsonValue):
    """Why a tenant is not served for now."""

    reason: str
    """The reason, for its callers."""
    create_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant(JsonValue):
    """A tenant of a server."""

    tenant: str
    """Its id."""
    display_name: str
    quotas: Quotas
    create_time: datetime
    update_time: datetime
    suspension: Suspension | None = None
    """None while it is served."""
    delete_time: datetime | None = None
    """When it was deleted, as long as its files are being removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantPage(JsonValue):
    """A page of tenants; `next_page_token` is empty after the last one."""

    tenants: tuple[Tenant, ...]
    next_page_token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantUsage(JsonValue):
    """The use of a tenant. Totals are counted since the server was started."""

    records: Mapping[str, int]
    """Records by kind, without those that are deleted or have expired."""
    disk_bytes: int
    """Bytes of all files of its vault."""
    open_streams: int
    concurrent_calls: int
    """Single calls that are not answered yet."""
    calls: int
    """Calls that began, single ones and streams."""
    refused_calls: int
    """Calls that a quota refused."""
    bytes_in_flight: int
    """Memory for requests that are being answered, and for answers on their way."""
    embedding_seconds: float
    """For how long the embedding model ran."""
    quotas: Quotas
    """The quotas in force; None is unlimited."""
