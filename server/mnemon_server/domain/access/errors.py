"""Errors about keys, grants and tenants."""

from mnemon_server.domain.access import without_secret
from mnemon_server.domain.errors import ErrorReason, MnemonError, NotFoundError, PermissionDeniedError


class KeyNotFoundError(NotFoundError):
    """The tenant has no API key with this id."""

    reason = ErrorReason.KEY_NOT_FOUND
    noun = "API key"

    def __init__(self, key_id: str) -> None:
        super().__init__(without_secret(key_id))


class GrantNotFoundError(NotFoundError):
    """The caller sees no grant with this id."""

    reason = ErrorReason.GRANT_NOT_FOUND
    noun = "grant"


class TenantNotFoundError(NotFoundError):
    """No tenant has this id."""

    reason = ErrorReason.TENANT_NOT_FOUND
    noun = "tenant"


class TenantExistsError(MnemonError):
    """A tenant with this id exists, or its files are still being removed."""

    reason = ErrorReason.TENANT_EXISTS

    def __init__(self, tenant: str) -> None:
        self.ids = (tenant,)
        super().__init__(f"the tenant {tenant!r} exists and can be updated, or its files are still being removed")


class TenantSuspendedError(PermissionDeniedError):
    """The caller's tenant is suspended, or is being deleted."""

    reason = ErrorReason.TENANT_SUSPENDED
