"""Page tokens: opaque, safe in a URL, and good only for the query and the vault that they were made for."""

import json
from hashlib import blake2b
from typing import Any

from mnemon_server.domain.conversations import ConversationPosition
from mnemon_server.domain.errors import InvalidPageTokenError
from mnemon_server.domain.events import EventPosition
from mnemon_server.services.reading.token_seal import TokenSeal

Place = int | EventPosition | ConversationPosition | tuple[str, ...]
"""Where a page ends: at a position, at an event, at a conversation, or at the labels of a namespace."""


class PageTokens:
    """The page tokens of one query: the one that came with the request, and that of the next page."""

    def __init__(self, key: bytes, request: Any, size_field: str = "page_size") -> None:
        """Binds them to a vault's secret, and to the whole request except for the token itself and the page's size."""
        query = type(request)()
        query.CopyFrom(request)
        query.ClearField("page_token")
        query.ClearField(size_field)
        # With the name of the message: those of two kinds may have the same bytes, but not the same kind of place.
        said = f"{request.DESCRIPTOR.full_name}\0".encode() + query.SerializeToString(deterministic=True)
        self._seal = TokenSeal(blake2b(said, key=key, person=b"mnemon query").digest(), b"mnemon page")
        self._given: str = request.page_token

    def next(self, last: Place | None) -> str:
        """The token of the page after `last`; empty if `last` is None, after the last page."""
        return "" if last is None else self._seal.write(json.dumps(last).encode())

    def position(self) -> int:
        """The position after which the page begins; 0 for the first page. Raises as `_place`."""
        return self._place(0)  # type: ignore[no-any-return]

    def event_position(self) -> EventPosition | None:
        """The event after which the page begins; None for the first page. Raises as `_place`."""
        place = self._place(None)
        return None if place is None else EventPosition(*place)

    def conversation_position(self) -> ConversationPosition | None:
        """The conversation after which the page begins; None for the first page. Raises as `_place`."""
        place = self._place(None)
        return None if place is None else ConversationPosition(*place)

    def labels(self) -> tuple[str, ...]:
        """The labels of the namespace after which the page begins; empty for the first page. Raises as `_place`."""
        return tuple(self._place(()))

    def _place(self, first: Any) -> Any:
        """The content of the token; `first` without a token.

        Raises:
            InvalidPageTokenError: it is damaged or forged, or belongs to another query or another vault.
        """
        if not self._given:
            return first
        if (place := self._seal.read(self._given)) is None:
            raise InvalidPageTokenError.of(
                "page_token",
                "must be the next_page_token of the previous page, with the same filters, scope and view; "
                "leave it empty to start from the first page",
            )
        return json.loads(place)
