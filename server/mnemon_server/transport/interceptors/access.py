"""Who calls, and whether they may: decided by the headers alone, before the request is read."""

import asyncio
from collections.abc import Mapping
from typing import Any

from mnemon_server.domain.access import Principal, Role
from mnemon_server.domain.errors import PermissionDeniedError, UnauthenticatedError
from mnemon_server.services.access.keys import KeyRing
from mnemon_server.transport.interceptors.base import Answer, Call, Context, Method, current_call


class Access:
    """Lets a call pass if its credential is valid and its role suffices; health and reflection are exempt.

    Without keys, everybody may do everything, and calls do not pass through here. Open streams end soon after their
    credential has ended.
    """

    def __init__(self, keys: KeyRing | None, roles: Mapping[str, Role]) -> None:
        self._keys = keys
        self._roles = roles
        self._streams: dict[asyncio.Task[Any], Call] = {}
        if keys is not None:
            keys.listeners.append(self._end_invalid)

    def checked(self, method: Method, inner: Answer) -> Answer:
        """Checks the caller first."""
        if self._keys is None or method.exempt:
            return inner
        keys = self._keys
        # Any caller may learn that a method does not exist.
        required = self._roles.get(method.path, Role.READER)

        async def call(request: Any, context: Context) -> Any:
            record = current_call.get()
            record.principal = keys.authenticate(record.credential)
            _require(record.principal, required)
            return await (inner(request, context) if method.single else self._stream(inner, request, context, record))

        return call

    async def _stream(self, inner: Answer, request: Any, context: Context, record: Call) -> Any:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a handler always runs in a task
        self._streams[task] = record
        try:
            return await inner(request, context)
        except asyncio.CancelledError:
            # Still here: the client or the server ended it, not `_end_invalid`.
            if task in self._streams or context.cancelled():
                raise
            task.uncancel()
        finally:
            self._streams.pop(task, None)
        raise UnauthenticatedError("the credential of this stream has expired or was revoked")

    def _end_invalid(self) -> None:
        assert self._keys is not None  # noqa: S101 - it listens to them
        for task, record in list(self._streams.items()):
            if not self._keys.is_valid(record.principal, record.credential):
                del self._streams[task]
                task.cancel()


def _require(principal: Principal, required: Role) -> None:
    if principal.role < required:
        raise PermissionDeniedError(
            f"this needs the role {required.name.lower()}; your credential has {principal.role.name.lower()}"
        )
