"""Authentication and authorization, by the headers alone, before the request is read."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mnemon_server.domain.access import Permission, Principal, Role
from mnemon_server.domain.errors import MnemonError, PermissionDeniedError
from mnemon_server.services.access.identities import Identities
from mnemon_server.transport.interceptors.base import Answer, Call, Exchange, Method, current_call

Admit = Callable[[Call, Exchange], Awaitable[None] | None]
"""Admits a call or raises the refusal. Returns an awaitable if the caller has to be authenticated first."""


class Access:
    """Lets a call pass if its credential, role and bounds suffice; health and reflection are exempt.

    Without identities, everybody may do everything, and calls do not pass through here. Open streams end soon after
    their credential has ended.
    """

    def __init__(self, identities: Identities | None, permissions: Mapping[str, Permission]) -> None:
        self._identities = identities
        self._permissions = permissions
        self._streams: dict[asyncio.Task[Any], Call] = {}
        self._refusals: dict[asyncio.Task[Any], MnemonError] = {}
        """Why streams end that are being ended here."""
        if identities is not None:
            identities.listeners.append(self._end_invalid)

    def of(self, method: Method) -> Admit | None:
        """The check that precedes every other step of a method; None for a method open to all callers."""
        if self._identities is None or method.exempt:
            return None
        identities, recent, certificates = self._identities, self._identities.recent, self._identities.certificates
        # Any caller may learn that a method does not exist.
        permission = self._permissions.get(method.path, Permission(Role.READER, open_to_operators=True))
        allowed = tuple(role for role in Role if permission.allows(role))

        # A plain function: a coroutine would double the cost of this check.
        def admit(call: Call, context: Exchange) -> Awaitable[None] | None:
            if certificates and not call.bearer:
                call.certificate = _certificate(context)
            shown = call.certificate or call.authorization
            principal = recent.get(shown)
            if principal is None:
                return examine(call, shown)
            enter(call, principal)
            return None

        async def examine(call: Call, shown: str | bytes) -> None:
            principal = await identities.authenticate(call.credentials)
            identities.remember(shown, principal)
            enter(call, principal)

        def enter(call: Call, principal: Principal) -> None:
            call.principal, call.is_known = principal, True
            if principal.role not in allowed or (permission.whole_tenant and principal.bounds):
                raise _refusal(principal, permission)

        return admit

    def concerns_tenant(self, method: Method) -> bool:
        """Whether a method concerns the whole tenant."""
        permission = self._permissions.get(method.path)
        return permission is not None and permission.whole_tenant

    def watched(self, method: Method, inner: Answer) -> Answer:
        """The answer. A stream ends when its credential does."""
        if self._identities is None or method.exempt or method.single:
            return inner

        async def stream(request: Any, context: Exchange) -> Any:
            task = asyncio.current_task()
            assert task is not None  # noqa: S101 - a handler always runs in a task
            self._streams[task] = current_call.get()
            try:
                return await inner(request, context)
            except asyncio.CancelledError:
                # Without a refusal, the client or the server ended it.
                refusal = self._refusals.get(task)
                if refusal is None or context.cancelled():
                    raise
                task.uncancel()
            finally:
                self._streams.pop(task, None)
                self._refusals.pop(task, None)
            raise refusal

        return stream

    def _end_invalid(self) -> None:
        assert self._identities is not None  # noqa: S101 - it listens to them
        for task, record in list(self._streams.items()):
            if refusal := self._identities.refusal(record.principal, record.credentials):
                del self._streams[task]
                self._refusals[task] = refusal
                task.cancel()


def _refusal(principal: Principal, permission: Permission) -> PermissionDeniedError:
    if permission.allows(principal.role):
        return PermissionDeniedError("this concerns the whole tenant; your credential is bound to users or namespaces")
    return PermissionDeniedError(
        f"this needs the role {permission.role.name.lower()}; your credential has {principal.role.name.lower()}"
    )


def _certificate(context: Exchange) -> bytes:
    """The certificate of the client, which TLS has verified; empty without one."""
    found: bytes = next(iter(context.auth_context().get("x509_pem_cert", ())), b"")
    return found
