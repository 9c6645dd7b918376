"""The bodies of a segment's frames: as they are, or encrypted, each for its place in its file."""

from struct import Struct

from mnemon_server.engines.encryption import CIPHER_BYTES, Cipher, DecryptionError
from mnemon_server.engines.events.format.frames import Frame, FrameError, FrameType
from mnemon_server.engines.events.format.layout import SegmentHeader

_PLACE = Struct("<BQ")


class Bodies:
    """Encrypts and decrypts the bodies in one file."""

    def __init__(self, header: SegmentHeader, cipher: Cipher | None) -> None:
        """`cipher` is that of the vault, or None without its key. The header says whether the file is encrypted."""
        self._is_encrypted = header.is_encrypted
        # Each file has a key of its own, so bodies cannot be moved to another one.
        self._cipher = cipher.of(header.encode()) if cipher and header.is_encrypted else None

    @property
    def overhead(self) -> int:
        """How much longer bodies are in the file."""
        return CIPHER_BYTES if self._is_encrypted else 0

    def written(self, kind: FrameType, place: int, body: bytes) -> bytes:
        """What is stored for a body.

        Args:
            kind: what it is.
            place: the sequence of an event; the number of a part of the index.
            body: its bytes.
        """
        return body if self._cipher is None else self._cipher.encrypt(body, _PLACE.pack(kind, place))

    def read(self, kind: FrameType, place: int, stored: bytes) -> bytes:
        """The body that was stored.

        Raises:
            FrameError: it was not stored there, or the key is not known.
        """
        if not self._is_encrypted:
            return stored
        if self._cipher is None:
            raise FrameError("the file is encrypted, and its key is not there")
        try:
            return self._cipher.decrypt(stored, _PLACE.pack(kind, place))
        except DecryptionError as error:
            raise FrameError(str(error)) from error

    def event(self, frame: Frame) -> Frame:
        """The event in a frame as it is stored. Raises the same as `read`."""
        if not self._is_encrypted:
            return frame
        body = self.read(FrameType.EVENT, frame.sequence, frame.body)
        return frame._replace(body=body, cipher_bytes=CIPHER_BYTES)
