# Generated from _async/tenants.py by `make generate`: change that file instead.
"""The blocking client's object for tenants."""

from collections.abc import Iterator, Sequence
from typing import Any

from mnemon._messages.calls import quotas_to_pb
from mnemon._messages.translation import read, request
from mnemon._sync.service import Service, Stub
from mnemon._values import tenants as values
from mnemon.v1 import tenant_pb2 as pb
from mnemon.v1.tenant_pb2_grpc import TenantServiceStub


class Tenants(Service):
    """The tenants of a server, as `client.tenants`; for operators.

    Methods that name a tenant raise TenantNotFoundError if it does not exist.
    """

    _stub = Stub(TenantServiceStub)

    def add(
        self,
        tenant: str,
        *,
        display_name: str = "",
        quotas: values.Quotas | None = None,
        timeout: float | None = None,
    ) -> values.Tenant:
        """Makes a tenant without any key; `client.keys.add(…, tenant=…)` makes its first one.

        Raises TenantExistsError if there is a tenant with this id, or its files are still being removed.
        """
        most = quotas_to_pb(quotas)
        asked = request(pb.CreateTenantRequest, tenant=tenant, display_name=display_name, quotas=most)
        response = self._call(self._stub.CreateTenant, asked, timeout, repeatable=False)
        return read(values.Tenant, response.tenant)

    def get(self, tenant: str, *, timeout: float | None = None) -> values.Tenant:
        """Returns a tenant."""
        response = self._call(self._stub.GetTenant, request(pb.GetTenantRequest, tenant=tenant), timeout)
        return read(values.Tenant, response.tenant)

    def list(self, *, page_size: int = 0, timeout: float | None = None) -> Iterator[values.Tenant]:
        """Yields all tenants in the order of their creation. `timeout` applies to each page."""
        return self._items(self.list_page, page_size=page_size, timeout=timeout)

    def list_page(self, *, page_size: int = 0, page_token: str = "", timeout: float | None = None) -> values.TenantPage:
        """Returns one page of tenants: 100 if `page_size` is 0, at most 1,000."""
        asked = request(pb.ListTenantsRequest, page_size=page_size, page_token=page_token)
        return read(values.TenantPage, self._call(self._stub.ListTenants, asked, timeout))

    def update(
        self,
        tenant: str,
        *,
        display_name: str | None = None,
        quotas: values.Quotas | None = None,
        timeout: float | None = None,
    ) -> values.Tenant:
        """Changes what a tenant is called, or what it may use; `quotas` replaces all of them."""
        given = {"display_name": display_name, "quotas": quotas_to_pb(quotas)}
        changed = {name: value for name, value in given.items() if value is not None}
        return self._change(tenant, list(changed), timeout, **changed)

    def suspend(self, tenant: str, reason: str, *, timeout: float | None = None) -> values.Tenant:
        """Refuses all calls of a tenant with this reason, and ends its streams. Its data stays."""
        suspended = request(pb.Suspension, reason=reason)
        return self._change(tenant, ["suspension"], timeout, suspension=suspended)

    def resume(self, tenant: str, *, timeout: float | None = None) -> values.Tenant:
        """Serves a suspended tenant again."""
        return self._change(tenant, ["suspension"], timeout)

    def delete(self, tenant: str, *, allow_missing: bool = False, timeout: float | None = None) -> None:
        """Removes a suspended tenant, its keys and all of its data for good.

        Its keys end at once, and its files are removed within seconds. Raises InvalidOperationError if the tenant is
        not suspended.
        """
        asked = request(pb.DeleteTenantRequest, tenant=tenant, allow_missing=allow_missing)
        self._call(self._stub.DeleteTenant, asked, timeout)

    def usage(self, tenant: str = "", *, timeout: float | None = None) -> values.TenantUsage:
        """Returns what a tenant stores, and what it has used of the server.

        Operators name the tenant; an admin leaves it out for its own.
        """
        response = self._call(self._stub.GetUsage, request(pb.GetUsageRequest, tenant=tenant), timeout)
        return read(values.TenantUsage, response)

    def _change(self, tenant: str, changed: Sequence[str], timeout: float | None, **fields: Any) -> values.Tenant:
        """Changes these fields. A changed field without a value is cleared."""
        message = request(pb.Tenant, tenant=tenant, **fields)
        asked = request(pb.UpdateTenantRequest, tenant=message, update_mask=changed)
        response = self._call(self._stub.UpdateTenant, asked, timeout)
        return read(values.Tenant, response.tenant)
