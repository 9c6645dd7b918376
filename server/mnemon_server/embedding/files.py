"""Files that are either complete or absent: digests, and writing that survives a crash."""

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

_READABLE = 0o644
"""File mode: one user may prepare a model that another user serves."""


def sha256_of(path: Path) -> str:
    """The SHA-256 digest of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a temporary file beside `path`, makes it durable, and renames it to `path`.

    Raises:
        OSError: the folder cannot be created or written. The temporary file is removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    os.close(descriptor)
    temporary = Path(name)
    try:
        write(temporary)
        temporary.chmod(_READABLE)
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
