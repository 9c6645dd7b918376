"""Whose call it is, and how a servicer gets the services of that tenant's vault."""

import sys
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import ServiceDescriptor

from mnemon_server.domain.access import Role, check_tenant_of_keys
from mnemon_server.domain.errors import NotFoundError, PermissionDeniedError
from mnemon_server.domain.kinds import VERSIONED, RecordKind
from mnemon_server.services.reading.answers import VECTORS_WEIGHT, WEIGHT, AnswerMemory, Room
from mnemon_server.transport.convert.shared.reader import Reader
from mnemon_server.transport.errors import NotBegunError
from mnemon_server.transport.interceptors.base import current_call

if TYPE_CHECKING:
    from mnemon_server.services.vaults import OpenVault, VaultLease, VaultPool

Result = TypeVar("Result")


def tenant_of() -> str:
    """The tenant of the call: from its credential, never from its request. Without credentials, there is only one."""
    return current_call.get().principal.tenant


def named_tenant(tenant: str) -> str:
    """The tenant that a request names: an operator's may name any, or none; all others only that of the caller.

    Raises:
        PermissionDeniedError: the caller is no operator, and it is another tenant.
        InvalidArgumentError: no tenant can have this name.
    """
    principal = current_call.get().principal
    if tenant in ("", principal.tenant):
        return principal.tenant
    if principal.role is not Role.OPERATOR:
        raise PermissionDeniedError(
            "only operators name a tenant in a request; leave it out for that of your credential"
        )
    check_tenant_of_keys(tenant)
    return tenant


class TenantServicer:
    """Base of the servicers that work on a vault. Answers UNAVAILABLE until the pool of vaults is attached."""

    @classmethod
    def _generated(cls) -> type:
        """The generated class of the service."""
        return next(base for base in cls.__mro__ if base.__module__.endswith("_pb2_grpc"))

    @classmethod
    def descriptor(cls) -> ServiceDescriptor:
        """The service as its proto describes it."""
        name = cls._generated().__name__.removesuffix("Servicer")
        found: ServiceDescriptor = descriptor_pool.Default().FindServiceByName(f"mnemon.v1.{name}")
        return found

    def __init__(self) -> None:
        self._vaults: VaultPool | None = None
        self._answers: AnswerMemory | None = None

    def add_to(self, server: Any) -> None:
        """Adds the methods of the service to a server of the runtime."""
        generated = self._generated()
        getattr(sys.modules[generated.__module__], f"add_{generated.__name__}_to_server")(self, server)

    def attach(self, vaults: "VaultPool", answers: AnswerMemory) -> None:
        """Serves these vaults from now on; its answers share that memory with those of the others."""
        self._vaults = vaults
        self._answers = answers

    def room(self, *, vectors: bool = False, copies: int = 1) -> Room:
        """The room for the answer to this call; the pipeline releases it once the answer is on its way.

        Args:
            vectors: whether its records come with their vectors.
            copies: how many times it holds the text of a record.

        Raises:
            NotBegunError: no vaults are attached yet.
        """
        if self._answers is None:
            raise NotBegunError("the server is starting")
        call = current_call.get()
        room = call.room = Room(
            self._answers,
            weight=VECTORS_WEIGHT if vectors else WEIGHT,
            copies=copies,
            account=call.account,
        )
        return room

    @property
    def vaults(self) -> "VaultPool":
        """The vaults of all tenants. Raises NotBegunError if none are attached yet."""
        if self._vaults is None:
            raise NotBegunError("the server is starting")
        return self._vaults

    def vault_of(self, tenant: str) -> "VaultLease":
        """The open services of a tenant, for as long as the block lasts; for operators.

        Raises:
            NotBegunError: no vaults are attached yet.
        """
        return self.vaults.use(tenant)

    def vault(self) -> "VaultLease":
        """The open services of the caller's tenant, as the caller sees them, for as long as the block lasts. A method
        that concerns the whole tenant gets the whole vault.

        Raises:
            NotBegunError: no vaults are attached yet.
        """
        call = current_call.get()
        return self.vaults.use(call.principal.tenant, None if call.whole_tenant else call.principal.bounds)


# Reads as of a moment in the past.


class Known(NamedTuple):
    """A vault at the moment that a request asks about, and whether something of that moment may be missing."""

    vault: "OpenVault"
    is_incomplete: bool

    async def found(self, reading: Awaitable[Result]) -> Result:
        """The result of a read. The error that a record does not exist says if the history may lack it."""
        try:
            return await reading
        except NotFoundError as error:
            if self.is_incomplete:
                error.args = (f"{error}; what was known at as_of_time is not complete",)
            raise


async def known(vault: "OpenVault", request: Any, kind: RecordKind | None = None) -> Known:
    """The vault at the moment that a request asks about, for records of a kind; None stands for all kinds."""
    reader = Reader()
    moment = reader.as_of(request)
    reader.finish()
    if moment is None:
        return Known(vault, is_incomplete=False)
    kinds = VERSIONED if kind is None else (kind,)
    return Known(vault.at(moment), await vault.history.is_incomplete(kinds, moment))
