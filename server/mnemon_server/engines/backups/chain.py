"""Reads backups: a full one, or a chain of incremental ones down to it."""

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mnemon_server.domain.backup import (
    MANIFEST,
    RECORDS,
    BackupError,
    BackupFile,
    Manifest,
    StoredFile,
    parse_manifest,
)
from mnemon_server.engines.backups.folders import is_draft
from mnemon_server.engines.file_errors import translated
from mnemon_server.engines.folder import find_files
from mnemon_server.engines.private import create_folder, sync

_BYTES_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class StoredBackup:
    """One backup in its folder."""

    folder: Path

    @cached_property
    def manifest(self) -> Manifest:
        """Its content. Raises BackupError if that cannot be read."""
        try:
            return parse_manifest((self.folder / MANIFEST).read_bytes())
        except BackupError as error:
            raise BackupError(f"{self.folder}: {error}") from error
        except OSError as error:
            raise BackupError(f"{self.folder} is not a backup: {MANIFEST}: {error.strerror}") from error

    @property
    def files(self) -> list[StoredFile]:
        """The files that it holds, besides the manifest."""
        return [file.stored for file in self.manifest.files if file.stored]


def find_backups(folder: Path) -> list[StoredBackup]:
    """The backups in a folder, which may itself be one, and in all its subfolders. Raises OSError as `find_files`."""
    found = (path.parent for path in find_files(folder, MANIFEST))
    return [StoredBackup(path) for path in found if not is_draft(path)]


def copies_in_chain(newest: StoredBackup) -> list[list[StoredBackup]]:
    """The backup and those that it completes, newest first: of each, all copies that are beside it, by name.

    Raises:
        BackupError: one of them cannot be read, or is not beside the others.
    """
    chain = [[newest]]
    while (base := chain[-1][0].manifest.base) is not None:
        beside = sorted(newest.folder.absolute().parent.glob(f"*/{MANIFEST}"))
        found = [path.parent for path in beside if not is_draft(path.parent) and _sha256(path) == base.sha256]
        if not found:
            raise BackupError(
                f"{chain[-1][0].folder} completes the backup {base.backup_id}, which is not beside it, or whose "
                f"{MANIFEST} is damaged: put that backup into {newest.folder.absolute().parent}"
            )
        chain.append([StoredBackup(folder) for folder in found])
    return chain


def damage_of(backup: StoredBackup, advance: Callable[[int], object]) -> Iterator[tuple[Path, str]]:
    """Reads every byte of a backup, and yields each file that is not what the manifest says, with what is wrong.

    `advance` gets the number of bytes that were read.
    """
    for stored in backup.files:
        path = backup.folder / stored.path
        try:
            size = path.stat().st_size
            if size != stored.size:
                advance(stored.size)
                yield path, f"it has {size:,} bytes instead of {stored.size:,}"
            elif _sha256(path, advance) != stored.sha256:
                yield path, "its bytes are not those that were backed up: its SHA-256 differs"
        except OSError as error:
            yield path, f"it cannot be read: {error.strerror}"


def assemble(chain: list[StoredBackup], target: Path, advance: Callable[[int], object]) -> None:
    """Puts the files of a vault together in a new folder, durably.

    Raises:
        BackupError: a file is not what the manifest says.
        StorageFullError, StorageFailedError: the disk is full, or failed.
    """
    with translated("write", "the restored vault"):
        for file in chain[0].manifest.files:
            place = target / file.path
            create_folder(place.parent)
            with os.fdopen(os.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "r+b") as out:
                if file.path == RECORDS:
                    _records(chain, out.fileno())
                else:
                    _copy(_holder(chain, file), out.fileno())
                os.fsync(out.fileno())
            if place.stat().st_size != file.size or _sha256(place, advance) != file.sha256:
                raise BackupError(f"{file.path}: what was put together from the backup is not what was backed up")
        for folder in (*(path for path in target.iterdir() if path.is_dir()), target):
            sync(folder)


def _holder(chain: list[StoredBackup], file: BackupFile) -> Path:
    """Where a file is that did not change since."""
    for backup in chain:
        known = backup.manifest.file(file.path)
        if known and known.stored and known.sha256 == file.sha256:
            return backup.folder / known.stored.path
    raise BackupError(f"{file.path} is in none of the backups {', '.join(each.folder.name for each in chain)}")


def _records(chain: list[StoredBackup], target: int) -> None:
    """Writes records.db: the newest whole one, and then each later backup's blocks."""
    files = [(backup.folder, file) for backup in chain if (file := backup.manifest.file(RECORDS))]
    whole = next((number for number, (_, file) in enumerate(files) if file.changed is None), None)
    if whole is None or (stored := files[whole][1].stored) is None:
        raise BackupError(f"none of the backups has a whole {RECORDS}")
    _copy(files[whole][0] / stored.path, target)
    for folder, file in reversed(files[:whole]):
        if file.stored and file.blocks:
            _apply(folder / file.stored.path, file, file.blocks.size, target)
        os.ftruncate(target, file.size)


def _apply(source: Path, file: BackupFile, block: int, target: int) -> None:
    with source.open("rb") as changed:
        for first, count in file.changed or ():
            offset, left = first * block, count * block
            # The last block may be shorter.
            while left and (data := changed.read(min(left, _BYTES_AT_ONCE))):
                os.pwrite(target, data, offset)
                offset, left = offset + len(data), left - len(data)


def _copy(source: Path, target: int) -> None:
    offset = 0
    with source.open("rb") as file:
        while data := file.read(_BYTES_AT_ONCE):
            os.pwrite(target, data, offset)
            offset += len(data)


def _sha256(path: Path, advance: Callable[[int], object] = lambda count: None) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(_BYTES_AT_ONCE):
            digest.update(data)
            advance(len(data))
    return digest.hexdigest()
