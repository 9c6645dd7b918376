"""The receipt of an erasure: a text whose bytes are signed, so that anyone can verify it with the public key.

The text is JSON with sorted keys and without spaces. It names the subject only by a salted hash: who knows the user can
tell that the receipt is about them.
"""

import hashlib
import json
import os
from collections.abc import Callable
from typing import Any

from mnemon_server.domain.erasure import EraseTarget, ErasureReceipt
from mnemon_server.domain.namespaces import namespace_text

FORMAT = "mnemon-erasure/1"
Sign = Callable[[bytes], tuple[bytes, bytes]]
"""Signs with Ed25519; returns the signature and the public key, as raw bytes."""


def subject_of(target: EraseTarget) -> dict[str, str]:
    """The subject of an erasure: SHA-256 of a salt, the kind and the name, joined by U+0000."""
    if target.user:
        kind, name = "user", target.user
    elif target.namespace is not None:
        kind, name = "namespace", namespace_text(target.namespace)
    elif target.source is not None:
        kind, name = "origin", "\0".join(target.source).rstrip("\0")
    else:
        return {"kind": "filter"}
    salt = os.urandom(16).hex()
    digest = hashlib.sha256(f"{salt}\0{kind}\0{name}".encode("utf-8", "surrogatepass")).hexdigest()
    return {"kind": kind, "salt": salt, "sha256": digest}


def signed(values: dict[str, Any], sign: Sign) -> ErasureReceipt:
    """The receipt with these values."""
    text = json.dumps({"format": FORMAT, **values}, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    signature, public_key = sign(text.encode())
    return ErasureReceipt(text, signature, public_key)


def receipt_to_json(receipt: ErasureReceipt) -> str:
    """The receipt as it is stored, and as a file of it looks."""
    return json.dumps(
        {"receipt": receipt.text, "signature": receipt.signature.hex(), "public_key": receipt.public_key.hex()}
    )


def receipt_from_json(text: str, *, replayed: bool = False) -> ErasureReceipt:
    """The receipt that `receipt_to_json` wrote."""
    values = json.loads(text)
    signature, public_key = bytes.fromhex(values["signature"]), bytes.fromhex(values["public_key"])
    return ErasureReceipt(values["receipt"], signature, public_key, replayed)
