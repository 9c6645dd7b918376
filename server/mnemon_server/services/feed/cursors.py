"""Cursors: positions in the log of one vault, as opaque text that is safe in a URL and cannot be forged."""

from mnemon_server.domain.errors import InvalidCursorError
from mnemon_server.services.reading.token_seal import TokenSeal

_POSITION_BYTES = 8


class Cursors:
    """Writes and reads the cursors of a log. They stay valid after a restart, because the epoch stays the same."""

    def __init__(self, epoch: bytes) -> None:
        """Seals the cursors with the log's epoch, which must stay secret."""
        self._seal = TokenSeal(epoch, b"mnemon cursor")

    def write(self, position: int) -> str:
        """The cursor of a position."""
        return self._seal.write(position.to_bytes(_POSITION_BYTES))

    def read(self, text: str) -> int:
        """The position that a cursor stands for.

        Raises:
            InvalidCursorError: it is damaged, forged, or from another vault.
        """
        if (position := self._seal.read(text)) is None:
            raise InvalidCursorError.of(
                "cursor", "must be an unchanged cursor from an earlier answer about the same vault"
            )
        return int.from_bytes(position)
