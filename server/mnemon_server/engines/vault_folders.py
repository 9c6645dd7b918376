"""The folders of tenants' vaults."""

import logging
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from mnemon_server.domain.backup import RECORDS
from mnemon_server.domain.damage import VaultDamagedError
from mnemon_server.domain.errors import MnemonError
from mnemon_server.engines.file_errors import translated
from mnemon_server.engines.folder import FolderLock
from mnemon_server.engines.master_keys import MasterKeys
from mnemon_server.engines.private import create_file, create_folder, refused, sync
from mnemon_server.engines.vault_key import KEY_FILE, VaultKeyFile

UNFINISHED = "UNFINISHED"
"""In a vault's folder: an empty file that says that it has work which goes on after a restart."""
_QUARANTINE = "quarantine"
_DOOMED = ".deleted-"
"""No tenant has such a name, so a folder that is half removed is never opened."""
_DRAFT, _READY, _FORMER = ".restoring-", ".restored-", ".replaced-"
"""A vault that is being restored, one that is complete, and the one that it replaces."""

log = logging.getLogger(__name__)

_KNOWN = "vaults"
"""Folder in the data folder with an empty file for each vault, to notice when a vault's files disappear."""

VAULT_GONE = "the file is missing or empty"

COPIES = "copies"
"""In a vault's folder: copies of its files that a backup reads. They are gone when it ends."""


def vaults_folder(data_dir: Path) -> Path:
    """The folder of all vaults. A server shares its lock with others for as long as it serves."""
    return data_dir / "tenants"


def require_vault(data_dir: Path, tenant: str) -> None:
    """Raises VaultDamagedError if a tenant's vault exists but its records are missing. Blocks."""
    if (data_dir / _KNOWN / tenant).exists() and not _has_records(data_dir, tenant):
        raise VaultDamagedError(
            f"the vault of the tenant {tenant!r} is gone: tenants/{tenant}/{RECORDS} is missing or empty. Put the "
            f"folder back from a copy, or stop the server and run `mnemon-server restore BACKUP --tenant {tenant}`. "
            f"Only if it shall begin anew without its records, remove the file {_KNOWN}/{tenant} from the data folder"
        )


def note_vault(data_dir: Path, tenant: str) -> None:
    """Records durably that a tenant has a vault. Blocks. Raises ConfigurationError if the file cannot be written."""
    path = data_dir / _KNOWN / tenant
    if path.exists():
        return
    try:
        create_folder(path.parent)
        path.touch(mode=0o600)
        sync(path.parent)
    except OSError as error:
        raise refused(error, "the data folder") from error


def missing_vaults(data_dir: Path) -> list[str]:
    """The tenants whose vaults exist but whose records are missing. Blocks."""
    known = sorted(path.name for path in (data_dir / _KNOWN).glob("*"))
    return [tenant for tenant in known if not _has_records(data_dir, tenant)]


def _has_records(data_dir: Path, tenant: str) -> bool:
    records = vaults_folder(data_dir) / tenant / RECORDS
    return records.exists() and records.stat().st_size > 0


def remove_vault(vaults: Path, tenant: str) -> None:
    """Removes a tenant's vault, or what an earlier attempt has left of it. Blocks.

    Raises:
        FolderInUseError: another process uses the vault.
        StorageFailedError: a file cannot be removed.
    """
    folder, doomed = vaults / tenant, vaults / f"{_DOOMED}{tenant}"
    with translated("remove", f"the files of the tenant {tenant!r}"):
        _remove(doomed)
        if folder.is_symlink():
            folder.unlink()
        elif folder.exists():
            with FolderLock(folder):
                folder.rename(doomed)
            _remove(doomed)
        if vaults.exists():
            sync(vaults)
        (vaults.parent / _KNOWN / tenant).unlink(missing_ok=True)


def encrypt_keys(vaults: Path, master: MasterKeys) -> None:
    """Encrypts the keys of all vaults with the first master key; does nothing without one. Blocks.

    A vault that another process uses, or whose key cannot be read or written, is left to those who open it.
    """
    for path in vaults.glob(f"*/{KEY_FILE}") if master.secrets else ():
        try:
            with FolderLock(path.parent):
                VaultKeyFile(path.parent, master).create()
        except MnemonError as error:
            log.warning("the key of the vault of %s could not be encrypted: %s", path.parent.name, error)


def draft_of(vaults: Path, tenant: str) -> Path:
    """The folder in which a tenant's vault is put together, until `put_in_place`."""
    return vaults / f"{_DRAFT}{tenant}"


def put_in_place(vaults: Path, tenant: str) -> None:
    """Makes the draft the tenant's vault, and removes the former one. If the process is killed meanwhile, the next
    `finish_replacements` does the rest. The caller has locked `vaults`.

    Raises:
        StorageFailedError: a folder cannot be renamed or removed.
    """
    with translated("replace", "a vault"):
        draft_of(vaults, tenant).rename(vaults / f"{_READY}{tenant}")
        sync(vaults)
        _finish(vaults, tenant)


def finish_replacements(vaults: Path) -> None:
    """Does what is left of interrupted replacements of vaults. Drafts that are not complete are removed. Blocks.

    Raises:
        FolderInUseError: something is left, and another process uses the vaults.
        StorageFailedError: a folder cannot be renamed or removed.
    """
    if any(_left(vaults, prefix) for prefix in (_DRAFT, _READY, _FORMER)):
        with FolderLock(vaults):
            finish_locked_replacements(vaults)


def finish_locked_replacements(vaults: Path) -> None:
    """Like `finish_replacements`, for a caller who has locked the folder."""
    with translated("replace", "a vault"):
        for tenant in {*_left(vaults, _READY), *_left(vaults, _FORMER)}:
            _finish(vaults, tenant)
        for tenant in _left(vaults, _DRAFT):
            _remove(draft_of(vaults, tenant))


def _left(vaults: Path, prefix: str) -> list[str]:
    return [folder.name.removeprefix(prefix) for folder in vaults.glob(f"{prefix}*")]


def _finish(vaults: Path, tenant: str) -> None:
    folder, ready, former = vaults / tenant, vaults / f"{_READY}{tenant}", vaults / f"{_FORMER}{tenant}"
    if ready.exists():
        if folder.exists():
            _remove(former)
            folder.rename(former)
        ready.rename(folder)
        sync(vaults)
    _remove(former)


def size_of(folder: Path) -> int:
    """The bytes of all files in a vault's folder, without copies; 0 if it does not exist. Blocks."""
    total = 0
    for path, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != COPIES]
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_size  # noqa: PTH118 - called for many files
            except FileNotFoundError:
                continue
    return total


def set_unfinished(folder: Path, *, is_unfinished: bool) -> None:
    """Says durably whether the vault in this folder has work that goes on after a restart. Blocks.

    Raises:
        StorageFailedError: the file that says so cannot be written or removed.
    """
    path = folder / UNFINISHED
    with translated("change", path.name):
        if is_unfinished:
            create_file(path)
        else:
            path.unlink(missing_ok=True)
        sync(folder)


def discard_quarantined(folder: Path, files: Sequence[str]) -> None:
    """Deletes those of these files, relative to a vault's folder, that lie in quarantine. Blocks."""
    for name in files:
        if Path(name).parts[0] == _QUARANTINE:
            (folder / name).unlink(missing_ok=True)


def unfinished_tenants(vaults: Path) -> list[str]:
    """The tenants whose vaults have such work."""
    return sorted(path.parent.name for path in vaults.glob(f"*/{UNFINISHED}") if not path.parent.name.startswith("."))


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
