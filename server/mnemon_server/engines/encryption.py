"""Encrypts and authenticates data with AES-256-GCM: keys, parts of files, and whole files.

The result is a random nonce of 12 bytes, the ciphertext, and a tag of 16 bytes. See NIST SP 800-38D.
"""

import os
from collections.abc import Iterator
from functools import cached_property
from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

CIPHER_BYTES = 28
"""How much longer encrypted data is."""
_NONCE_BYTES = 12
_MAGIC = b"MNEMAEAD"
_PART_BYTES = 64 << 20
_PLACE = Struct("<Q?")


class DecryptionError(Exception):
    """The data is not what was encrypted with this key for this place."""


class Cipher:
    """Encrypts and decrypts with one key of 32 bytes. Any thread may call any method."""

    def __init__(self, key: bytes, *, is_for_new: bool = True) -> None:
        """`is_for_new` says whether new files are encrypted. Those that are can be read in any case."""
        self._key = key
        self.is_for_new = is_for_new

    @cached_property
    def _cipher(self) -> "AESGCM":
        # Only here, because servers that encrypt nothing need not wait for the import.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(self._key)

    def encrypt(self, data: bytes, place: bytes) -> bytes:
        """The encrypted data. `place` says what it is; it is authenticated, and not stored."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, data, place)

    def decrypt(self, data: bytes, place: bytes) -> bytes:
        """The data that was encrypted for this place.

        Raises:
            DecryptionError: it was not.
        """
        try:
            return self._cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], place)
        except Exception as error:
            from cryptography.exceptions import InvalidTag

            # A nonce that is cut off is a ValueError.
            if not isinstance(error, InvalidTag | ValueError):
                raise
            raise DecryptionError("it is not what was encrypted with this key") from error

    def encrypt_file(self, content: bytes) -> bytes:
        """The parts of an encrypted file with this content."""
        return b"".join([_MAGIC, *(self.encrypt(part, place) for part, place in _parts(content, _PART_BYTES))])

    def decrypt_file(self, content: bytes) -> bytes:
        """The content of an encrypted file.

        Raises:
            DecryptionError: it is not an encrypted file, is damaged, or has another key.
        """
        if not is_encrypted(content):
            raise DecryptionError("the file is not encrypted")
        parts = _parts(content[len(_MAGIC) :], _PART_BYTES + CIPHER_BYTES)
        return b"".join([self.decrypt(part, place) for part, place in parts])


def is_encrypted(content: bytes) -> bool:
    """Whether the file with this content is an encrypted one."""
    return content[: len(_MAGIC)] == _MAGIC


def _parts(content: bytes, size: int) -> Iterator[tuple[bytes, bytes]]:
    """The parts of a file, each with its number and whether it is the last, so that none can be moved or left out."""
    starts = range(0, max(1, len(content)), size)
    for number, start in enumerate(starts):
        yield content[start : start + size], _PLACE.pack(number, number == len(starts) - 1)
