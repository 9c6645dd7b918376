"""Turns a copy of a vault into the parts of a backup."""

import hashlib
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path

from mnemon_server.domain.backup import (
    CHANGED,
    DIGEST_BYTES,
    MANIFEST,
    RECORDS,
    BackupFile,
    BackupPart,
    BackupProgress,
    BackupStep,
    Base,
    Blocks,
    Manifest,
    StoredFile,
    block_bytes,
)
from mnemon_server.domain.clock import Clock
from mnemon_server.engines.backups.copying import VaultCopy, refuse_foreign
from mnemon_server.engines.file_errors import translated
from mnemon_server.engines.promises.backup import PART_BYTES
from mnemon_server.engines.sqlite.connections import Connections


def back_up(folder: Path, connections: Connections, base: Manifest | None, clock: Clock) -> Generator[BackupStep]:
    """See Copyable."""
    if base:
        with connections.lend() as connection:
            refuse_foreign(base, connection)
    copy = VaultCopy(folder, clock)
    try:
        copied = 0
        for step in copy.make(connections):
            copied = step.total
            # Twice, because the copy is read afterwards.
            yield BackupProgress(step.done, 2 * copied)
        yield from _Backup(copy, base, copied).parts()
    finally:
        copy.close()


class _Backup:
    """Reads a copy, and compares it with an earlier backup."""

    def __init__(self, copy: VaultCopy, base: Manifest | None, done: int) -> None:
        self._copy = copy
        self._base = base
        self._done = done
        self._total = done + sum((copy.folder / path).stat().st_size for path in copy.paths)

    def parts(self) -> Generator[BackupStep]:
        files = [(yield from self._records())]
        for path in (*self._copy.keys, *self._copy.segments):
            file = yield from self._file(path)
            files.append(file)
        base = Base(self._base.backup_id, self._base.digest) if self._base else None
        manifest = replace(self._copy.manifest, base=base, files=tuple(files))
        for part in _parts_of(manifest.to_json(), PART_BYTES):
            yield BackupPart(MANIFEST, part)
        yield manifest

    def _records(self) -> Generator[BackupStep, None, BackupFile]:
        """The blocks of records.db that differ from those of the base; all of them without one."""
        size = (self._copy.folder / RECORDS).stat().st_size
        block = block_bytes(size)
        known = self._base.file(RECORDS) if self._base else None
        # With another block size, nothing can be compared.
        former = known.blocks if known and known.blocks and known.blocks.size == block else None
        path = CHANGED if former else RECORDS
        whole, stored, digests = hashlib.sha256(), hashlib.sha256(), bytearray()
        changed: list[list[int]] = []
        stored_size = number = 0
        for piece in self._pieces(RECORDS, max(block, PART_BYTES)):
            whole.update(piece)
            kept = bytearray()
            for part in _parts_of(piece, block):
                digest = hashlib.sha256(part).digest()[:DIGEST_BYTES]
                digests += digest
                if former is None or not former.is_block(number, digest):
                    kept += part
                    if changed and sum(changed[-1]) == number:
                        changed[-1][1] += 1
                    else:
                        changed.append([number, 1])
                number += 1
            stored.update(kept)
            stored_size += len(kept)
            for part in _parts_of(bytes(kept), PART_BYTES):
                yield BackupPart(path, part)
            yield self._progress()
        return BackupFile(
            RECORDS,
            size,
            whole.hexdigest(),
            StoredFile(path, stored_size, stored.hexdigest()) if stored_size else None,
            Blocks(block, bytes(digests)),
            tuple((first, count) for first, count in changed) if former else None,
        )

    def _file(self, path: str) -> Generator[BackupStep, None, BackupFile]:
        """A file that never changes: a sealed segment, or the key. Left out if the base backup has it."""
        size = (self._copy.folder / path).stat().st_size
        known = self._base.file(path) if self._base else None
        if known and known.size == size and known.sha256 == self._sha256(path):
            yield self._progress()
            return BackupFile(path, size, known.sha256, None)
        digest = hashlib.sha256()
        for piece in self._pieces(path, PART_BYTES):
            digest.update(piece)
            yield BackupPart(path, piece)
            yield self._progress()
        return BackupFile(path, size, digest.hexdigest(), StoredFile(path, size, digest.hexdigest()))

    def _sha256(self, path: str) -> str:
        digest = hashlib.sha256()
        for piece in self._pieces(path, PART_BYTES):
            digest.update(piece)
        return digest.hexdigest()

    def _pieces(self, path: str, size: int) -> Iterator[bytes]:
        with translated("read", path), (self._copy.folder / path).open("rb") as file:
            while piece := file.read(size):
                self._done = min(self._done + len(piece), self._total)
                yield piece

    def _progress(self) -> BackupProgress:
        return BackupProgress(self._done, self._total)


def _parts_of(data: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]
