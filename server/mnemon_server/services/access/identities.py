"""Callers, by any credential that the server accepts."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Protocol

from mnemon_server.domain.access import EVERYBODY, Credentials, Principal
from mnemon_server.domain.access.errors import TenantSuspendedError
from mnemon_server.domain.errors import MnemonError, PermissionDeniedError, UnauthenticatedError
from mnemon_server.services.access.keys import KeyRing
from mnemon_server.services.access.tenants import Tenants
from mnemon_server.services.access.unknown import UnknownError
from mnemon_server.services.background.listeners import Listeners
from mnemon_server.services.background.periodic import Periodic

CHECK_S = 1.0
"""How often open streams are compared with what is valid now."""
RECENT_S = 0.1
"""For so long, a credential is taken for that of the same caller, unless what it was compared with changes. One that
ends by itself ends so much later."""
RECENT_MAX = 10_000
LOG_NAMES_MAX = 10_000


class IdentitySource(Protocol):
    """One kind of credential."""

    wanted: str
    """Advice for a caller without a credential."""
    listeners: Listeners
    """Hear that callers may be others from now on; not if a credential has ended by itself."""

    def identify(self, shown: Credentials) -> Principal | None:
        """The caller; None if it shows nothing of this kind.

        Raises:
            UnauthenticatedError: the credential is not valid.
            PermissionDeniedError: it is, but gives no role here.
            UnknownError: it may be, by what the server has not seen yet: a key, or a tenant.
        """


class SocketOwner:
    """Everybody who may open the server's Unix socket, which is the user who runs the server."""

    wanted = "connect to the server's socket"

    def __init__(self, uid: int) -> None:
        self._principal = replace(EVERYBODY, subject=f"unix:{uid}")
        self.listeners = Listeners()

    def identify(self, shown: Credentials) -> Principal | None:
        """The user, unless the caller shows something else."""
        return None if shown.bearer or shown.certificate else self._principal


class Identities(Periodic):
    """All kinds of credentials that a server accepts. Belongs to one event loop."""

    def __init__(
        self,
        sources: Sequence[IdentitySource],
        *,
        keys: KeyRing | None = None,
        tenants: Tenants | None = None,
        certificates: bool = False,
        log_name: Callable[[str], str] = str,
    ) -> None:
        """Checks nothing yet. The first of the sources that knows what a caller shows decides.

        Without `tenants`, all are served. `certificates` says whether the certificate of a connection is a credential;
        `log_name` is what logs call a subject.
        """
        super().__init__("open streams could not be checked", interval_s=CHECK_S)
        self._sources = sources
        self.keys = keys
        self.tenants = tenants
        self.certificates = certificates
        self._log_name = lru_cache(LOG_NAMES_MAX)(log_name)
        self.listeners = Listeners()
        """Called once a second, so that they notice credentials that are no longer valid."""
        self.recent: dict[str | bytes, Principal] = {}
        """Callers authenticated within RECENT_S, by what they show: the certificate, or else the header."""
        for changing in (*sources, *([tenants] if tenants else ())):
            changing.listeners.append(self.recent.clear)
        self._wanted = ", or ".join(source.wanted for source in sources)

    async def authenticate(self, shown: Credentials) -> Principal:
        """The caller.

        Raises:
            UnauthenticatedError: what the caller shows is not valid, or no longer.
            PermissionDeniedError: it is valid, but gives no role here, or its tenant does not exist or is suspended.
        """
        looked_for: set[type[UnknownError]] = set()
        while True:
            try:
                principal = self._identify(shown)
                name = self._log_name(principal.subject)
                return principal if name == principal.subject else replace(principal, log_name=name)
            except UnknownError as unknown:
                if type(unknown) in looked_for:
                    raise unknown.refusal from None
                looked_for.add(type(unknown))
                await unknown.look()

    def remember(self, shown: str | bytes, principal: Principal) -> None:
        """Keeps a caller in `recent` for a moment, right after `authenticate`."""
        if not self.recent:
            asyncio.get_running_loop().call_later(RECENT_S, self.recent.clear)
        if len(self.recent) < RECENT_MAX:
            self.recent[shown] = principal

    def refusal(self, principal: Principal, shown: Credentials) -> MnemonError | None:
        """Why a caller who was authenticated before would not be again, as the same principal; None if it would."""
        try:
            if self._identify(shown) == principal:
                return None
        except TenantSuspendedError as error:
            return error
        except (UnauthenticatedError, PermissionDeniedError, UnknownError):
            pass
        return UnauthenticatedError("the credential of this stream has expired or was revoked")

    def _identify(self, shown: Credentials) -> Principal:
        for source in self._sources:
            if (principal := source.identify(shown)) is not None:
                if self.tenants is not None:
                    self.tenants.require_served(principal.tenant)
                if not principal.bounds.is_narrow:
                    return principal
                return replace(principal, bounds=replace(principal.bounds, holder=principal.subject))
        if shown.bearer:
            raise UnauthenticatedError(
                "the header authorization has no credential that this server accepts, and others are ignored: "
                f"{self._wanted}"
            )
        raise UnauthenticatedError(f"who calls is not known: {self._wanted}")

    async def _turn(self) -> float | None:
        self.listeners.tell()
        return None
