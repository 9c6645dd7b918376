"""The contract of a store of API keys."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from mnemon_server.domain.access import ApiKey
from mnemon_server.domain.access.bounds import Bounds


@dataclass(frozen=True, slots=True)
class StoredKey:
    """An API key with the digests of its secrets, 32 bytes each."""

    position: int
    """Its place in the order of creation."""
    key: ApiKey
    digest: bytes
    previous_digest: bytes | None = None
    """The digest of the secret before, which `key.previous_expires_at` ends."""


class KeyStore(Protocol):
    """Keeps API keys. Several processes may have it open; any thread may call it, and calls block.

    All methods raise StorageFailedError if the disk fails, and StorageFullError if it is full.
    """

    def page_key(self) -> bytes:
        """32 random bytes that are made with the store, and never change."""

    def version(self) -> int:
        """A number that differs once any process has changed a key, except for the time of its last use."""

    def may_have_changed(self) -> bool:
        """Whether `version` may return something else than the last time. Takes microseconds, and does not block."""

    def read(self) -> Sequence[StoredKey]:
        """All keys in the order of their creation."""

    def add(self, key: ApiKey, digest: bytes, *, tenant_keys_max: int) -> bool:
        """Adds a key; returns False if its tenant already has this many."""

    def rotate(self, tenant: str, key_id: str, digest: bytes, previous_expires_at: datetime | None) -> ApiKey | None:
        """Gives a key another secret. Returns the key; None if the tenant has no such key.

        The secret before remains valid until `previous_expires_at`; None ends it now. Older ones end.
        """

    def remove(self, tenant: str, key_id: str) -> bool:
        """Removes a key; returns False if the tenant has no such key."""

    def rebind(self, tenant: str, key_id: str, bounds: Bounds) -> bool:
        """Gives a key other bounds; returns False if the tenant has no such key."""

    def note_uses(self, last_used_at: Mapping[str, datetime]) -> None:
        """Keeps when keys were last used, by the id of the key."""
