"""The folder in which a server keeps the backups of a tenant."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mnemon.shared.backup_folder import DRAFTS, MANIFEST, BackupFolder, discard_drafts, read_manifest

from mnemon_server.domain.errors import InvalidOperationError
from mnemon_server.engines.file_errors import translated
from mnemon_server.engines.vault_folders import COPIES


class TenantBackups:
    """See BackupFolder of the promises. Each backup is a folder with its name."""

    def __init__(self, folder: Path) -> None:
        """Creates nothing yet."""
        self._folder = folder

    def manifest(self, name: str) -> bytes | None:
        """See BackupFolder."""
        with translated("read", "a backup"):
            try:
                return read_manifest(self._folder / name)
            except FileNotFoundError:
                return None

    def manifests(self) -> dict[str, bytes]:
        """See BackupFolder."""
        with translated("read", "the backups"):
            return {path.parent.name: path.read_bytes() for path in sorted(self._folder.glob(f"[!.]*/{MANIFEST}"))}

    def unfinished(self) -> list[str]:
        """See BackupFolder."""
        with translated("read", "the backups"):
            return discard_drafts(self._folder)

    @contextmanager
    def writer(self, name: str) -> Iterator[BackupFolder]:
        """See BackupFolder."""
        with translated("write", "a backup"):
            try:
                writer = BackupFolder(self._folder / name)
            except FileExistsError as error:
                raise InvalidOperationError(f"the backup {name!r} exists already; choose another name") from error
            with writer:
                yield writer


def is_draft(folder: Path) -> bool:
    """Whether a folder of this name holds an unfinished backup, in progress or killed."""
    return folder.match(DRAFTS)


def find_drafts(folder: Path) -> Iterator[Path]:
    """The folders of unfinished backups below a folder, in progress or killed."""
    yield from folder.rglob(DRAFTS)
    yield from folder.rglob(f"{COPIES}/*")


def discard_unfinished(backups: Path) -> None:
    """Removes the leftovers of killed backups of all tenants.

    Raises StorageFailedError if the folder cannot be read.
    """
    with translated("read", "the backups"):
        for folder in backups.glob("*/"):
            discard_drafts(folder)
