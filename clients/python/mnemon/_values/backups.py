"""Backups of a vault."""

from dataclasses import dataclass
from datetime import datetime

from mnemon._values.documents import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupProgress(JsonValue):
    """How far a backup is."""

    done_bytes: int
    """Bytes that the server has read."""
    total_bytes: int
    """Bytes to read; grows while the vault is being written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup(JsonValue):
    """A backup that was made."""

    backup_id: str
    """Identifies it."""
    sequence: int
    """The vault's newest change in it."""
    create_time: datetime
    """When it is of."""
    size_bytes: int
    """The bytes of its files."""
    missing_files: tuple[str, ...]
    """Files of the timeline that the vault had lost before; what they contained is not in the backup."""
