"""Traces of what was erased in access data: bound API keys, and old entries of the audit log."""

import re
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from mnemon_server.domain.access import KEYS_MAX, ApiKey
from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.services.access.keys import KeyRing
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.writing.tombstones import Names

OpenKeys = Callable[[], AbstractAsyncContextManager[KeyRing | None]]
"""Opens the keys of the data folder; None without a file of keys."""


class AccessTraces:
    """The keys of one tenant, and the log of all."""

    def __init__(self, tenant: str, keys: OpenKeys, subjects: Callable[[], Set[str]], offload: Offload) -> None:
        """`subjects` reads the plain-text subjects of the audit log, and blocks."""
        self._tenant = tenant
        self._keys = keys
        self._subjects = subjects
        self._offload = offload

    async def revoke(self, names: Names, erased: Set[bytes]) -> None:
        """Revokes the keys that are bound only to what was erased. Others lose that part of their bounds."""
        async with self._keys() as ring:
            if ring is None:
                return
            for key, left in _bound(self._keys_in(ring), names, erased):
                if left.users != () or left.namespaces != ():
                    await ring.rebind(self._tenant, key.key_id, left)
                else:
                    await ring.revoke(self._tenant, key.key_id, allow_missing=True)

    def _keys_in(self, ring: KeyRing) -> tuple[ApiKey, ...]:
        return ring.list(self._tenant, after=0, limit=KEYS_MAX).items

    async def places(self, names: Names, erased: Set[bytes]) -> list[str]:
        """The places where the name of what was erased remains."""
        async with self._keys() as ring:
            keys = self._keys_in(ring) if ring else ()
            bound = [key.key_id for key, _ in _bound(keys, names, erased)]
            called = [key.key_id for key in keys if not erased.isdisjoint(_words(names, key.name))]
        subjects = await self._offload(self._subjects)
        is_logged = any(names.user(each) in erased for each in subjects)
        return [
            *(f"the API key {each}, which is bound to it and still valid" for each in bound),
            *(f"the name of the API key {each}" for each in called),
            *(["lines of the audit log that an earlier version wrote"] if is_logged else []),
        ]


def _bound(keys: Iterable[ApiKey], names: Names, erased: Set[bytes]) -> Iterator[tuple[ApiKey, Bounds]]:
    """The keys that are bound to what was erased, each with its remaining bounds."""
    for key in keys:
        users, namespaces = key.bounds.users, key.bounds.namespaces
        left = replace(
            key.bounds,
            users=users and tuple(each for each in users if names.user(each) not in erased),
            namespaces=namespaces and tuple(each for each in namespaces if erased.isdisjoint(names.of_namespace(each))),
        )
        if left != key.bounds:
            yield key, left


def _words(names: Names, text: str) -> Iterator[bytes]:
    return map(names.user, {text, *text.split(), *re.findall(r"\w+", text)})
