"""Page tokens: opaque, safe in a URL, and good only for the query that they were made for."""

import base64
import binascii
from hashlib import blake2b

from mnemon_server.domain.errors import FieldViolation, InvalidPageTokenError

_POSITION_BYTES, _DIGEST_BYTES = 8, 12


def make_page_token(position: int, query: bytes) -> str:
    """The token of the page behind `position`."""
    raw = position.to_bytes(_POSITION_BYTES)
    return base64.urlsafe_b64encode(raw + _digest(raw, query)).rstrip(b"=").decode()


def read_page_token(token: str, query: bytes) -> int:
    """The position that the token stands for; 0, the beginning, for an empty one.

    Raises:
        InvalidPageTokenError: it is damaged, or was made for another query.
    """
    if not token:
        return 0
    try:
        raw = base64.b64decode(token.encode("ascii") + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise _refusal() from None
    position, digest = raw[:_POSITION_BYTES], raw[_POSITION_BYTES:]
    if len(digest) != _DIGEST_BYTES or digest != _digest(position, query):
        raise _refusal()
    return int.from_bytes(position)


def _digest(position: bytes, query: bytes) -> bytes:
    return blake2b(position + query, digest_size=_DIGEST_BYTES, person=b"mnemon page").digest()


def _refusal() -> InvalidPageTokenError:
    return InvalidPageTokenError(
        [
            FieldViolation(
                "page_token",
                "must be the next_page_token of the page before, with the same filters, scope and view; "
                "leave it empty to begin anew",
            )
        ]
    )
