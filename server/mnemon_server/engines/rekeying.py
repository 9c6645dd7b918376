"""Gives a vault another key, with which all of its files are encrypted anew: all of them, or none."""

import os
import shutil
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import apsw

from mnemon_server.domain.backup import RECORDS
from mnemon_server.domain.clock import system_clock
from mnemon_server.domain.errors import RecordDamagedError, StorageFailedError, StorageFullError
from mnemon_server.domain.events import CompactionProgress
from mnemon_server.engines.encryption import Cipher
from mnemon_server.engines.events.engine import TimelineRecords
from mnemon_server.engines.events.format.files import OsFiles
from mnemon_server.engines.events.format.layout import SegmentDamagedError
from mnemon_server.engines.events.rows.segments import sealed_names
from mnemon_server.engines.events.settings import DEFAULT_TIMELINE
from mnemon_server.engines.events.upkeep.compaction import Compaction
from mnemon_server.engines.events.upkeep.recovery import load_index
from mnemon_server.engines.events.upkeep.store import SegmentStore
from mnemon_server.engines.file_errors import translated
from mnemon_server.engines.folder import FolderLock
from mnemon_server.engines.master_keys import MasterKeys
from mnemon_server.engines.private import create_folder, sync
from mnemon_server.engines.sqlite.connections import Connections
from mnemon_server.engines.sqlite.journal import Journal
from mnemon_server.engines.sqlite.pages.conversion import copy_with_key
from mnemon_server.engines.sqlite.pages.database import MODE_NEW, connect
from mnemon_server.engines.vault_folders import UNFINISHED, draft_of, put_in_place
from mnemon_server.engines.vault_key import SEGMENTS, VaultKeyFile

_TIMELINE, _QUARANTINE = "timeline", "quarantine"
_NOT_JOINED = 1 << 60


def rekey(
    vaults: Path, tenant: str, master: MasterKeys, report: Callable[[CompactionProgress], None] = lambda _: None
) -> None:
    """Makes a copy of a vault with a new key beside the others, and puts it in the vault's place in one step.

    What is derived is left out, and made again by the next start of a server.

    Args:
        vaults: the folder of all vaults. No server uses it, and the caller has locked it.
        tenant: whose vault it is.
        master: the master keys; the first of them encrypts the new key.
        report: gets the progress of the timeline, which is encrypted if there is a master key.

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
            create_folder(draft / _TIMELINE)
            keys = VaultKeyFile(draft, master)
            keys.create()
            _copy_records(former, keys)
            _link(former.folder, keys)
            if (key := former.find()) is not None:
                _encrypt_segments(keys, key.cipher(SEGMENTS), report)
            sync(draft / RECORDS)
            sync(draft)
        put_in_place(vaults, tenant)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _copy_records(former: VaultKeyFile, keys: VaultKeyFile) -> None:
    # Opened as a server does, which converts older formats, checks the log and empties it.
    connections = Connections(former.folder / RECORDS, former)
    connections.open([])
    connections.close()
    try:
        with closing(connect(former.folder / RECORDS, former, flags=MODE_NEW | apsw.SQLITE_OPEN_URI)) as source:
            copy_with_key(source, keys.folder / RECORDS, keys.create())
    except apsw.FullError as error:
        raise StorageFullError(
            "the new files need as much free space as the vault, until it is replaced; free some space"
        ) from error
    except apsw.CorruptError as error:
        raise RecordDamagedError(RECORDS) from error
    except apsw.Error as error:
        raise StorageFailedError(f"{RECORDS} could not be encrypted with another key: {error}") from error


def _link(folder: Path, keys: VaultKeyFile) -> None:
    """Takes over the sealed segments, and the note that something is to be finished after a start."""
    with closing(connect(keys.folder / RECORDS, keys)) as connection:
        paths = [Path(_TIMELINE, name) for name in sealed_names(connection)]
    for path in (*paths, Path(UNFINISHED)):
        # A missing segment is told when the index is loaded.
        with suppress(FileNotFoundError):
            os.link(folder / path, keys.folder / path)


def _encrypt_segments(keys: VaultKeyFile, former: Cipher, report: Callable[[CompactionProgress], None]) -> None:
    journal = Journal(system_clock)
    connections = Connections(keys.folder / RECORDS, keys)
    records = TimelineRecords(journal, connections)
    connections.open([*records.followers, journal])
    with closing(connections):
        store = SegmentStore(
            OsFiles(keys.folder / _TIMELINE, keys.create().cipher(SEGMENTS, former)),
            OsFiles(keys.folder / _QUARANTINE),
            records.manifest,
            records.index,
        )
        try:
            if load_index(store, lambda: None):
                raise RecordDamagedError("timeline")
            for _ in Compaction(store, DEFAULT_TIMELINE, joined_min=_NOT_JOINED, report=report).run():
                pass
        except SegmentDamagedError as error:
            raise RecordDamagedError("timeline") from error
        finally:
            store.readers.close()
