"""The asyncio client's object for tenants."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from mnemon._async.service import AsyncService
from mnemon._messages import tenants as convert
from mnemon._messages.documents import text
from mnemon._messages.fields import int32_to_pb
from mnemon._values import tenants as values
from mnemon.v1 import tenant_pb2 as pb
from mnemon.v1.tenant_pb2_grpc import TenantServiceStub

if TYPE_CHECKING:
    from mnemon.v1.tenant_pb2_grpc import TenantServiceAsyncStub


class AsyncTenants(AsyncService):
    """The tenants of a server, as `client.tenants`; for operators.

    Methods that name a tenant raise TenantNotFoundError if it does not exist.
    """

    async def add(
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
        request = pb.CreateTenantRequest(tenant=text("tenant", tenant), display_name=text("display_name", display_name))
        if quotas is not None:
            request.quotas.CopyFrom(convert.quotas_to_pb(quotas))
        response = await self._call(self._stub.CreateTenant, request, timeout, repeatable=False)
        return convert.tenant_from_pb(response.tenant)

    async def get(self, tenant: str, *, timeout: float | None = None) -> values.Tenant:
        """Returns a tenant."""
        response = await self._call(self._stub.GetTenant, pb.GetTenantRequest(tenant=text("tenant", tenant)), timeout)
        return convert.tenant_from_pb(response.tenant)

    async def list(self, *, page_size: int = 0, timeout: float | None = None) -> AsyncIterator[values.Tenant]:
        """Yields all tenants in the order of their creation. `timeout` applies to each page."""
        token = ""
        while True:
            page = await self.list_page(page_size=page_size, page_token=token, timeout=timeout)
            for each in page.tenants:
                yield each
            if not (token := page.next_page_token):
                return

    async def list_page(
        self, *, page_size: int = 0, page_token: str = "", timeout: float | None = None
    ) -> values.TenantPage:
        """Returns one page of tenants: 100 if `page_size` is 0, at most 1,000."""
        request = pb.ListTenantsRequest(page_size=int32_to_pb(page_size), page_token=text("page_token", page_token))
        return convert.page_from_pb(await self._call(self._stub.ListTenants, request, timeout))

    async def update(
        self,
        tenant: str,
        *,
        display_name: str | None = None,
        quotas: values.Quotas | None = None,
        timeout: float | None = None,
    ) -> values.Tenant:
        """Changes what a tenant is called, or what it may use; `quotas` replaces all of them."""
        return await self._change(convert.update(tenant, display_name, quotas), timeout)

    async def suspend(self, tenant: str, reason: str, *, timeout: float | None = None) -> values.Tenant:
        """Refuses all calls of a tenant with this reason, and ends its streams. Its data stays."""
        return await self._change(convert.suspension(tenant, reason), timeout)

    async def resume(self, tenant: str, *, timeout: float | None = None) -> values.Tenant:
        """Serves a suspended tenant again."""
        return await self._change(convert.suspension(tenant, None), timeout)

    async def delete(self, tenant: str, *, allow_missing: bool = False, timeout: float | None = None) -> None:
        """Removes a suspended tenant, its keys and all of its data for good.

        Its keys end at once, and its files are removed within seconds. Raises InvalidOperationError if the tenant is
        not suspended.
        """
        request = pb.DeleteTenantRequest(tenant=text("tenant", tenant), allow_missing=allow_missing)
        await self._call(self._stub.DeleteTenant, request, timeout)

    async def usage(self, tenant: str = "", *, timeout: float | None = None) -> values.TenantUsage:
        """Returns what a tenant stores, and what it has used of the server.

        Operators name the tenant; an admin leaves it out for its own.
        """
        response = await self._call(self._stub.GetUsage, pb.GetUsageRequest(tenant=text("tenant", tenant)), timeout)
        return convert.usage_from_pb(response)

    async def _change(self, request: pb.UpdateTenantRequest, timeout: float | None) -> values.Tenant:
        response = await self._call(self._stub.UpdateTenant, request, timeout)
        return convert.tenant_from_pb(response.tenant)

    @property
    def _stub(self) -> "TenantServiceAsyncStub":
        return self._connection.stub(TenantServiceStub)
