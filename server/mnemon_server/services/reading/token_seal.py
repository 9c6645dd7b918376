"""Opaque tokens: positions in the data of a vault, as text that is safe in a URL and cannot be forged."""

import base64
import binascii
import hmac
from hashlib import blake2b

_DIGEST_BYTES = 16


class TokenSeal:
    """Writes and reads tokens. A token is valid only if it is unchanged and was made with this key and this purpose.

    A token is signed, not encrypted: its holder can read the position, but cannot make a token for another one.
    """

    def __init__(self, key: bytes, purpose: bytes) -> None:
        """`key` must stay secret, and has at most 64 bytes; `purpose` has at most 16."""
        self._key = key
        self._purpose = purpose

    def write(self, place: bytes) -> str:
        """The token of a position."""
        return base64.urlsafe_b64encode(place + self._digest(place)).rstrip(b"=").decode()

    def read(self, token: str) -> bytes | None:
        """The position that a token stands for; None if the token is invalid."""
        try:
            raw = base64.b64decode(token.encode("ascii") + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (UnicodeEncodeError, binascii.Error):
            return None
        place, digest = raw[:-_DIGEST_BYTES], raw[-_DIGEST_BYTES:]
        return place if hmac.compare_digest(digest, self._digest(place)) else None

    def _digest(self, place: bytes) -> bytes:
        return blake2b(place, digest_size=_DIGEST_BYTES, key=self._key, person=self._purpose).digest()
