"""API keys: makes and ends them, and tells who calls with one."""

import asyncio
import bisect
import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple, Self

from mnemon_server.domain.access import (
    KEYS_MAX,
    OVERLAP_DEFAULT,
    TENANT_ID,
    ApiKey,
    Credentials,
    NewSecret,
    Principal,
    Role,
    check_key,
    check_overlap,
)
from mnemon_server.domain.access.bounds import UNBOUNDED, Bounds
from mnemon_server.domain.access.errors import KeyNotFoundError
from mnemon_server.domain.clock import Clock, system_clock
from mnemon_server.domain.errors import InvalidOperationError, MnemonError, UnauthenticatedError
from mnemon_server.domain.records import PageOf
from mnemon_server.engines.promises.keys import KeyStore, StoredKey
from mnemon_server.services.access.remembered import Remembered
from mnemon_server.services.background.listeners import Listeners
from mnemon_server.services.background.periodic import Periodic

# The secrets of API keys: `mn_<id of the key>_<256 random bits>_<tenant>`, without a tenant for operators.


PREFIX = "mn"
_SECRET = re.compile(rf"{PREFIX}_([0-9a-f]{{16}})_[A-Za-z0-9_-]{{43}}(?:_{TENANT_ID.pattern})?")
"""It is unambiguous, because the part before the tenant has a fixed length."""


class Secret(NamedTuple):
    """A secret, and what the server keeps of it."""

    key_id: str
    text: str
    digest: bytes
    """32 bytes. A slow hash would protect guessable passwords; against 256 random bits it would only cost time."""


def new_key_id() -> str:
    """The id of a new key, 16 hexadecimal digits."""
    return secrets.token_hex(8)


def new_secret(tenant: str, key_id: str) -> Secret:
    """A new secret of a key of a tenant, or of an operator."""
    text = "_".join(filter(None, (PREFIX, key_id, secrets.token_urlsafe(32), tenant)))
    return Secret(key_id, text, digest_of(text))


def key_id_of(text: str) -> str | None:
    """The key that a secret belongs to, if it is one; None if the text cannot be a secret."""
    match = _SECRET.fullmatch(text)
    return match and match[1]


def digest_of(text: str) -> bytes:
    """The stored digest of a secret."""
    return hashlib.sha256(text.encode()).digest()


def is_secret_of(digest: bytes, kept: bytes | None) -> bool:
    """Whether a digest equals the stored one, in constant time."""
    return kept is not None and hmac.compare_digest(digest, kept)


REFRESH_S = 0.2
"""How often the keys are read again if another process changed them; a program that uses a new one starts in longer."""
USES = timedelta(minutes=1)
"""How often the times of last use are stored."""
_NO_KEY = "send a valid API key as the header `authorization: Bearer KEY`"
_LIKE_A_KEY = f"{PREFIX}_"

log = logging.getLogger(__name__)


class _Opened(NamedTuple):
    """The caller behind a secret, until its key changes."""

    principal: Principal
    key_id: str
    ends_at: datetime | None


