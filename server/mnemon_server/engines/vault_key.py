"""The key of a vault, with which the pages of its databases are encrypted and authenticated."""

import hmac
import logging
import os
import secrets
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.engines.file_errors import translated
from mnemon_server.engines.private import sync

KEY_FILE = "vault.key"
FINGERPRINT_BYTES = 16
_FORMAT, _VERSION = "mnemon-vault-key", "1"
_CHECK_CHARACTERS = 16
_COPIES = 2

log = logging.getLogger(__name__)


class VaultKeyError(ConfigurationError):
    """A vault cannot be read with its key file."""


class KeyLostError(VaultKeyError):
    """The key file is missing."""


class KeyDamagedError(VaultKeyError):
    """The key file is damaged."""


@dataclass(frozen=True, slots=True)
class VaultKey:
    """A key: 32 random bytes."""

    secret: bytes = field(repr=False)

    @property
    def fingerprint(self) -> bytes:
        """16 bytes that identify the key without revealing it. Databases begin with them."""
        return self.derive("fingerprint")[:FINGERPRINT_BYTES]

    def derive(self, purpose: str) -> bytes:
        """A key of 32 bytes for another purpose."""
        return hmac.digest(self.secret, purpose.encode(), "sha256")


def find_key(folder: Path) -> VaultKey | None:
    """The key of the vault in this folder; None without one. Blocks.

    Raises:
        KeyDamagedError: the file does not contain the key that was written.
        ConfigurationError: it cannot be read, or a newer program wrote it.
    """
    found = _secrets(folder / KEY_FILE)
    if found is None:
        return None
    if not found:
        raise KeyDamagedError(
            f"{KEY_FILE} is damaged, and the vault cannot be read without it: "
            "put the file back from a copy, or restore a backup of the vault"
        )
    return VaultKey(found[0])


def has_whole_key(folder: Path) -> bool:
    """Whether both copies of the key are intact; true if the file does not exist. Raises the same as `find_key`."""
    found = _secrets(folder / KEY_FILE)
    return found is None or len(found) == _COPIES


def create_key(folder: Path) -> VaultKey:
    """Makes the key of a vault, durably, unless it exists. Repairs a file if one of its halves is damaged. Blocks.

    The caller has locked the folder.

    Raises:
        KeyDamagedError, ConfigurationError: see find_key.
        StorageFullError, StorageFailedError: the file cannot be written.
    """
    key = find_key(folder)
    if key is not None and has_whole_key(folder):
        return key
    if key is None:
        key = VaultKey(secrets.token_bytes(32))
    else:
        log.warning("%s was damaged, and is rewritten from its second copy of the key", folder / KEY_FILE)
    with translated("write", KEY_FILE):
        draft = folder / f"{KEY_FILE}.new"
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            # Twice, because a single flipped bit would otherwise cost the whole vault.
            file.write(_COPIES * _line(key))
            file.flush()
            os.fsync(descriptor)
        draft.rename(folder / KEY_FILE)
        sync(folder)
    return key


def _secrets(path: Path) -> list[bytes] | None:
    """The intact copies of the key; None if the file does not exist."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"{KEY_FILE} cannot be read: {error.strerror}") from error
    # Split by length, because the line break may be damaged.
    half = len(content) // _COPIES
    return [secret for line in (content[:half], content[half:]) if (secret := _secret_in(line))]


def _line(key: VaultKey) -> bytes:
    text = f"{_FORMAT}/{_VERSION} {key.secret.hex()}"
    return f"{text} {_check(text)}\n".encode()


def _secret_in(line: bytes) -> bytes | None:
    """The key in a line; None if the line is damaged. Raises ConfigurationError if a newer program wrote it."""
    text, _, check = line.decode("ascii", "replace").rpartition(" ")
    if check != f"{_check(text)}\n":
        return None
    name, _, secret = text.partition(" ")
    if name != f"{_FORMAT}/{_VERSION}":
        raise ConfigurationError(
            f"{KEY_FILE} has the format {name!r}, and this program knows {_FORMAT}/{_VERSION}: "
            "a newer Mnemon wrote it; run that version"
        )
    return bytes.fromhex(secret)


def _check(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:_CHECK_CHARACTERS]
