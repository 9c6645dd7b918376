"""What a restored records.db gets before it is served."""

import os
from pathlib import Path

import apsw

from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.engines.sqlite.journal import RESTORED_EPOCH
from mnemon_server.engines.sqlite.migrations import EPOCH_BYTES
from mnemon_server.engines.sqlite.schema import open_writer


def begin_epoch(file: Path) -> None:
    """Gives the vault a new epoch, so that cursors of the time after the backup are refused, and has vector databases
    filled anew, because they may have changes that the vault no longer knows.

    Raises:
        ConfigurationError: a newer program wrote the file.
        StorageFailedError: it cannot be read or written.
    """
    try:
        connection = open_writer(file)
        try:
            with connection:
                connection.execute(
                    "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (RESTORED_EPOCH, os.urandom(EPOCH_BYTES))
                )
                connection.execute("UPDATE index_position SET sequence = 0, generation = ''")
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            connection.close()
    except apsw.Error as error:
        raise StorageFailedError(f"the restored {file.name} cannot be opened: {error}") from error
