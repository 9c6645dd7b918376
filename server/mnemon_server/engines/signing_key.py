"""The keys that sign: private JWKs in the data folder, readable by its owner only."""

import base64
import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from mnemon_server.domain.damage import UNREADABLE
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.engines.private import create_folder, refused, tighten

TOOL_KEY = "tool-identity.jwk"
"""Signs who calls an operator's tool."""
ERASURE_KEY = "erasure.jwk"
"""Signs the receipts of erasures."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """An Ed25519 key."""

    private: Ed25519PrivateKey

    @property
    def public(self) -> dict[str, str]:
        """The public key as a JWK. Its `kid` is its thumbprint by RFC 7638."""
        members = {"crv": "Ed25519", "kty": "OKP", "x": _encode(self.private.public_key().public_bytes_raw())}
        canonical = json.dumps(members, sort_keys=True, separators=(",", ":")).encode()
        return members | {"kid": _encode(hashlib.sha256(canonical).digest()), "alg": "EdDSA", "use": "sig"}

    @property
    def public_bytes(self) -> bytes:
        """The public key: 32 bytes."""
        return self.private.public_key().public_bytes_raw()

    def sign(self, content: bytes) -> tuple[bytes, bytes]:
        """The signature of these bytes, and the public key."""
        return self.private.sign(content), self.public_bytes

    @property
    def jwks(self) -> dict[str, Any]:
        """The set of keys for those who verify."""
        return {"keys": [self.public]}


def new_key() -> SigningKey:
    """A key that is kept nowhere."""
    return SigningKey(Ed25519PrivateKey.generate())


def open_key(data_dir: Path, name: str) -> SigningKey:
    """The key with this name in a data folder, which is made if there is none yet. Blocks.

    Raises:
        ConfigurationError: the file cannot be read or created, or does not contain the key that was written.
    """
    path = data_dir / name
    try:
        create_folder(data_dir)
        # Another process may be creating it, too: only one of them succeeds.
        with suppress(FileExistsError):
            _create(path)
        tighten(path)
        content = path.read_bytes()
    except OSError as error:
        raise refused(error, f"the key in {str(path)!r}" if error.filename is None else "the key in") from error
    return _read(path, content)


def _create(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    key = SigningKey(Ed25519PrivateKey.generate())
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(json.dumps(key.public | {"d": _encode(key.private.private_bytes_raw())}).encode())
            file.flush()
            os.fsync(descriptor)
    except OSError:  # such as a full disk: the next attempt must not find a file without a key
        path.unlink()
        raise


def _read(path: Path, content: bytes) -> SigningKey:
    try:
        written = json.loads(content)
        key = SigningKey(Ed25519PrivateKey.from_private_bytes(base64.urlsafe_b64decode(written["d"] + "=")))
        is_intact = key.public["x"] == written["x"]
    except UNREADABLE:
        is_intact = False
    if not is_intact:
        problem = "is damaged; remove it, start the server, which makes another key, and give that to those who verify"
        raise ConfigurationError(f"the key in {str(path)!r} {problem}")
    return key


def _encode(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()
