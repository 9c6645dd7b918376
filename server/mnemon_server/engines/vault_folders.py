"""The folders of tenants' vaults."""

import os
import shutil
from pathlib import Path

from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.engines.folder import FolderLock

_DOOMED = ".deleted-"
"""No tenant has such a name, so a folder that is half removed is never opened."""


def vaults_folder(data_dir: Path) -> Path:
    """The folder of all vaults. A server shares its lock with others for as long as it serves."""
    return data_dir / "tenants"


def remove_vault(vaults: Path, tenant: str) -> None:
    """Removes a tenant's vault, or what an earlier attempt has left of it. Blocks.

    Raises:
        FolderInUseError: another process uses the vault.
        StorageFailedError: a file cannot be removed.
    """
    folder, doomed = vaults / tenant, vaults / f"{_DOOMED}{tenant}"
    try:
        _remove(doomed)
        if folder.exists():
            with FolderLock(folder):
                folder.rename(doomed)
            _remove(doomed)
        if vaults.exists():
            _sync(vaults)
    except OSError as error:
        raise StorageFailedError(f"the files of the tenant {tenant!r} cannot be removed: {error.strerror}") from error


def size_of(folder: Path) -> int:
    """The bytes of all files in a folder; 0 if it does not exist. Blocks."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_size  # noqa: PTH118 - called for many files
            except FileNotFoundError:
                continue
    return total


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _sync(folder: Path) -> None:
    """Makes sure that a removal outlives a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
