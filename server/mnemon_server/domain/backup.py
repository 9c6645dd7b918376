"""Backups of a vault: the manifest, which says what a backup contains and proves it."""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

from mnemon_server.domain.errors import ConfigurationError

FORMAT, FORMAT_VERSION = "mnemon-backup", 1
MANIFEST = "manifest.json"
RECORDS = "records.db"
CHANGED = "records.db.changed"
"""In an incremental backup: the changed blocks of records.db, one after another."""
DIGEST_BYTES = 16
"""The bytes that are kept of a block's SHA-256."""
BLOCK_BYTES_MIN, BLOCKS_MAX = 4_096, 65_536
"""Blocks are pages, or larger, so that the manifest of a large vault still fits into a request."""

_OWN_DIGEST, _NO_DIGEST = "manifest_sha256", "0" * 64
"""The manifest has the SHA-256 of itself with zeros in its place."""
_PATH = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}(/[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99})?")
_HEX = re.compile(r"[0-9a-f]{32}|[0-9a-f]{64}")


class BackupError(ConfigurationError):
    """A backup cannot be used. The message names the file, and says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a backup, which the backup holds itself."""

    path: str
    """Relative to the folder of the backup."""
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Blocks:
    """The digests of a file's blocks, by which a later backup finds what has changed."""

    size: int
    """Bytes of a block; the last one may be shorter."""
    digests: bytes

    def is_block(self, number: int, digest: bytes) -> bool:
        """Whether the block with this number has this digest."""
        start = number * DIGEST_BYTES
        return self.digests[start : start + DIGEST_BYTES] == digest


@dataclass(frozen=True, slots=True)
class BackupFile:
    """A file of the vault."""

    path: str
    """Relative to the folder of the vault."""
    size: int
    sha256: str
    stored: StoredFile | None
    """The content in this backup; None if it equals the earlier one's, except for a smaller size."""
    blocks: Blocks | None = None
    changed: tuple[tuple[int, int], ...] | None = None
    """The blocks that `stored` has, as runs of adjacent ones: the first, and how many. None if it has all."""


@dataclass(frozen=True, slots=True)
class Base:
    """The earlier backup that an incremental one completes."""

    backup_id: str
    sha256: str
    """The digest of its manifest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of a backup: a vault at one commit."""

    backup_id: str
    vault_id: str
    """Stays the same when the vault is restored."""
    epoch: str
    """Changes with each restoration."""
    sequence: int
    """The newest change."""
    time: str
    """RFC 3339."""
    records_format: int
    model: str
    """The embedding model of the vectors."""
    base: Base | None
    files: tuple[BackupFile, ...]
    missing: tuple[str, ...] = ()
    """Files that the vault had lost already."""
    digest: str = ""
    """The SHA-256 of its bytes, once they are read."""

    def file(self, path: str) -> BackupFile | None:
        """The file with this path."""
        return next((file for file in self.files if file.path == path), None)

    def to_json(self) -> bytes:
        """The manifest as it is stored."""
        body = json.dumps(
            {
                "format": FORMAT,
                "format_version": FORMAT_VERSION,
                "backup_id": self.backup_id,
                "vault_id": self.vault_id,
                "epoch": self.epoch,
                "sequence": self.sequence,
                "time": self.time,
                "records_format": self.records_format,
                "embedding_model": self.model,
                "base": self.base and asdict(self.base),
                "files": [_file_to_json(file) for file in self.files],
                "missing": list(self.missing),
                _OWN_DIGEST: _NO_DIGEST,
            },
            indent=1,
        )
        return body.replace(_NO_DIGEST, hashlib.sha256(body.encode()).hexdigest()).encode()


@dataclass(frozen=True, slots=True)
class BackupProgress:
    """How far a backup is. Both figures are bytes that are read, and the total may still grow."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class BackupTarget:
    """Where a backup goes, and what it completes."""

    name: str = ""
    """Its name in the server's folder; empty streams its files."""
    base_name: str = ""
    """The name of an earlier backup in that folder."""
    base_manifest: bytes = b""
    """The manifest of an earlier backup elsewhere."""


@dataclass(frozen=True, slots=True)
class BackupSummary:
    """The end of a backup."""

    manifest: Manifest
    size: int
    """The bytes of its files."""


@dataclass(frozen=True, slots=True)
class BackupPart:
    """The next bytes of one of a backup's files. The files come one after another, the manifest last."""

    path: str
    data: bytes = field(repr=False)


BackupStep: TypeAlias = BackupProgress | BackupPart | Manifest
"""The next part of a backup; the manifest is the last."""


def block_bytes(size: int) -> int:
    """The block size for a file of `size` bytes."""
    block = BLOCK_BYTES_MIN
    while block * BLOCKS_MAX < size:
        block *= 2
    return block


