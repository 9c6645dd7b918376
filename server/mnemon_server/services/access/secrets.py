"""The secrets of API keys: `mn_<id of the key>_<256 random bits>_<tenant>`, without a tenant for operators.

The tenant is there for proxies that send a tenant's calls to its server. Here only the whole secret counts: the server
compares its digest, and takes the tenant from the key. Secrets that name no tenant are valid as well.
"""

import hashlib
import hmac
import re
import secrets
from typing import NamedTuple

from mnemon_server.domain.access import TENANT_ID

PREFIX = "mn"
_SECRET = re.compile(rf"{PREFIX}_([0-9a-f]{{16}})_[A-Za-z0-9_-]{{43}}(?:_{TENANT_ID.pattern})?")
"""It can be read in one way only, since what precedes the tenant has a fixed length."""


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
    """What the server keeps of a secret."""
    return hashlib.sha256(text.encode()).digest()


def is_secret_of(digest: bytes, kept: bytes | None) -> bool:
    """Whether a digest is the one that was kept. Takes as long whatever they are."""
    return kept is not None and hmac.compare_digest(digest, kept)
