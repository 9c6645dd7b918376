"""Gives a vault another key, with which all of its files are encrypted anew: all of them, or none."""

import logging
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw

from mnemon_server.domain.backup import RECORDS
from mnemon_server.domain.errors import RecordDamagedError, StorageFailedError, StorageFullError
from mnemon_server.domain.events import CompactionProgress
from mnemon_server.engines.events.segment_files import FOLDER, damage_of
from mnemon_server.engines.events.tables import segments
from mnemon_server.engines.file_errors import translated
from mnemon_server.engines.folder import FolderLock
from mnemon_server.engines.master_keys import MasterKeys
from mnemon_server.engines.private import create_folder, sync
from mnemon_server.engines.sqlite.connections import Connections
from mnemon_server.engines.sqlite.pages.conversion import copy_with_key
from mnemon_server.engines.sqlite.pages.database import MODE_NEW, connect
from mnemon_server.engines.vault_folders import UNFINISHED, draft_of, put_in_place
from mnemon_server.engines.vault_key import VaultKeyFile

log = logging.getLogger(__name__)


def rekey(
    vaults: Path, tenant: str, master: MasterKeys, report: Callable[[CompactionProgress], None] = lambda _: None
) -> None:
    """Makes a copy of a vault with a new key beside the others, and puts it in the vault's place in one step.

    What is derived is left out, and made again by the next start of a server. The caller has locked `vaults`, and no
    server uses it. The first of the master keys encrypts the new key. `report` gets the progress of the timeline.

    Raises:
        FolderInUseError: another process uses the vault.
        VaultKeyError: the present key cannot be read.
        RecordDamagedError: something of the vault is damaged, and nothing has changed.
        StorageFullError, StorageFailedError: the disk is full, or failed, and nothing has changed.
    """
    former, draft = VaultKeyFile(vaults / tenant, master), draft_of(vaults, tenant)
    try:
        with FolderLock(former.folder), translated("encrypt", "the vault anew"):
            shutil.rmtree(draft, ignore_errors=True)
            create_folder(draft / FOLDER)
            keys = VaultKeyFile(draft, master)
            keys.create()
            _copy_records(former, keys)
            _copy_segments(former, keys, report)
            sync(draft)
        put_in_place(vaults, tenant)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _copy_records(former: VaultKeyFile, keys: VaultKeyFile) -> None:
    # Opened as a server does, which converts older formats, checks the log and empties it.
    connections = Connections(former.folder / RECORDS, former)
    connections.open([])
    connections.close()
    _copy(former.folder / RECORDS, former, keys.folder / RECORDS, keys)


def _copy(source: Path, former: VaultKeyFile, target: Path, keys: VaultKeyFile) -> None:
    try:
        with closing(connect(source, former, flags=MODE_NEW | apsw.SQLITE_OPEN_URI)) as connection:
            copy_with_key(connection, target, keys.create())
    except apsw.FullError as error:
        raise StorageFullError(
            "the new files need as much free space as the vault, until it is replaced; free some space"
        ) from error
    except apsw.CorruptError as error:
        raise RecordDamagedError(source.name) from error
    except apsw.Error as error:
        raise StorageFailedError(f"{source.name} could not be encrypted with another key: {error}") from error
    sync(target)


def _copy_segments(former: VaultKeyFile, keys: VaultKeyFile, report: Callable[[CompactionProgress], None]) -> None:
    """Copies the sealed segments, and the note that something is to be finished after a start."""
    with closing(connect(keys.folder / RECORDS, keys)) as connection:
        rows = [row for row in segments(connection) if row.is_sealed]
    done, total = 0, sum(row.byte_count for row in rows)
    for row in rows:
        path = Path(FOLDER, row.file_name)
        if problem := damage_of(former.folder / path, former):
            log.error("%s: %s", path, problem)
            raise RecordDamagedError(FOLDER)
        _copy(former.folder / path, former, keys.folder / path, keys)
        done += row.byte_count
        report(CompactionProgress(done, total, len(rows), done=row is rows[-1]))
    if (former.folder / UNFINISHED).exists():
        os.link(former.folder / UNFINISHED, keys.folder / UNFINISHED)
    sync(keys.folder / FOLDER)
