"""Page tokens: opaque, safe in a URL, and good only for the query that they were made for."""

import base64
import binascii
from hashlib import blake2b
from typing import Any

from mnemon_server.domain.errors import FieldViolation, InvalidPageTokenError

_POSITION_BYTES, _DIGEST_BYTES = 8, 12


def page_query(request: Any) -> bytes:
    """What a page token is bound to: all of the request but the token itself and the size of the page."""
    query = type(request)()
    query.CopyFrom(request)
    query.ClearField("page_token")
    query.ClearField("page_size")
    return bytes(query.SerializeToString(deterministic=True))


def next_page_token(position: int | None, query: bytes) -> str:
    """The token of the page behind `position`; empty where there is none."""
    return "" if position is None else make_page_token(position, query)


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
