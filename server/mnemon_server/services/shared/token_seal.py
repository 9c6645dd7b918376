"""Opaque tokens: places in what a vault keeps, as text that is safe in a URL and that only its key can make."""

import base64
import binascii
import hmac
from hashlib import blake2b

_DIGEST_BYTES = 16


class TokenSeal:
    """Writes and reads tokens. One that was damaged, made up, or made with another key or for another purpose is none.

    A token hides nothing: whoever holds it can read the place, but cannot make a token of another one.
    """

    def __init__(self, key: bytes, purpose: bytes) -> None:
        """`key` must stay secret, and is at most 64 bytes long; `purpose` is at most 16."""
        self._key = key
        self._purpose = purpose

    def write(self, place: bytes) -> str:
        """The token of a place."""
        return base64.urlsafe_b64encode(place + self._digest(place)).rstrip(b"=").decode()

    def read(self, token: str) -> bytes | None:
        """The place that a token stands for; None where it is no token of this seal."""
        try:
            raw = base64.b64decode(token.encode("ascii") + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (UnicodeEncodeError, binascii.Error):
            return None
        place, digest = raw[:-_DIGEST_BYTES], raw[-_DIGEST_BYTES:]
        return place if hmac.compare_digest(digest, self._digest(place)) else None

    def _digest(self, place: bytes) -> bytes:
        return blake2b(place, digest_size=_DIGEST_BYTES, key=self._key, person=self._purpose).digest()