class KeyRing(Periodic):
    """All keys of a server, in memory. Follows changes that other processes make. Belongs to one event loop.

    While the file cannot be read, the keys that were read last are valid.
    """

    wanted = _NO_KEY

    def __init__(self, store: KeyStore, *, clock: Clock = system_clock, refresh_s: float = REFRESH_S) -> None:
        """Reads nothing yet."""
        super().__init__("changes of API keys could not be read", interval_s=refresh_s)
        self._store = store
        self._clock = clock
        self._version = -1
        self.page_key = b""
        """The secret that seals page tokens of lists of keys; a restart does not change it."""
        self._keys: Mapping[str, StoredKey] = {}
        self._opened: Remembered[_Opened] = Remembered()
        """The callers behind secrets of `_keys`."""
        self._used: dict[str, datetime] = {}
        """When keys were last used since the start, to the second."""
        self._stored_at = clock()
        self.listeners = Listeners()
        """Called after each change."""

    async def __aenter__(self) -> Self:
        self.page_key = await asyncio.to_thread(self._store.page_key)
        await self._refresh()
        return await super().__aenter__()

    async def __aexit__(self, *exception: object) -> None:
        await super().__aexit__(*exception)
        try:
            await self._store_uses()
        except MnemonError as problem:
            log.warning("the times of the last use of keys could not be stored: %s", problem)

    @property
    def is_empty(self) -> bool:
        """Whether no key exists, so that every call is refused."""
        return not self._keys

    def authenticate(self, secret: str) -> Principal:
        """The caller with this secret.

        Raises:
            UnauthenticatedError: it is not a secret of a key, or no longer.
        """
        opened, now = self._opened.get(secret), self._clock()
        if opened is None or (opened.ends_at is not None and now >= opened.ends_at):
            opened = self._opened.keep(secret, self._open(secret, now))
        self._used[opened.key_id] = now
        return opened.principal

    def identify(self, shown: Credentials) -> Principal | None:
        """As `authenticate`; None if the caller shows no API key."""
        return self.authenticate(shown.bearer) if shown.bearer.startswith(_LIKE_A_KEY) else None

    async def create(
        self, tenant: str, name: str, role: Role, ttl: timedelta | None = None, bounds: Bounds = UNBOUNDED
    ) -> NewSecret:
        """Makes a key.

        Raises:
            InvalidArgumentError: the tenant cannot have such a key.
            InvalidOperationError: the tenant has too many keys.
        """
        check_key(tenant, name, role, ttl, bounds)
        now = self._clock()
        secret = new_secret(tenant, new_key_id())
        expires_at = now + ttl if ttl is not None else None
        key = ApiKey(secret.key_id, tenant, name, role, now, expires_at=expires_at, bounds=bounds)
        if not await asyncio.to_thread(self._store.add, key, secret.digest, tenant_keys_max=KEYS_MAX):
            raise InvalidOperationError(f"the tenant has {KEYS_MAX:,} keys, the most it can have; revoke one first")
        await self._refresh()
        return NewSecret(key, secret.text)

    async def rotate(self, tenant: str, key_id: str, overlap: timedelta = OVERLAP_DEFAULT) -> NewSecret:
        """Gives a key a new secret; the one before remains valid for `overlap`.

        Raises:
            InvalidArgumentError: the overlap is invalid.
            KeyNotFoundError: the tenant has no such key.
        """
        check_overlap(overlap)
        secret = new_secret(tenant, key_id)
        previous_expires_at = self._clock() + overlap if overlap else None
        key = await asyncio.to_thread(self._store.rotate, tenant, key_id, secret.digest, previous_expires_at)
        if key is None:
            raise KeyNotFoundError(key_id)
        await self._refresh()
        return NewSecret(key, secret.text)

    async def revoke(self, tenant: str, key_id: str, *, allow_missing: bool = False) -> None:
        """Ends a key.

        Raises:
            KeyNotFoundError: the tenant has no such key, and `allow_missing` is false.
        """
        removed = await asyncio.to_thread(self._store.remove, tenant, key_id)
        if not removed and not allow_missing:
            raise KeyNotFoundError(key_id)
        await self._refresh()

    async def rebind(self, tenant: str, key_id: str, bounds: Bounds) -> None:
        """Gives a key other bounds; without a key of this id, it does nothing."""
        await asyncio.to_thread(self._store.rebind, tenant, key_id, bounds)
        await self._refresh()

    def has(self, tenant: str, key_id: str) -> bool:
        """Whether the tenant has a key with this id."""
        stored = self._keys.get(key_id)
        return stored is not None and stored.key.tenant == tenant

    def list(self, tenant: str, *, after: int, limit: int) -> PageOf[ApiKey]:
        """The keys of a tenant after a position, in the order of their creation."""
        mine = [each for each in self._keys.values() if each.key.tenant == tenant]
        start = bisect.bisect_right(mine, after, key=lambda each: each.position)
        page = mine[start : start + limit]
        has_more = start + limit < len(mine)
        keys = tuple(self._with_last_use(each.key) for each in page)
        return PageOf(keys, page[-1].position if has_more else None)

    def _open(self, secret: str, now: datetime) -> _Opened:
        key_id = key_id_of(secret)
        stored = self._keys.get(key_id) if key_id else None
        if stored is None:
            raise UnauthenticatedError(_NO_KEY)
        key, digest = stored.key, digest_of(secret)
        ends = [] if key.expires_at is None else [key.expires_at]
        if not is_secret_of(digest, stored.digest):
            until = key.previous_expires_at
            if not is_secret_of(digest, stored.previous_digest) or until is None or now >= until:
                raise UnauthenticatedError(_NO_KEY)
            ends.append(until)
        if key.expires_at is not None and now >= key.expires_at:
            raise UnauthenticatedError(f"the key {key.key_id} has expired; {_NO_KEY}")
        return _Opened(key.principal, key.key_id, min(ends, default=None))

    def _with_last_use(self, key: ApiKey) -> ApiKey:
        used_at = self._used.get(key.key_id)
        return key if used_at is None else replace(key, last_used_at=_to_the_minute(used_at))

    async def _turn(self) -> float | None:
        # Asking the store itself takes a thread and half a millisecond, five times a second.
        if self._store.may_have_changed():
            await self._refresh()
        if self._clock() - self._stored_at >= USES:
            await self._store_uses()
        return None

    async def _refresh(self) -> None:
        async with self._unstoppable:
            version = await asyncio.to_thread(self._store.version)
            if version != self._version:
                stored = await asyncio.to_thread(self._store.read)
                self._keys = {each.key.key_id: each for each in stored}
                self._opened.clear()
                self._used = {key_id: time for key_id, time in self._used.items() if key_id in self._keys}
                self._version = version
                self.listeners.tell()

    async def _store_uses(self) -> None:
        async with self._unstoppable:
            since, self._stored_at = self._stored_at, self._clock()
            unstored = {key_id: _to_the_minute(time) for key_id, time in self._used.items() if time >= since}
            if unstored:
                await asyncio.to_thread(self._store.note_uses, unstored)


def _to_the_minute(time: datetime) -> datetime:
    return time.replace(second=0, microsecond=0)
