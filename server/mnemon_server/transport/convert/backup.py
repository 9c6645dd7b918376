"""Backups between messages and values."""

from datetime import datetime

from mnemon.v1 import backup_pb2 as pb

from mnemon_server.domain.backup import BackupPart, BackupProgress, BackupSummary, BackupTarget
from mnemon_server.wire.values import time_to_pb


def target_from_pb(request: pb.CreateBackupRequest) -> BackupTarget:
    """Where a backup goes."""
    return BackupTarget(request.name, request.base_name, request.base_manifest)


def message_to_pb(message: BackupProgress | BackupPart | BackupSummary) -> pb.CreateBackupResponse:
    """The next message of a backup."""
    match message:
        case BackupProgress(done, total):
            return pb.CreateBackupResponse(progress=pb.BackupProgress(done_bytes=done, total_bytes=total))
        case BackupPart(path, data):
            return pb.CreateBackupResponse(chunk=pb.BackupChunk(path=path, data=data))
        case BackupSummary(manifest, size):
            summary = pb.BackupSummary(
                backup_id=manifest.backup_id,
                sequence=manifest.sequence,
                create_time=time_to_pb(datetime.fromisoformat(manifest.time)),
                size_bytes=size,
                missing_files=manifest.missing,
            )
            return pb.CreateBackupResponse(summary=summary)
