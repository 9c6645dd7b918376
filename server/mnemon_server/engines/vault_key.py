"""The key of a vault, with which the pages of its databases are encrypted and authenticated."""

import hmac
import logging
import os
import secrets
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from mnemon_server.domain.damage import VaultDamagedError
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.engines.encryption import Cipher
from mnemon_server.engines.file_errors import translated
from mnemon_server.engines.master_keys import NO_MASTER_KEYS, EncryptedKey, MasterKeys, VaultKeyError
from mnemon_server.engines.private import refused, sync

KEY_FILE = "vault.key"
FINGERPRINT_BYTES = 16
_PLAIN, _ENCRYPTED = "mnemon-vault-key/1", "mnemon-vault-key/2"
_CHECK_CHARACTERS = 16
_COPIES = 2

SNAPSHOTS = "snapshots"
"""The purpose of a cipher."""

log = logging.getLogger(__name__)


class KeyLostError(VaultDamagedError, VaultKeyError):
    """The key file is missing."""


class KeyDamagedError(VaultDamagedError, VaultKeyError):
    """The key file is damaged."""


@dataclass(frozen=True, slots=True)
class VaultKey:
    """A key: 32 random bytes."""

    secret: bytes = field(repr=False)
    master: str | None = None
    """The name of the master key with which it is stored; None if it is stored as it is."""

    @property
    def fingerprint(self) -> bytes:
        """16 bytes that identify the key without revealing it. Databases begin with them."""
        return self.derive("fingerprint")[:FINGERPRINT_BYTES]

    def cipher(self, purpose: str) -> Cipher:
        """The cipher of the vault's files that are no databases: new ones only with a master key, since without
        one, anyone who can read them can read the key as well.
        """
        return Cipher(self.derive(purpose), is_for_new=self.master is not None)

    def derive(self, purpose: str) -> bytes:
        """A key of 32 bytes for another purpose."""
        return hmac.digest(self.secret, purpose.encode(), "sha256")


@dataclass(frozen=True, slots=True)
class VaultKeyFile:
    """The file with the key of a vault. It has the key twice, because one flipped bit would cost the whole vault.

    Every method blocks, and raises these errors:
        KeyDamagedError: the file does not contain the key that was written.
        MasterKeyMissingError, WrongMasterKeyError: the key is encrypted with a master key that is not there.
        ConfigurationError: the file cannot be read, or a newer program wrote it.
    """

    folder: Path
    """The folder of the vault, or of what else has a key of its own."""
    master: MasterKeys = NO_MASTER_KEYS
    """The first of these encrypts the key; any of them decrypts it."""
    name: str = KEY_FILE
    """The name of the file."""
    is_durable: bool = True
    """Whether writers of files in this folder wait until the disk has them."""

    def find(self) -> VaultKey | None:
        """The key; None if the file does not exist."""
        found = self._keys()
        if found is None:
            return None
        if not found:
            raise KeyDamagedError(
                f"{self.name} is damaged, and what it is the key of cannot be read without it: "
                "put the file back from a copy, or restore a backup"
            )
        return found[0]

    def is_whole(self) -> bool:
        """Whether both copies of the key are intact; true if the file does not exist."""
        found = self._keys()
        return found is None or len(found) == _COPIES

    def create(self) -> VaultKey:
        """Makes the key unless it exists. Repairs the file if one of its copies is damaged, and encrypts it with
        the first master key.

        The caller has locked the folder.

        Raises:
            StorageFullError, StorageFailedError: the file cannot be written.
        """
        key = self.find()
        master = next(iter(self.master.names), None)
        if key is not None and key.master == master and self.is_whole():
            return key
        if key is None:
            key = VaultKey(secrets.token_bytes(32))
        elif key.master != master:
            log.info("%s is encrypted with the master key %s", self.folder / self.name, master)
        else:
            log.warning("%s was damaged, and is rewritten from its second copy of the key", self.folder / self.name)
        key = VaultKey(key.secret, master)
        self._write(key)
        return key

    def _write(self, key: VaultKey) -> None:
        with translated("write", self.name):
            draft = self.folder / f"{self.name}.new"
            draft.unlink(missing_ok=True)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(_COPIES * self._line(key))
                file.flush()
                if self.is_durable:
                    os.fsync(descriptor)
            draft.rename(self.folder / self.name)
            if self.is_durable:
                sync(self.folder)

    def _line(self, key: VaultKey) -> bytes:
        if key.master is None:
            text = f"{_PLAIN} {key.secret.hex()}"
        else:
            encrypted = self.master.encrypt(key.secret, _ENCRYPTED.encode())
            text = f"{_ENCRYPTED} {encrypted.master} {encrypted.content.hex()}"
        return f"{text} {_check(text)}\n".encode()

    def _keys(self) -> list[VaultKey] | None:
        """The intact copies of the key; None if the file does not exist."""
        try:
            content = (self.folder / self.name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise refused(error, "the vault's key") from error
        # Split by length, because the line break may be damaged.
        half = len(content) // _COPIES
        return [key for line in (content[:half], content[half:]) if (key := self._key_in(line))]

    def _key_in(self, line: bytes) -> VaultKey | None:
        """The key in a line; None if the line is damaged."""
        text, _, check = line.decode("ascii", "replace").rpartition(" ")
        if check != f"{_check(text)}\n":
            return None
        name, *fields = text.split(" ")
        if name == _PLAIN:
            return VaultKey(bytes.fromhex(fields[0]))
        if name == _ENCRYPTED:
            master, content = fields
            secret = self.master.decrypt(EncryptedKey(master, bytes.fromhex(content)), _ENCRYPTED.encode())
            return VaultKey(secret, master) if secret else None
        raise ConfigurationError(
            f"{self.name} has the format {name!r}, and this program knows {_PLAIN} and {_ENCRYPTED}: "
            "a newer Mnemon wrote it; run that version"
        )


def _check(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:_CHECK_CHARACTERS]
