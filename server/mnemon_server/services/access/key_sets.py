"""The public keys with which issuers sign their tokens, from a file or a URL."""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self

import structlog
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK
from jwt.exceptions import PyJWKError, PyJWTError

from mnemon_server.domain.clock import Clock, system_clock
from mnemon_server.domain.errors import UnauthenticatedError
from mnemon_server.endpoints.client import EndpointClient, EndpointError, EndpointSettings
from mnemon_server.services.access.unknown import UnknownError
from mnemon_server.services.background.periodic import Periodic

SET_BYTES_MAX = 1 << 20
FETCH_S = 5.0
"""The most that fetching a set may take."""
KEYS_MAX = 100
LOOK_INTERVAL = timedelta(minutes=1)
"""How often a set is read for a key that it does not have: otherwise, invented ids would make us call for ever."""
RETRY_S = 15.0
"""The most until another attempt after one that failed."""
FILE_S = 1.0
"""How often a file is read."""
RSA_BITS_MIN = 2048

ALGORITHMS = {("RSA", ""): "RS256", ("EC", "P-256"): "ES256", ("OKP", "Ed25519"): "EdDSA"}
"""The algorithms of a key, by its type and curve. The token does not decide."""

_log = structlog.get_logger()


class KeySetError(Exception):
    """A set cannot be read. The message contains nothing of it."""


class UnknownKeyError(UnknownError):
    """A token was signed with a key that the set does not have, or not yet."""

    def __init__(self, key_set: "KeySet", key_id: str) -> None:
        refusal = UnauthenticatedError("the token is signed with a key that its issuer does not publish")
        super().__init__(refusal, lambda: key_set.look_for(key_id))


class KeySet(Periodic):
    """The keys of one issuer (JWKS), read in the background. Belongs to one event loop.

    While they cannot be read, those that were read last are valid, for a limited time.
    """

    def __init__(
        self,
        read: Callable[[], Any],
        place: str,
        *,
        refresh_s: float,
        stale_s: float,
        is_unchanged: Callable[[], bool] = lambda: False,
        clock: Clock = system_clock,
    ) -> None:
        """Reads nothing yet.

        `read` returns the set as a JSON value, in a thread, or raises KeySetError. `is_unchanged` says within
        microseconds whether the set is known to be what was read last. `place` is for the log; for the rest, see
        KeySource.
        """
        super().__init__(f"the keys at {place} could not be read", interval_s=refresh_s)
        self._read, self._place, self._clock = read, place, clock
        self._is_unchanged = is_unchanged
        self._stale = timedelta(seconds=stale_s)
        self._stale_at: datetime | None = None
        """When the keys that were read last end; None before they were read."""
        self._looked_at: datetime | None = None
        self._failed = False
        self._entries: Any = None
        self._reading, self._was_read = asyncio.Lock(), asyncio.Event()
        self.keys: Mapping[str, PyJWK] = {}
        """By their ids. Another object whenever the set has changed."""
        self.on_change: Callable[[], None] = lambda: None
        """Called then."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self._was_read.wait()
        return self

    def is_usable_at(self, now: datetime) -> bool:
        """Whether the keys were read, not too long before."""
        return self._stale_at is not None and now < self._stale_at

    def key(self, key_id: str) -> PyJWK:
        """A key of the issuer.

        Raises:
            UnknownKeyError: the set does not have it.
            UnauthenticatedError: the set could not be read for too long.
        """
        if self._stale_at is None or (key_id in self.keys and not self.is_usable_at(self._clock())):
            raise UnauthenticatedError("the keys of the token's issuer could not be read, or not for too long a time")
        try:
            return self.keys[key_id]
        except KeyError:
            raise UnknownKeyError(self, key_id) from None

    async def look_for(self, key_id: str) -> None:
        """Reads the set if it does not have the key, at most once a minute."""
        async with self._reading:
            now = self._clock()
            if key_id in self.keys or (self._looked_at is not None and now < self._looked_at + LOOK_INTERVAL):
                return
            self._looked_at = now
            await self._refresh()

    async def _turn(self) -> float | None:
        async with self._reading:
            await self._refresh()
        self._was_read.set()
        return RETRY_S if self._failed else None

    async def _refresh(self) -> None:
        if not self._failed and self._is_unchanged():
            self._stale_at = self._clock() + self._stale
            return
        try:
            entries = _entries_of(await asyncio.to_thread(self._read))
        except KeySetError as error:
            if not self._failed:
                _log.warning("the keys of an issuer cannot be read", place=self._place, error=str(error))
            self._failed = True
            return
        if self._failed:
            _log.info("the keys of an issuer can be read again", place=self._place)
        self._failed, self._stale_at = False, self._clock() + self._stale
        if entries != self._entries:
            self._entries, self.keys = entries, _keys_of(entries)
            self.on_change()
            _log.info("an issuer has these keys", place=self._place, key_ids=sorted(self.keys))


def read_file(path: Path) -> Any:
    """The set in a file. Blocks.

    Raises:
        KeySetError: it cannot be read, or is not JSON.
    """
    try:
        with path.open("rb") as file:
            content = file.read(SET_BYTES_MAX + 1)
        if len(content) > SET_BYTES_MAX:
            raise KeySetError(f"{path} has more than {SET_BYTES_MAX:,} bytes")
        return json.loads(content)
    except OSError as error:
        raise KeySetError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise KeySetError(f"{path} is not JSON") from error


def fetch(settings: EndpointSettings) -> Any:
    """The set at a URL. Blocks.

    Raises:
        KeySetError: it cannot be fetched, or is not JSON.
    """
    try:
        # Opened each time: minutes pass in between.
        with closing(EndpointClient(settings)) as client:
            return client.get()
    except EndpointError as error:
        raise KeySetError(str(error)) from error


def _entries_of(value: Any) -> list[Any]:
    entries = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(entries, list) or len(entries) > KEYS_MAX:
        raise KeySetError(f'it is not a key set: {{"keys": [...]}} with at most {KEYS_MAX} keys')
    return entries


def _keys_of(entries: list[Any]) -> dict[str, PyJWK]:
    """The keys that may sign tokens. Others, such as those for encryption, are left out."""
    keys: dict[str, PyJWK] = {}
    for entry in entries:
        if isinstance(entry, dict) and (key := _signing_key(entry)) is not None:
            keys.setdefault(entry["kid"], key)
    return keys


def _signing_key(entry: Mapping[str, Any]) -> PyJWK | None:
    key_id, algorithm = entry.get("kid"), _algorithm_of(entry)
    if not isinstance(key_id, str) or not key_id or algorithm is None:
        return None
    try:
        # Without what is private, if somebody has published it.
        public = {name: value for name, value in entry.items() if name in ("kty", "crv", "n", "e", "x", "y")}
        key = PyJWK(public, algorithm)
    except (PyJWKError, PyJWTError, ValueError, TypeError):
        return None
    if isinstance(key.key, RSAPublicKey) and key.key.key_size < RSA_BITS_MIN:
        return None
    return key


def _algorithm_of(entry: Mapping[str, Any]) -> str | None:
    """The algorithm of the key; None if it may not sign tokens for us."""
    algorithm = ALGORITHMS.get((str(entry.get("kty")), str(entry.get("crv", ""))))
    is_ours = entry.get("use", "sig") == "sig" and entry.get("alg", algorithm) == algorithm
    return algorithm if is_ours else None
