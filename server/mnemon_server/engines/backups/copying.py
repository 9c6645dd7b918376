"""The files of a vault as they are at one commit."""

import hashlib
import logging
import os
import shutil
import uuid
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw

from mnemon_server.domain.backup import RECORDS, BackupProgress, Manifest
from mnemon_server.domain.clock import Clock
from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.engines.events.tables import segments
from mnemon_server.engines.file_errors import translated
from mnemon_server.engines.private import create_folder
from mnemon_server.engines.sqlite.connections import Connections
from mnemon_server.engines.sqlite.journal import RESTORED_EPOCH
from mnemon_server.engines.sqlite.query import fetch, stored_meta
from mnemon_server.engines.sqlite.upkeep.copying import copy_database
from mnemon_server.engines.vault_folders import COPIES
from mnemon_server.engines.vault_key import KEY_FILE

TIMELINE = "timeline"
_HEAD = "SELECT coalesce((SELECT max(sequence) FROM event), (SELECT value FROM meta WHERE key = 'event.floor'), 0)"

log = logging.getLogger(__name__)


class VaultCopy:
    """A copy of a vault's files in a folder beside them. `close` removes it.

    The files of sealed segments are links, because they never change. Everything that is derived is left out.
    """

    def __init__(self, folder: Path, clock: Clock) -> None:
        """Copies nothing yet. `folder` is that of the vault."""
        self.folder = folder / COPIES / uuid.uuid4().hex
        self._vault = folder
        self._clock = clock
        self.segments: list[str] = []
        """The paths of the sealed segments, relative to the vault."""
        self.manifest: Manifest
        """The manifest of the copy, still without its files and its base."""

    def make(self, connections: Connections) -> Generator[BackupProgress]:
        """Makes the copy. Yields and raises the same as `copy_database`."""
        with translated("create", "a copy of the vault"):
            create_folder(self.folder / TIMELINE)
            with suppress(FileNotFoundError):
                os.link(self._vault / KEY_FILE, self.folder / KEY_FILE)
        self.manifest = yield from copy_database(connections, self.folder / RECORDS, self._at_rest)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of its files, relative to its folder."""
        return RECORDS, *self.keys, *self.segments

    @property
    def keys(self) -> tuple[str, ...]:
        """The path of the key; empty if the vault has no key."""
        return (KEY_FILE,) if (self.folder / KEY_FILE).exists() else ()

    def close(self) -> None:
        """Removes the copy."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _at_rest(self, connection: apsw.Connection) -> Manifest:
        meta: dict[str, Any] = dict(fetch(connection, "SELECT key, value FROM meta"))
        missing: list[str] = []
        for row in segments(connection):
            if row.is_sealed:
                path = f"{TIMELINE}/{row.file_name}"
                (self.segments if self._link(path) else missing).append(path)
        return Manifest(
            backup_id=uuid.uuid4().hex,
            vault_id=_public(meta["epoch"]),
            epoch=_public(meta.get(RESTORED_EPOCH, meta["epoch"])),
            sequence=int(connection.execute(_HEAD).get),
            time=self._clock().isoformat(),
            records_format=int(connection.pragma("user_version")),
            model=str(meta.get("embedding_model", "")),
            base=None,
            files=(),
            missing=tuple(missing),
        )

    def _link(self, path: str) -> bool:
        """Links a file; returns False if it does not exist."""
        with translated("link", path):
            try:
                os.link(self._vault / path, self.folder / path)
            except FileNotFoundError:
                log.warning("%s is missing, and so it is not in the backup", path)
                return False
        return True


def discard_copies(folder: Path) -> None:
    """Removes the copies that a killed process has left in a vault's folder."""
    shutil.rmtree(folder / COPIES, ignore_errors=True)


def refuse_foreign(base: Manifest, connection: apsw.Connection) -> None:
    """Raises InvalidArgumentError if a backup is not of this vault."""
    if base.vault_id != _public(stored_meta(connection, "epoch")):
        raise InvalidArgumentError.of("base", "must be a backup of the same vault")


def _public(epoch: bytes) -> str:
    """A name for a secret epoch."""
    return hashlib.sha256(epoch).hexdigest()[:32]
