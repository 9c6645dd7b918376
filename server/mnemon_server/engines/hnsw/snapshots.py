"""Snapshots of a graph in a folder: the two newest generations, each a file that must match its checksum.

A file consists of the magic number, the length of the header (4 bytes), the header (JSON), the arrays of `Links` in
order, and the SHA-256 of all that. Numbers are little-endian. It contains the ids of passages, their links, and the
directions onto which their vectors were projected, but neither vectors nor text, so only numbers remain of a deleted
document. With a cipher, all of that is encrypted.
"""

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.clock import Clock
from mnemon_server.engines.encryption import Cipher, DecryptionError, is_encrypted
from mnemon_server.engines.hnsw.links import Links, LinksError
from mnemon_server.engines.hnsw.settings import GraphSettings
from mnemon_server.engines.private import create_folder, sync

log = logging.getLogger(__name__)

FORMAT = 3
GENERATIONS = 2
_MAGIC = b"MNEMGRPH"
_SUFFIX = ".graph"
_DIGEST_BYTES = hashlib.sha256().digest_size


class SnapshotDamagedError(Exception):
    """The file's content differs from what was written."""


class SnapshotStaleError(Exception):
    """The file is intact, but belongs to other vectors, other parameters or another version of the program."""


@dataclass(frozen=True, slots=True)
class SnapshotIdentity:
    """The identity of a snapshot's graph. A snapshot with another identity is not used."""

    store: str
    """The database that contains the vectors."""
    model: str
    dimension: int
    graph_dimension: int
    """The number of components that the graph uses."""
    m: int
    ef_construction: int

    @classmethod
    def of(cls, store: str, model: str, dimension: int, settings: GraphSettings) -> "SnapshotIdentity":
        """The identity of graphs built with these settings."""
        width = settings.graph_dimension(dimension)
        return cls(store, model, dimension, width, settings.m, settings.ef_construction)


class SnapshotFolder:
    """The snapshots of one graph. One thread uses it."""

    def __init__(
        self, folder: Path, quarantine: Path, identity: SnapshotIdentity, clock: Clock, cipher: Cipher | None = None
    ) -> None:
        """Does not access the folder, which contains nothing else. The first snapshot creates it.

        Damaged files are moved to the quarantine, which is on the same file system. Without a cipher, files are not
        encrypted, and encrypted ones cannot be read.
        """
        self._folder = folder
        self._quarantine = quarantine
        self._identity = identity
        self._clock = clock
        self._cipher = cipher

    def generations(self) -> list[Path]:
        """The existing snapshots, newest first."""
        return sorted(self._folder.glob(f"*{_SUFFIX}"), key=_number, reverse=True)

    def has_any(self) -> bool:
        """Whether there is a snapshot to try; False if the folder cannot be read."""
        try:
            return bool(self.generations())
        except OSError:
            return False

    def read(self, path: Path) -> tuple[Links, datetime]:
        """Reads and checks a snapshot; returns its content and its time.

        Raises:
            SnapshotDamagedError: the file is damaged and should be moved into quarantine.
            SnapshotStaleError: it is intact, but does not belong to this graph.
            OSError: it cannot be read.
        """
        # Read once, so that the bytes used are the bytes checked.
        body = _checked(path.read_bytes(), self._cipher)
        try:
            header, arrays = _split(body)
            if header["format"] != FORMAT:
                age = "a newer" if header["format"] > FORMAT else "an older"
                raise SnapshotStaleError(f"{age} program wrote it")
            if header["identity"] != asdict(self._identity):
                raise SnapshotStaleError("it belongs to another database, model or kind of graph")
            links = _decode(header, arrays)
            links.check()
            return links, datetime.fromisoformat(header["time"])
        except (KeyError, TypeError, ValueError, LinksError) as error:
            raise SnapshotDamagedError(str(error)) from error

    def save(self, links: Links) -> datetime:
        """Writes the next generation, and removes all but the two newest. Returns the snapshot's time.

        Raises:
            OSError: it could not be written; earlier generations are unchanged.
        """
        now = self._clock()
        content = self._encrypted(_encode(links, self._identity, now))
        create_folder(self._folder)
        newest = next(iter(self.generations()), None)
        target = self._folder / f"{(_number(newest) if newest else 0) + 1:08}{_SUFFIX}"
        draft = target.with_suffix(".tmp")
        try:
            _write(draft, content)
            draft.replace(target)
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            raise
        sync(self._folder)
        self._remove(self.generations()[GENERATIONS:])
        return now

    def clear(self) -> None:
        """Removes all snapshots, and the remains of an interrupted `save`."""
        self._remove([*self.generations(), *self._folder.glob("*.tmp")])

    def quarantine(self, path: Path) -> None:
        """Moves a damaged file to quarantine, or leaves it in place if that fails."""
        target = self._quarantine / f"{self._folder.name}-{path.stem}-{self._clock():%Y%m%dT%H%M%S%fZ}{_SUFFIX}"
        try:
            create_folder(self._quarantine)
            path.rename(target)
        except OSError as error:
            log.warning("a damaged snapshot could not be moved into quarantine: %s", error)

    def _encrypted(self, content: bytes) -> bytes:
        return self._cipher.encrypt_file(content) if self._cipher and self._cipher.is_for_new else content

    def _remove(self, paths: Sequence[Path]) -> None:
        for path in paths:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                log.warning("an old snapshot could not be removed: %s", error)


