"""Converts requests and answers of the tenant service."""

from datetime import datetime
from typing import Any

from mnemon._arguments import check_number
from mnemon._messages.documents import invalid, text, time_from_pb
from mnemon._values import tenants
from mnemon.v1 import tenant_pb2 as pb

_QUOTAS = tuple(pb.Quotas.DESCRIPTOR.fields_by_name)


def quotas_to_pb(quotas: tenants.Quotas) -> pb.Quotas:
    """The quotas that are set."""
    if not isinstance(quotas, tenants.Quotas):
        raise invalid("quotas", f"must be Quotas, such as Quotas(records=1000), not {type(quotas).__name__}")
    given = {name: value for name in _QUOTAS if (value := getattr(quotas, name)) is not None}
    return pb.Quotas(**{name: check_number(f"quotas.{name}", value) for name, value in given.items()})


def update(tenant: str, display_name: str | None, quotas: tenants.Quotas | None) -> pb.UpdateTenantRequest:
    """The request to change what is not None."""
    request = pb.UpdateTenantRequest(tenant=pb.Tenant(tenant=text("tenant", tenant)))
    if display_name is not None:
        request.tenant.display_name = text("display_name", display_name)
        request.update_mask.paths.append("display_name")
    if quotas is not None:
        request.tenant.quotas.CopyFrom(quotas_to_pb(quotas))
        request.update_mask.paths.append("quotas")
    return request


def suspension(tenant: str, reason: str | None) -> pb.UpdateTenantRequest:
    """The request to suspend a tenant for a reason; None serves it again."""
    request = pb.UpdateTenantRequest(tenant=pb.Tenant(tenant=text("tenant", tenant)))
    request.update_mask.paths.append("suspension")
    if reason is not None:
        request.tenant.suspension.CopyFrom(pb.Suspension(reason=text("reason", reason)))
    return request


def tenant_from_pb(message: pb.Tenant) -> tenants.Tenant:
    """A tenant."""
    paused = message.suspension
    return tenants.Tenant(
        tenant=message.tenant,
        display_name=message.display_name,
        quotas=_quotas_from_pb(message.quotas),
        create_time=_time(message, "create_time"),
        update_time=_time(message, "update_time"),
        suspension=tenants.Suspension(reason=paused.reason, create_time=_time(paused, "create_time"))
        if message.HasField("suspension")
        else None,
        delete_time=time_from_pb(message, "delete_time"),
    )


def page_from_pb(response: pb.ListTenantsResponse) -> tenants.TenantPage:
    """A page of tenants."""
    return tenants.TenantPage(
        tenants=tuple(map(tenant_from_pb, response.tenants)), next_page_token=response.next_page_token
    )


def usage_from_pb(response: pb.GetUsageResponse) -> tenants.TenantUsage:
    """What a tenant uses."""
    return tenants.TenantUsage(
        records=dict(response.records),
        disk_bytes=response.disk_bytes,
        open_streams=response.open_streams,
        concurrent_calls=response.concurrent_calls,
        calls=response.calls,
        refused_calls=response.refused_calls,
        bytes_in_flight=response.bytes_in_flight,
        embedding_seconds=response.embedding_seconds,
        quotas=_quotas_from_pb(response.quotas),
    )


def _quotas_from_pb(message: pb.Quotas) -> tenants.Quotas:
    return tenants.Quotas(**{field.name: value for field, value in message.ListFields()})


def _time(message: Any, field: str) -> datetime:
    found = time_from_pb(message, field)
    assert found is not None  # noqa: S101 -- the server always sets it
    return found
