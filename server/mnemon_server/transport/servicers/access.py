"""AccessService over gRPC. Every method has the same steps: read, call, write."""

from mnemon.v1 import access_pb2 as pb
from mnemon.v1 import access_pb2_grpc

from mnemon_server.domain.access import Role
from mnemon_server.domain.errors import ConfigurationError, InvalidArgumentError, PermissionDeniedError
from mnemon_server.services.access.keys import KeyRing
from mnemon_server.transport.convert import access as convert
from mnemon_server.transport.convert.shared.reader import read_page_size
from mnemon_server.transport.interceptors.base import Context, current_call
from mnemon_server.transport.servicers.page_tokens import PageTokens
from mnemon_server.transport.tenancy import TenantServicer, named_tenant


class AccessServicer(TenantServicer, access_pb2_grpc.AccessServiceServicer):
    """Manages keys, if the server has any, and grants."""

    def __init__(self, keys: KeyRing | None) -> None:
        super().__init__()
        self._ring = keys

    @property
    def _keys(self) -> KeyRing:
        if self._ring is None:
            raise ConfigurationError(
                "authentication by API keys is off: start the server with --authentication api_key"
            )
        return self._ring

    async def CreateKey(self, request: pb.CreateKeyRequest, context: Context) -> pb.CreateKeyResponse:
        asked = convert.read_create(request)
        if asked.role is Role.OPERATOR and current_call.get().principal.role is not Role.OPERATOR:
            raise PermissionDeniedError("only operators make keys of operators")
        made = await self._keys.create(named_tenant(request.tenant), *asked)
        return pb.CreateKeyResponse(key=convert.key_to_pb(made.key), secret=made.secret)

    async def ListKeys(self, request: pb.ListKeysRequest, context: Context) -> pb.ListKeysResponse:
        limit = read_page_size(request)
        request.tenant = named_tenant(request.tenant)
        pages = PageTokens(self._keys.page_key, request)
        page = self._keys.list(request.tenant, after=pages.position(), limit=limit)
        keys = [convert.key_to_pb(key) for key in page.items]
        return pb.ListKeysResponse(keys=keys, next_page_token=pages.next(page.next_position))

    async def RotateKey(self, request: pb.RotateKeyRequest, context: Context) -> pb.RotateKeyResponse:
        overlap = convert.read_rotation(request)
        made = await self._keys.rotate(named_tenant(request.tenant), request.key_id, overlap)
        return pb.RotateKeyResponse(key=convert.key_to_pb(made.key), secret=made.secret)

    async def RevokeKey(self, request: pb.RevokeKeyRequest, context: Context) -> pb.RevokeKeyResponse:
        tenant = named_tenant(request.tenant)
        if not request.key_id:
            raise InvalidArgumentError.of("key_id", "is required")
        await self._keys.revoke(tenant, request.key_id, allow_missing=request.allow_missing)
        return pb.RevokeKeyResponse()

    async def CreateGrant(self, request: pb.CreateGrantRequest, context: Context) -> pb.CreateGrantResponse:
        caller = current_call.get().principal
        grant = convert.read_grant(request, caller)
        self._check_subject(caller.tenant, grant.subject)
        async with self.vault() as vault:
            made = await vault.grants.create(caller, grant)
        return pb.CreateGrantResponse(grant=convert.grant_to_pb(made))

    async def ListGrants(self, request: pb.ListGrantsRequest, context: Context) -> pb.ListGrantsResponse:
        limit = read_page_size(request)
        async with self.vault() as vault:
            pages = PageTokens(vault.page_key, request)
            page = await vault.grants.list(current_call.get().principal, after=pages.position(), limit=limit)
        grants = [convert.grant_to_pb(grant) for grant in page.items]
        return pb.ListGrantsResponse(grants=grants, next_page_token=pages.next(page.next_position))

    async def AcceptGrant(self, request: pb.AcceptGrantRequest, context: Context) -> pb.AcceptGrantResponse:
        grant_id = convert.read_grant_id(request)
        async with self.vault() as vault:
            accepted = await vault.grants.accept(current_call.get().principal, grant_id)
        return pb.AcceptGrantResponse(grant=convert.grant_to_pb(accepted))

    async def RevokeGrant(self, request: pb.RevokeGrantRequest, context: Context) -> pb.RevokeGrantResponse:
        grant_id = convert.read_grant_id(request)
        async with self.vault() as vault:
            caller = current_call.get().principal
            await vault.grants.revoke(caller, grant_id, allow_missing=request.allow_missing)
        return pb.RevokeGrantResponse()

    def _check_subject(self, tenant: str, subject: str) -> None:
        """Raises InvalidArgumentError for a key that does not exist. Users need no record, so any may be meant."""
        kind, _, key_id = subject.partition(":")
        if kind == "key" and self._ring is not None and not self._ring.has(tenant, key_id):
            raise InvalidArgumentError.of("subject", "names no API key of this tenant; WhoAmI shows a caller's name")

    async def WhoAmI(self, request: pb.WhoAmIRequest, context: Context) -> pb.WhoAmIResponse:
        return convert.principal_to_pb(current_call.get().principal)
