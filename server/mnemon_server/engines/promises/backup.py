"""The contract of a vault that can be backed up."""

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from mnemon_server.domain.backup import BackupStep, Manifest

PART_BYTES = 1 << 20


class Copyable(Protocol):
    """A vault in files."""

    def back_up(self, base: Manifest | None) -> Generator[BackupStep]:
        """Copies the vault as it is at one commit, which is after the call, while others read and write.

        The parts of each file are in order and have at most PART_BYTES. With a `base`, only what has changed since that
        backup is among them. The manifest comes last: as parts of a file, and as the last step. Closing the generator
        ends the copying, and removes what it needed on the disk: as much as records.db has.

        Raises:
            InvalidArgumentError: the base is a backup of another vault.
            InvalidOperationError: another backup of this vault is being made.
            StorageFullError: the disk has no room for that.
            StorageFailedError: the disk failed, or other programs kept the log from being copied into the file.
        """


class BackupWriter(Protocol):
    """A backup that is being written. Nothing of it remains unless it is committed."""

    def write(self, path: str, data: bytes) -> None:
        """Appends to a file. The files come one after another."""

    def commit(self) -> object:
        """Makes the backup durable under its name."""


class BackupFolder(Protocol):
    """The backups of one tenant. Every method raises StorageFullError or StorageFailedError if the disk fails."""

    def manifest(self, name: str) -> bytes | None:
        """The manifest of a backup; None if there is no backup with this name."""

    def manifests(self) -> Mapping[str, bytes]:
        """The manifests of all backups, by name."""

    def unfinished(self) -> list[str]:
        """The names of backups in progress. Leftovers of killed backups are removed."""

    def writer(self, name: str) -> AbstractContextManager[BackupWriter]:
        """Begins a backup. Raises InvalidOperationError if there is one with this name."""
