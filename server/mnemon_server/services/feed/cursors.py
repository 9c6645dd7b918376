"""Cursors: places in the log of one vault, as opaque text that is safe in a URL and cannot be made up."""

import base64
import binascii
import hmac
from hashlib import blake2b

from mnemon_server.domain.errors import FieldViolation, InvalidCursorError

# Together a multiple of three, so that base64 needs no padding.
_POSITION_BYTES, _DIGEST_BYTES = 8, 16


class Cursors:
    """Writes and reads the cursors of a log. They outlive restarts, as its epoch does."""

    def __init__(self, epoch: bytes) -> None:
        """Binds them to the log's epoch, which must stay secret."""
        self._epoch = epoch

    def write(self, position: int) -> str:
        """The cursor of a position."""
        raw = position.to_bytes(_POSITION_BYTES)
        return base64.urlsafe_b64encode(raw + self._digest(raw)).decode()

    def read(self, text: str) -> int:
        """The position that a cursor stands for.

        Raises:
            InvalidCursorError: it is damaged, made up, or another vault's.
        """
        try:
            raw = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
        except (UnicodeEncodeError, binascii.Error):
            raise _refusal() from None
        position, digest = raw[:_POSITION_BYTES], raw[_POSITION_BYTES:]
        if not hmac.compare_digest(digest, self._digest(position)):
            raise _refusal()
        return int.from_bytes(position)

    def _digest(self, position: bytes) -> bytes:
        return blake2b(position, digest_size=_DIGEST_BYTES, key=self._epoch, person=b"mnemon cursor").digest()


def _refusal() -> InvalidCursorError:
    return InvalidCursorError(
        [FieldViolation("cursor", "must be that of an earlier answer about the same events, whole and unchanged")]
    )