def _number(path: Path) -> int:
    return int(path.stem) if path.stem.isdecimal() else 0


def _encode(links: Links, identity: SnapshotIdentity, time: datetime) -> bytes:
    header = json.dumps(
        {
            "format": FORMAT,
            "identity": asdict(identity),
            "count": len(links),
            "upper_count": len(links.upper),
            "entry": links.entry,
            "time": time.isoformat(),
        }
    ).encode()
    arrays: list[NDArray[Any]] = [links.passage_ids, links.fingerprints, links.levels, links.ground, links.upper]
    content = [array.tobytes() for array in [*arrays, links.directions]]
    body = b"".join([_MAGIC, len(header).to_bytes(4, "little"), header, *content])
    return body + hashlib.sha256(body).digest()


def damage_of(path: Path, cipher: Cipher | None) -> str | None:
    """The damage in a snapshot of any format, in words; None if it is intact. Raises OSError if it cannot be read."""
    try:
        _checked(path.read_bytes(), cipher)
    except SnapshotDamagedError as error:
        return str(error)
    return None


def _checked(content: bytes, cipher: Cipher | None) -> memoryview:
    """Checks the checksum; returns the decrypted content before it."""
    view = memoryview(_decrypted(content, cipher))
    body, digest = view[:-_DIGEST_BYTES], view[-_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest or body[: len(_MAGIC)] != _MAGIC:
        raise SnapshotDamagedError("the checksum is wrong")
    return body


def _decrypted(content: bytes, cipher: Cipher | None) -> bytes:
    if not is_encrypted(content):
        return content
    if cipher is None:
        raise SnapshotDamagedError("it is encrypted, and its key is not there")
    try:
        return cipher.decrypt_file(content)
    except DecryptionError as error:
        raise SnapshotDamagedError(str(error)) from error


def _split(body: memoryview) -> tuple[dict[str, Any], memoryview]:
    """The header and the arrays."""
    start = len(_MAGIC) + 4
    end = start + int.from_bytes(body[len(_MAGIC) : start], "little")
    return json.loads(bytes(body[start:end])), body[end:]


def _decode(header: dict[str, Any], arrays: memoryview) -> Links:
    """Raises ValueError or KeyError if the arrays do not match the header."""
    count, upper_count, identity = header["count"], header["upper_count"], header["identity"]
    m, width, dimension = identity["m"], identity["graph_dimension"], identity["dimension"]
    layout = np.dtype(
        [
            ("passage_ids", "<i8", (count,)),
            ("fingerprints", "<u4", (count,)),
            ("levels", "<i4", (count,)),
            ("ground", "<u4", (count, 1 + 2 * m)),
            ("upper", "<u4", (upper_count, 1 + m)),
            ("directions", "<f4", (width, dimension)),
        ]
    )
    if count < 1 or layout.itemsize != len(arrays):
        raise ValueError("the size of the arrays does not match the header")
    held = np.frombuffer(arrays, layout)[0]
    # Copies, because arrays in the file are not aligned.
    return Links(**{name: held[name].copy() for name in layout.names or ()}, entry=int(header["entry"]))


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    if path.read_bytes() != content:
        raise OSError("reading the file back gave different bytes")
