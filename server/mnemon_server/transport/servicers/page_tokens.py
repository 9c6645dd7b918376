"""Page tokens: opaque, safe in a URL, and good only for the query that they were made for."""

import base64
import binascii
from hashlib import blake2b
from typing import Any

from mnemon_server.domain.episodic import EventPosition
from mnemon_server.domain.errors import FieldViolation, InvalidPageTokenError

_POSITION_BYTES, _DIGEST_BYTES = 8, 12
_SEPARATOR = "."


def page_query(request: Any, size_field: str = "page_size") -> bytes:
    """What a page token is bound to: all of the request but the token itself and the size of the page."""
    query = type(request)()
    query.CopyFrom(request)
    query.ClearField("page_token")
    query.ClearField(size_field)
    return bytes(query.SerializeToString(deterministic=True))


def next_page_token(position: int | None, query: bytes) -> str:
    """The token of the page behind `position`; empty where there is none."""
    return "" if position is None else make_page_token(position, query)


def make_page_token(position: int, query: bytes) -> str:
    """The token of the page behind `position`."""
    return _make(position.to_bytes(_POSITION_BYTES), query)


def read_page_token(token: str, query: bytes) -> int:
    """The position that the token stands for; 0, the beginning, for an empty one.

    Raises:
        InvalidPageTokenError: it is damaged, or was made for another query.
    """
    if not token:
        return 0
    position = _read(token, query)
    if len(position) != _POSITION_BYTES:
        raise _refusal()
    return int.from_bytes(position)


def next_event_token(position: EventPosition | None, query: bytes) -> str:
    """The token of the page of events behind `position`; empty where there is none."""
    if position is None:
        return ""
    return _make(position.time_us.to_bytes(_POSITION_BYTES, signed=True) + position.event_id.encode(), query)


def read_event_token(token: str, query: bytes) -> EventPosition | None:
    """The position that the token stands for; None, the beginning, for an empty one.

    Raises:
        InvalidPageTokenError: it is damaged, or was made for another query.
    """
    if not token:
        return None
    position = _read(token, query)
    if len(position) < _POSITION_BYTES:
        raise _refusal()
    time_us = int.from_bytes(position[:_POSITION_BYTES], signed=True)
    try:
        return EventPosition(time_us, position[_POSITION_BYTES:].decode())
    except UnicodeDecodeError:
        raise _refusal() from None


def next_namespace_token(last: tuple[str, ...] | None, query: bytes) -> str:
    """The token of the page of namespaces behind `last`; empty where there is none."""
    # No label holds the separator, so that each label comes back as it was.
    return "" if last is None else _make(_SEPARATOR.join(last).encode(), query)


def read_namespace_token(token: str, query: bytes) -> tuple[str, ...]:
    """The labels that the token stands for; none, the beginning, for an empty one.

    Raises:
        InvalidPageTokenError: it is damaged, or was made for another query.
    """
    if not token:
        return ()
    try:
        return tuple(_read(token, query).decode().split(_SEPARATOR))
    except UnicodeDecodeError:
        raise _refusal() from None


def _make(position: bytes, query: bytes) -> str:
    return base64.urlsafe_b64encode(position + _digest(position, query)).rstrip(b"=").decode()


def _read(token: str, query: bytes) -> bytes:
    try:
        raw = base64.b64decode(token.encode("ascii") + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise _refusal() from None
    position, digest = raw[:-_DIGEST_BYTES], raw[-_DIGEST_BYTES:]
    if len(digest) != _DIGEST_BYTES or digest != _digest(position, query):
        raise _refusal()
    return position


def _digest(position: bytes, query: bytes) -> bytes:
    # The length keeps position and query apart.
    said = len(position).to_bytes(4) + position + query
    return blake2b(said, digest_size=_DIGEST_BYTES, person=b"mnemon page").digest()


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
