"""Remembers what a credential turned out to be, so that only its first call pays for finding out."""

import hashlib
import secrets
from typing import Generic, TypeVar

T = TypeVar("T")

REMEMBERED_MAX = 10_000
"""Credentials that are remembered; beyond them, the oldest are forgotten."""
_DIGEST_BYTES = 32


class Remembered(Generic[T]):
    """Results about credentials, without the credentials: these are known by a digest, under a key that the
    process never tells. Belongs to one event loop.

    Users of this must check before each use whether a result still holds.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(_DIGEST_BYTES)
        self._found: dict[bytes, T] = {}

    def get(self, credential: str) -> T | None:
        """The result that was kept for it, or None."""
        return self._found.get(self._digest(credential))

    def keep(self, credential: str, found: T) -> T:
        """Keeps what was found out, in the place of what was kept before, and returns it."""
        digest = self._digest(credential)
        self._found.pop(digest, None)
        self._found[digest] = found
        if len(self._found) > REMEMBERED_MAX:
            del self._found[next(iter(self._found))]
        return found

    def clear(self) -> None:
        """Forgets everything."""
        self._found.clear()

    def _digest(self, credential: str) -> bytes:
        # Python's own BLAKE2. Between other work, SHA-256 of OpenSSL takes three times as long: its code is larger.
        return hashlib.blake2b(credential.encode(), key=self._key, digest_size=_DIGEST_BYTES).digest()
