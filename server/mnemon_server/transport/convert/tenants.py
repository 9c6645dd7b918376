"""Requests to the tenant service as values, and its answers as messages."""

from collections.abc import Mapping
from typing import Any

from mnemon.v1 import tenant_pb2 as pb

from mnemon_server.domain.access.quotas import Quotas
from mnemon_server.domain.access.tenants import Tenant, TenantChange, change_violations
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.services.limits.accounts import Usage
from mnemon_server.transport.convert.shared.fields import filled
from mnemon_server.transport.convert.shared.reader import Reader, named

FIELDS = ("display_name", "quotas", "suspension")
"""The fields of a tenant that can be changed."""


def read_quotas(message: pb.Quotas) -> Quotas:
    """The quotas that are set."""
    return Quotas(**{field.name: value for field, value in message.ListFields()})


def quotas_to_pb(quotas: Quotas) -> pb.Quotas:
    """The quotas that are limited."""
    values: dict[str, Any] = dict(quotas.as_dict())
    return pb.Quotas(**values)


def read_update(request: pb.UpdateTenantRequest) -> TenantChange:
    """The changes of a tenant."""
    reader = Reader()
    mask = frozenset(request.update_mask.paths)
    if not mask or not mask.issubset(FIELDS):
        reader.note("update_mask", f"must name what to change: {', '.join(FIELDS)}")
    new = request.tenant
    change = TenantChange(
        display_name=new.display_name if "display_name" in mask else None,
        quotas=read_quotas(new.quotas) if "quotas" in mask else None,
        is_suspended=new.HasField("suspension") if "suspension" in mask else None,
        reason=new.suspension.reason,
    )
    reader.violations += named(map(_in_request, change_violations(change)), mask, "tenant")
    reader.finish()
    return change


def tenant_to_pb(tenant: Tenant) -> pb.Tenant:
    """A tenant."""
    suspension = tenant.suspension
    return filled(
        pb.Tenant(),
        tenant,
        quotas=quotas_to_pb(tenant.quotas),
        suspension=filled(pb.Suspension(), suspension, create_time=suspension.since) if suspension else None,
        create_time=tenant.created_at,
        update_time=tenant.updated_at,
        delete_time=tenant.deleted_at,
    )


def usage_to_pb(
    usage: Usage, quotas: Quotas, records: Mapping[RecordKind, int], disk_bytes: int
) -> pb.GetUsageResponse:
    """The use of a tenant, and the quotas in force."""
    counts = {kind.value: count for kind, count in records.items()}
    return filled(pb.GetUsageResponse(), usage, records=counts, disk_bytes=disk_bytes, quotas=quotas_to_pb(quotas))


def _in_request(violation: FieldViolation) -> FieldViolation:
    """The violation with the place of its field in the request."""
    field = "suspension.reason" if violation.field == "reason" else violation.field
    return FieldViolation(f"tenant.{field}", violation.description)
