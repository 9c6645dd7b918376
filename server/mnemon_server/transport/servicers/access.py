"""AccessService over gRPC. Every method has the same steps: read, call, write."""

from mnemon.v1 import access_pb2 as pb
from mnemon.v1 import access_pb2_grpc

from mnemon_server.domain.access import Role
from mnemon_server.domain.errors import ConfigurationError, InvalidArgumentError, PermissionDeniedError
from mnemon_server.services.access.keys import KeyRing
from mnemon_server.transport.convert import access as convert
from mnemon_server.transport.interceptors.base import Context, current_call
from mnemon_server.transport.servicers.page_tokens import PageTokens
from mnemon_server.transport.tenancy import TenantServicer, named_tenant


class AccessServicer(TenantServicer, access_pb2_grpc.AccessServiceServicer):
    """Manages keys, if the server has any."""

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

    async def CreateKey(self, request: pb.CreateKeyRequest, context: Context) -> pb.CreateKeyResponse:  # noqa: N802
        asked = convert.read_create(request)
        if asked.role is Role.OPERATOR and current_call.get().principal.role is not Role.OPERATOR:
            raise PermissionDeniedError("only operators make keys of operators")
        made = await self._keys.create(named_tenant(context, request.tenant), *asked)
        return pb.CreateKeyResponse(key=convert.key_to_pb(made.key), secret=made.secret)

    async def ListKeys(self, request: pb.ListKeysRequest, context: Context) -> pb.ListKeysResponse:  # noqa: N802
        limit = convert.read_list(request)
        request.tenant = named_tenant(context, request.tenant)
        pages = PageTokens(self._keys.page_key, request)
        page = self._keys.list(request.tenant, after=pages.position(), limit=limit)
        keys = [convert.key_to_pb(key) for key in page.keys]
        return pb.ListKeysResponse(keys=keys, next_page_token=pages.next(page.next_position))

    async def RotateKey(self, request: pb.RotateKeyRequest, context: Context) -> pb.RotateKeyResponse:  # noqa: N802
        overlap = convert.read_rotation(request)
        made = await self._keys.rotate(named_tenant(context, request.tenant), request.key_id, overlap)
        return pb.RotateKeyResponse(key=convert.key_to_pb(made.key), secret=made.secret)

    async def RevokeKey(self, request: pb.RevokeKeyRequest, context: Context) -> pb.RevokeKeyResponse:  # noqa: N802
        tenant = named_tenant(context, request.tenant)
        if not request.key_id:
            raise InvalidArgumentError.of("key_id", "is required")
        await self._keys.revoke(tenant, request.key_id, allow_missing=request.allow_missing)
        return pb.RevokeKeyResponse()

    async def WhoAmI(self, request: pb.WhoAmIRequest, context: Context) -> pb.WhoAmIResponse:  # noqa: N802
        return convert.principal_to_pb(current_call.get().principal)
