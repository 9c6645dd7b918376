"""Whose call it is, and how a servicer gets at the services of that tenant's vault."""

from typing import TYPE_CHECKING

from mnemon_server.domain.errors import NotServingError
from mnemon_server.transport.interceptors.base import Context

if TYPE_CHECKING:
    from mnemon_server.services.vaults import VaultLease, VaultPool

DEFAULT_TENANT = "default"


def tenant_of(context: Context) -> str:
    """The tenant that the call is for: of its credential, never of its request. Without credentials there is one."""
    return DEFAULT_TENANT


class TenantServicer:
    """Base of the servicers that work on a vault. Answers UNAVAILABLE until the pool of vaults is attached."""

    def __init__(self) -> None:
        self._vaults: VaultPool | None = None

    def attach(self, vaults: "VaultPool") -> None:
        """Serves these vaults from now on."""
        self._vaults = vaults

    def vault(self, context: Context) -> "VaultLease":
        """The open services of the caller's tenant, for as long as the block lasts.

        Raises:
            NotServingError: no vaults are attached yet.
        """
        if self._vaults is None:
            raise NotServingError("the server is starting")
        return self._vaults.use(tenant_of(context))
