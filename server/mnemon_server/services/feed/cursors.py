"""Cursors: places in the log of one vault, as opaque text that is safe in a URL and cannot be made up."""

from mnemon_server.domain.errors import InvalidCursorError
from mnemon_server.services.shared.token_seal import TokenSeal

_POSITION_BYTES = 8


class Cursors:
    """Writes and reads the cursors of a log. They outlive restarts, as its epoch does."""

    def __init__(self, epoch: bytes) -> None:
        """Binds them to the log's epoch, which must stay secret."""
        self._seal = TokenSeal(epoch, b"mnemon cursor")

    def write(self, position: int) -> str:
        """The cursor of a position."""
        return self._seal.write(position.to_bytes(_POSITION_BYTES))

    def read(self, text: str) -> int:
        """The position that a cursor stands for.

        Raises:
            InvalidCursorError: it is damaged, made up, or another vault's.
        """
        if (position := self._seal.read(text)) is None:
            raise InvalidCursorError.of(
                "cursor", "must be that of an earlier answer about the same changes, whole and unchanged"
            )
        return int.from_bytes(position)
