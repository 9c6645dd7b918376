"""Restores a vault from a backup: all of it, or nothing."""

import shutil
from collections.abc import Callable
from pathlib import Path

from mnemon_server.domain.backup import RECORDS, BackupError, Manifest
from mnemon_server.domain.errors import ConfigurationError, StorageFailedError
from mnemon_server.engines.backups.chain import StoredBackup, assemble, copies_in_chain, damage_of
from mnemon_server.engines.folder import FolderInUseError, FolderLock
from mnemon_server.engines.master_keys import NO_MASTER_KEYS, MasterKeys
from mnemon_server.engines.private import create_folder, sync
from mnemon_server.engines.sqlite.upkeep.restored import begin_epoch, carry_tombstones
from mnemon_server.engines.vault_folders import draft_of, finish_locked_replacements, put_in_place, set_unfinished


class Restoration:
    """The restoration of one backup."""

    def __init__(self, folder: Path) -> None:
        """Reads the manifests.

        Raises:
            BackupError: the backup, or one that it completes, cannot be read or is not there.
        """
        self._copies = copies_in_chain(StoredBackup(folder))
        self._chain = [copies[0] for copies in self._copies]

    @property
    def manifest(self) -> Manifest:
        """The manifest of the backup to restore."""
        return self._chain[0].manifest

    @property
    def byte_count(self) -> int:
        """How many bytes are read: those of the backups, and then those of the vault."""
        stored = sum(file.size for backup in self._chain for file in backup.files)
        return stored + sum(file.size for file in self.manifest.files)

    def check(self, advance: Callable[[int], object]) -> list[str]:
        """Reads every byte of the backups, and of each takes the first copy that is sound.

        Returns:
            The damaged files of copies that are passed over, each with its problem.

        Raises:
            BackupError: every copy of a backup is damaged; the message names the files.
        """
        damage, beyond = list[str](), list[str]()
        for place, copies in enumerate(self._copies):
            found = list[str]()
            for copy in copies:
                problems = [f"{path}: {problem}" for path, problem in damage_of(copy, advance)]
                found += problems
                if not problems:
                    self._chain[place] = copy
                    damage += found
                    break
            else:
                beyond += found
        if beyond:
            raise BackupError("the backup is damaged, and nothing was restored:\n" + "\n".join(beyond))
        return damage

    def run(
        self,
        vaults: Path,
        tenant: str,
        *,
        replace: bool,
        forget_erasures: bool = False,
        master: MasterKeys = NO_MASTER_KEYS,
        advance: Callable[[int], object],
    ) -> None:
        """Puts the vault together beside the others, and gives it its place in one step. No server uses `vaults`.

        `replace` allows it to take the place of the tenant's vault, and `forget_erasures` to do so even if the
        tombstones of that vault cannot be read. One of the master keys has encrypted the key of the vault, if any has.
        `advance` gets the number of bytes that were written.

        Raises:
            BackupError: the backup is not what it was when it was checked.
            ConfigurationError: a server uses the folder; the tenant has a vault, or one whose tombstones cannot be
                read; a newer program wrote the backup.
            StorageFullError, StorageFailedError: the disk is full, or failed.
        """
        create_folder(vaults)
        try:
            lock = FolderLock(vaults)
        except FolderInUseError as error:
            raise ConfigurationError(
                f"a server uses {str(vaults)!r}, and nothing has changed: stop it, and restore again"
            ) from error
        with lock:
            finish_locked_replacements(vaults)
            if (vaults / tenant).exists() and not replace:
                raise ConfigurationError(
                    f"the tenant {tenant!r} has a vault in {str(vaults)!r}, and nothing has changed: "
                    "--replace removes it, and puts the backup in its place"
                )
            draft = draft_of(vaults, tenant)
            try:
                create_folder(draft)
                assemble(self._chain, draft, advance)
                begin_epoch(draft / RECORDS, master)
                if (former := vaults / tenant).exists():
                    _carry_tombstones(former, draft, master, may_fail=forget_erasures)
                sync(draft)
                put_in_place(vaults, tenant)
            finally:
                shutil.rmtree(draft, ignore_errors=True)


def _carry_tombstones(former: Path, draft: Path, master: MasterKeys, *, may_fail: bool) -> None:
    """Makes the restored vault repeat, at the next start of a server, the erasures of the vault that it replaces."""
    try:
        if carry_tombstones(former / RECORDS, draft / RECORDS, master):
            set_unfinished(draft, is_unfinished=True)
    except StorageFailedError as error:
        if not may_fail:
            raise ConfigurationError(
                f"the tombstones of the tenant's vault cannot be read, and nothing has changed: {error}. "
                "With --forget-erasures the vault is replaced, and what was erased since the backup comes back"
            ) from error
