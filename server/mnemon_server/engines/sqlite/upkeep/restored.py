"""Changes of a restored records.db before it is served."""

import os
from contextlib import closing
from pathlib import Path

import apsw

from mnemon_server.domain.erasure import RECEIPTS, REPLAY, SECRET
from mnemon_server.domain.errors import RecordDamagedError, StorageFailedError
from mnemon_server.engines.master_keys import MasterKeys, VaultKeyError
from mnemon_server.engines.sqlite.journal import RESTORED_EPOCH
from mnemon_server.engines.sqlite.pages.mark import check_mark
from mnemon_server.engines.sqlite.query import set_meta
from mnemon_server.engines.sqlite.schema import APPLICATION_ID, EPOCH_BYTES, open_reader, open_writer
from mnemon_server.engines.sqlite.tombstones import ADD_STATEMENT
from mnemon_server.engines.sqlite.values import set_value, stored_value, stored_values
from mnemon_server.engines.vault_key import VaultKeyFile


def begin_epoch(file: Path, master: MasterKeys) -> None:
    """Gives the vault a new epoch, so that cursors of the time after the backup are refused, and has vector databases
    filled anew, because they may have changes that the vault no longer knows.

    Raises:
        ConfigurationError: a newer program wrote the file.
        StorageFailedError: it cannot be read or written.
    """
    try:
        connection = open_writer(file, VaultKeyFile(file.parent, master))
        try:
            with connection:
                set_meta(connection, RESTORED_EPOCH, os.urandom(EPOCH_BYTES))
                connection.execute("UPDATE index_position SET sequence = 0, generation = ''")
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            connection.close()
    except apsw.Error as error:
        raise StorageFailedError(f"the restored {file.name} cannot be opened: {error}") from error


def carry_tombstones(former: Path, restored: Path, master: MasterKeys) -> bool:
    """Gives a restored vault the receipts and the tombstones of the one that it replaces, and has it erase again what
    these name.

    Returns:
        Whether there is something to erase again: not if the former vault has erased nothing, or is another vault than
        the one that was backed up.

    Raises:
        StorageFailedError: one of the files is missing, or cannot be read or written.
    """
    keys = VaultKeyFile(former.parent, master)
    try:
        with closing(open_reader(former, keys)) as connection:
            if connection.pragma("application_id") != APPLICATION_ID:
                raise StorageFailedError(f"{former.name} is not a Mnemon database")
            check_mark(connection, keys)
            secret = stored_value(connection, SECRET) if _has_tombstones(connection) else None
            rows = connection.execute("SELECT key, time FROM tombstone").fetchall() if secret else []
            receipts = stored_values(connection, RECEIPTS) if secret else {}
        if not secret:
            return False
        with closing(open_writer(restored, VaultKeyFile(restored.parent, master))) as connection:
            is_same_vault = stored_value(connection, SECRET) in (None, secret)
            newest = connection.execute("SELECT coalesce(max(time), 0) FROM tombstone").get
            with connection:
                for key, text in receipts.items():
                    set_value(connection, key, text)
                if is_same_vault:
                    set_value(connection, SECRET, secret)
                    # The backup may come from a vault with unfinished erasures of its own; these are repeated as well.
                    set_value(connection, REPLAY, stored_value(connection, REPLAY) or str(newest))
                    connection.executemany(ADD_STATEMENT, rows)
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        return is_same_vault
    except (apsw.Error, RecordDamagedError, VaultKeyError) as error:
        raise StorageFailedError(f"the tombstones of {former.name} cannot be carried over: {error}") from error


def _has_tombstones(connection: apsw.Connection) -> bool:
    """Whether its format knows them."""
    return bool(connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'tombstone'").get)