def parse_manifest(data: bytes) -> Manifest:
    """Reads a manifest, which anyone may have written.

    Raises:
        BackupError: it is no manifest, or has a newer format.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BackupError(f"{MANIFEST} is damaged: it is not JSON") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise BackupError(f'{MANIFEST} is not that of a backup: it lacks "format": "{FORMAT}"')
    if content.get("format_version") != FORMAT_VERSION:
        raise BackupError(
            f"{MANIFEST} has the format version {content.get('format_version')!r}, and this program knows "
            f"{FORMAT_VERSION}: use the Mnemon that wrote it, or a newer one"
        )
    own = _Reader(content).hex(_OWN_DIGEST)
    if hashlib.sha256(data.replace(own.encode(), _NO_DIGEST.encode())).hexdigest() != own:
        raise BackupError(f"{MANIFEST} is damaged: it is not what its {_OWN_DIGEST} says")
    return replace(_manifest(_Reader(content)), digest=hashlib.sha256(data).hexdigest())


def _manifest(read: "_Reader") -> Manifest:
    base = read.child("base")
    return Manifest(
        backup_id=read.hex("backup_id"),
        vault_id=read.hex("vault_id"),
        epoch=read.hex("epoch"),
        sequence=read.number("sequence"),
        time=read.text("time"),
        records_format=read.number("records_format"),
        model=read.text("embedding_model"),
        base=Base(base.hex("backup_id"), base.hex("sha256")) if base else None,
        files=tuple(_file(each) for each in read.children("files")),
        missing=tuple(read.texts("missing")),
    )


def _file(read: "_Reader") -> BackupFile:
    stored, blocks = read.child("stored"), read.child("blocks")
    return BackupFile(
        read.path("path"),
        read.number("size"),
        read.hex("sha256"),
        StoredFile(stored.path("path"), stored.number("size"), stored.hex("sha256")) if stored else None,
        Blocks(blocks.block_size("bytes"), blocks.binary("sha256_128")) if blocks else None,
        read.runs("changed"),
    )


def _file_to_json(file: BackupFile) -> dict[str, Any]:
    row: dict[str, Any] = {"path": file.path, "size": file.size, "sha256": file.sha256}
    row["stored"] = file.stored and asdict(file.stored)
    if file.blocks:
        digests = base64.b64encode(file.blocks.digests).decode()
        row["blocks"] = {"bytes": file.blocks.size, "sha256_128": digests}
    if file.changed is not None:
        row["changed"] = [list(run) for run in file.changed]
    return row


class _Reader:
    """Reads the values of one JSON object, and names what is wrong."""

    def __init__(self, content: Mapping[str, Any], place: str = "") -> None:
        self._content = content
        self._place = place

    def text(self, name: str) -> str:
        value: str = self._checked(name, lambda value: isinstance(value, str), "a text")
        return value

    def texts(self, name: str) -> list[str]:
        value: list[str] = self._checked(name, lambda value: _is_list_of(value, str), "a list of texts")
        return value

    def number(self, name: str) -> int:
        value: int = self._checked(name, lambda value: type(value) is int and 0 <= value < 2**63, "a number")
        return value

    def block_size(self, name: str) -> int:
        if (value := self.number(name)) < BLOCK_BYTES_MIN or value & (value - 1):
            raise self._wrong(name, f"a power of two, {BLOCK_BYTES_MIN} or more")
        return value

    def hex(self, name: str) -> str:
        if not _HEX.fullmatch(value := self.text(name)):
            raise self._wrong(name, "32 or 64 hexadecimal digits")
        return value

    def path(self, name: str) -> str:
        if not _PATH.fullmatch(value := self.text(name)):
            raise self._wrong(name, "a path within the folder")
        return value

    def binary(self, name: str) -> bytes:
        try:
            return base64.b64decode(self.text(name), validate=True)
        except ValueError as error:
            raise self._wrong(name, "base64") from error

    def runs(self, name: str) -> tuple[tuple[int, int], ...] | None:
        """Pairs of numbers, or None."""
        if self._content.get(name) is None:
            return None
        value = self._checked(name, lambda value: _is_list_of(value, list), "a list of pairs")
        if not all(len(run) == 2 and _is_list_of(run, int) and min(run) >= 0 for run in value):
            raise self._wrong(name, "a list of pairs of numbers")
        return tuple((first, count) for first, count in value)

    def child(self, name: str) -> "_Reader | None":
        if (value := self._content.get(name)) is None:
            return None
        return _Reader(self._checked(name, lambda _: isinstance(value, dict), "an object"), f"{self._place}{name}.")

    def children(self, name: str) -> "list[_Reader]":
        value = self._checked(name, lambda value: _is_list_of(value, dict), "a list of objects")
        return [_Reader(each, f"{self._place}{name}[{number}].") for number, each in enumerate(value)]

    def _checked(self, name: str, is_valid: Callable[[Any], bool], wanted: str) -> Any:
        value = self._content.get(name)
        if not is_valid(value):
            raise self._wrong(name, wanted)
        return value

    def _wrong(self, name: str, wanted: str) -> BackupError:
        return BackupError(f"{MANIFEST} is damaged: {self._place}{name} must be {wanted}")


def _is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(type(each) is kind for each in value)
