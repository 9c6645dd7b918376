"""The master keys of a server, with which the keys of vaults are encrypted.

The first one encrypts; all of them decrypt, so that one can replace another while the server is in use.
"""

import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.engines.encryption import Cipher, DecryptionError

_KEY = re.compile(r"[0-9a-fA-F]{64}")
_NAME_BYTES = 8


class VaultKeyError(ConfigurationError):
    """A vault cannot be read with the keys that are there."""


class MasterKeyMissingError(VaultKeyError):
    """The key of the vault is encrypted with a master key, and none is set."""


class WrongMasterKeyError(VaultKeyError):
    """The key of the vault is encrypted with another master key than those that are set."""


@dataclass(frozen=True, slots=True)
class EncryptedKey:
    """The key of a vault, encrypted with a master key."""

    master: str
    """The name of the master key."""
    content: bytes
    """The cipher with the key."""


@dataclass(frozen=True, slots=True)
class MasterKeys:
    """Keys of 32 bytes each; none if vaults are not protected by one."""

    secrets: Sequence[bytes] = field(default=(), repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each key, which does not reveal it: 16 hexadecimal digits."""
        return tuple(_name(secret) for secret in self.secrets)

    def encrypt(self, key: bytes, purpose: bytes) -> EncryptedKey:
        """Encrypts a key with the first master key. `purpose` must be the same for `decrypt`."""
        return EncryptedKey(self.names[0], Cipher(self.secrets[0]).encrypt(key, purpose))

    def decrypt(self, key: EncryptedKey, purpose: bytes) -> bytes | None:
        """The key; None if it is damaged.

        Raises:
            MasterKeyMissingError: no master key is set.
            WrongMasterKeyError: another master key is set.
        """
        if not self.secrets:
            raise MasterKeyMissingError(
                f"the key of the vault is encrypted with the master key {key.master}, and no master key is set: "
                "set master_key_file, master_key_command or master_key"
            )
        if key.master not in self.names:
            raise WrongMasterKeyError(
                f"the key of the vault is encrypted with the master key {key.master}, and that is not the one which is "
                f"set ({', '.join(self.names)}): set that master key, or add it below the new one"
            )
        secret = self.secrets[self.names.index(key.master)]
        try:
            return Cipher(secret).decrypt(key.content, purpose)
        except DecryptionError:
            return None


NO_MASTER_KEYS = MasterKeys()


def parse_master_keys(text: str, origin: str) -> MasterKeys:
    """The keys in a text. Each line has 64 hexadecimal digits, is empty, or begins with `#`. No error contains a key.

    Raises:
        ConfigurationError: a line is different, or there is no key.
    """
    lines = [line.strip() for line in text.splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys or not all(_KEY.fullmatch(line) for line in keys):
        raise ConfigurationError(
            f"{origin} must give a master key as 64 hexadecimal digits, and nothing else in that line; "
            "`openssl rand -hex 32` makes one"
        )
    return MasterKeys(tuple(bytes.fromhex(line) for line in keys))


def _name(secret: bytes) -> str:
    return hmac.digest(secret, b"name of a master key", "sha256")[:_NAME_BYTES].hex()
