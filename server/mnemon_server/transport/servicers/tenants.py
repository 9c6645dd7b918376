"""TenantService over gRPC. Every method has the same steps: read, call, write."""

import asyncio
from pathlib import Path

from mnemon.v1 import tenant_pb2 as pb
from mnemon.v1 import tenant_pb2_grpc

from mnemon_server.domain.errors import ConfigurationError, InvalidOperationError
from mnemon_server.engines.vault_folders import size_of
from mnemon_server.services.access.tenants import Tenants
from mnemon_server.services.housekeeping import stored_records
from mnemon_server.services.limits.accounts import Accounts
from mnemon_server.transport.convert import tenants as convert
from mnemon_server.transport.convert.shared.reader import read_page_size
from mnemon_server.transport.interceptors.base import Context
from mnemon_server.transport.servicers.page_tokens import PageTokens
from mnemon_server.transport.tenancy import TenantServicer, named_tenant, tenant_of


class TenantRegistryServicer(TenantServicer, tenant_pb2_grpc.TenantServiceServicer):
    """Manages tenants, on a server that has operators."""

    def __init__(self, tenants: Tenants | None, accounts: Accounts, vaults_folder: Path) -> None:
        super().__init__()
        self._registry = tenants
        self._accounts = accounts
        self._folder = vaults_folder

    @property
    def _tenants(self) -> Tenants:
        if self._registry is None:
            raise ConfigurationError("the server has no operators: start it with --authentication")
        return self._registry

    async def CreateTenant(self, request: pb.CreateTenantRequest, context: Context) -> pb.CreateTenantResponse:
        quotas = convert.read_quotas(request.quotas)
        made = await self._tenants.create(request.tenant, request.display_name, quotas)
        return pb.CreateTenantResponse(tenant=convert.tenant_to_pb(made))

    async def GetTenant(self, request: pb.GetTenantRequest, context: Context) -> pb.GetTenantResponse:
        return pb.GetTenantResponse(tenant=convert.tenant_to_pb(await self._tenants.get(request.tenant)))

    async def ListTenants(self, request: pb.ListTenantsRequest, context: Context) -> pb.ListTenantsResponse:
        limit = read_page_size(request)
        pages = PageTokens(self._tenants.page_key, request)
        page = await self._tenants.list(after=pages.position(), limit=limit)
        tenants = [convert.tenant_to_pb(tenant) for tenant in page.items]
        return pb.ListTenantsResponse(tenants=tenants, next_page_token=pages.next(page.next_position))

    async def UpdateTenant(self, request: pb.UpdateTenantRequest, context: Context) -> pb.UpdateTenantResponse:
        changed = await self._tenants.change(request.tenant.tenant, convert.read_update(request))
        return pb.UpdateTenantResponse(tenant=convert.tenant_to_pb(changed))

    async def DeleteTenant(self, request: pb.DeleteTenantRequest, context: Context) -> pb.DeleteTenantResponse:
        await self._tenants.delete(request.tenant, allow_missing=request.allow_missing)
        return pb.DeleteTenantResponse()

    async def GetUsage(self, request: pb.GetUsageRequest, context: Context) -> pb.GetUsageResponse:
        tenant = named_tenant(request.tenant)
        # The only tenant of a server without authentication is in no registry.
        if tenant != tenant_of() or not tenant:
            found = await self._tenants.get(tenant)
            if found.deleted_at is not None:
                raise InvalidOperationError(f"the tenant {tenant!r} was deleted; its files are being removed")
        async with self.vault_of(tenant) as vault:
            records = await stored_records(vault)
        disk_bytes = await asyncio.to_thread(size_of, self._folder / tenant)
        usage, quotas = self._accounts.usage_of(tenant), self._accounts.quotas_of(tenant)
        return convert.usage_to_pb(usage, quotas, records, disk_bytes)
