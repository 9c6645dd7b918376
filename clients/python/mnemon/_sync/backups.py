# Generated from _async/backups.py by `make generate`: change that file instead.
"""The blocking client's object for backups."""

from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

from mnemon._channel import PathLike
from mnemon._messages.convert import invalid
from mnemon._messages.translation import read, request
from mnemon._sync.service import Service, Stub
from mnemon._values.backups import Backup, BackupProgress
from mnemon.shared.backup_folder import BackupFolder, read_manifest
from mnemon.shared.errors import IncompleteBackupError
from mnemon.v1 import backup_pb2 as pb
from mnemon.v1.backup_pb2_grpc import BackupServiceStub

Report = Callable[[BackupProgress], None]


class Backups(Service):
    """Backups of the whole vault, as `client.backups`; for admins. `mnemon-server restore` restores them."""

    _stub = Stub(BackupServiceStub)

    def create(
        self,
        folder: PathLike,
        *,
        base: PathLike | None = None,
        report: Report | None = None,
        timeout: float | None = None,
    ) -> Backup:
        """Writes a backup of the vault as it is now to a new folder, which appears once everything is on the disk.

        With `base`, the folder of an earlier backup, it has only what has changed since. Keep them side by side in one
        folder, because it is useless without that one. `report` is called with the progress. There is no deadline
        unless `timeout` sets one for the whole backup.

        Raises FileExistsError if the folder exists, OSError if it cannot be written, and IncompleteBackupError if
        something did not arrive; nothing remains in each case.
        """
        manifest = read_manifest(Path(base)) if base else b""
        asked = pb.CreateBackupRequest(base_manifest=manifest)
        with BackupFolder(Path(folder)) as files:
            return self._receive(files, self._messages(asked, report, timeout))

    def create_on_server(
        self, name: str, *, base: str = "", report: Report | None = None, timeout: float | None = None
    ) -> Backup:
        """Makes a backup that the server keeps under a name in its `backup_dir`.

        With `base`, the name of an earlier backup there, it has only what has changed since. Otherwise as `create`.
        """
        if not name:
            # In a message, an empty name means a backup whose files are sent.
            raise invalid("name", "must not be empty; it is the name under which the server keeps the backup")
        asked = request(pb.CreateBackupRequest, name=name, base_name=base)
        with closing(self._messages(asked, report, timeout)) as messages:
            # To the end of the stream: until then, the server refuses another backup.
            summaries = [message.summary for message in messages]
        if not summaries:
            raise IncompleteBackupError("the server ended the backup early; take it again")
        return read(Backup, summaries[0])

    def _receive(self, files: BackupFolder, messages: Generator[pb.CreateBackupResponse, None, None]) -> Backup:
        summary = None
        with closing(messages):
            # To the end of the stream: until then, the server refuses another backup.
            for message in messages:
                if message.HasField("summary"):
                    summary = message.summary
                else:
                    files.write(message.chunk.path, message.chunk.data)
        if summary is None:
            raise IncompleteBackupError("the server ended the backup early; nothing was kept, so take it again")
        files.commit()
        return read(Backup, summary)

    def _messages(
        self, asked: pb.CreateBackupRequest, report: Report | None, timeout: float | None
    ) -> Generator[pb.CreateBackupResponse, None, None]:
        """The messages after progress has been reported."""
        with closing(self._stream(self._stub.CreateBackup, asked, timeout)) as messages:
            for message in messages:
                if not message.HasField("progress"):
                    yield message
                elif report:
                    report(read(BackupProgress, message.progress))
