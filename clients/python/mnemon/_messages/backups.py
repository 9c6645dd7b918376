"""Converts requests and answers of the backup service."""

from datetime import UTC

from mnemon._messages.documents import invalid, text
from mnemon._values.backups import Backup, BackupProgress
from mnemon.v1 import backup_pb2 as pb


def on_server(name: str, base: str) -> pb.CreateBackupRequest:
    """The request for a backup that the server keeps. Raises InvalidArgumentError if the name is empty."""
    if not name:
        # In a message, an empty name means a backup whose files are sent.
        raise invalid("name", "must not be empty; it is the name under which the server keeps the backup")
    return pb.CreateBackupRequest(name=text("name", name), base_name=text("base", base))


def progress_from_pb(message: pb.BackupProgress) -> BackupProgress:
    """How far a backup is."""
    return BackupProgress(done_bytes=message.done_bytes, total_bytes=message.total_bytes)


def backup_from_pb(message: pb.BackupSummary) -> Backup:
    """A backup that was made."""
    return Backup(
        backup_id=message.backup_id,
        sequence=message.sequence,
        create_time=message.create_time.ToDatetime(UTC),
        size_bytes=message.size_bytes,
        missing_files=tuple(message.missing_files),
    )
