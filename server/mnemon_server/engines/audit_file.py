"""The audit log in files: lines of JSON, each with a keyed hash of itself and all before it.

A line cannot be changed, removed or moved without the key, which is beside the files: whoever can read and write the
whole folder can make a new log. Keep copies elsewhere against that. The file `head` has the last line that was
synced, so that lines missing at the end are noticed, too.
"""

import contextlib
import hmac
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mnemon_server.domain.access.audit import AuditEntry
from mnemon_server.domain.errors import ConfigurationError, StorageFailedError
from mnemon_server.engines.private import create_file, create_folder

FOLDER_NAME = "audit"
FILE_BYTES_MAX = 64 << 20
"""A file that has reached this size is followed by another one."""
START = "0" * 64
"""In the place of the hash before the first line."""
_KEY, _HEAD = "key", "head"
_ID_CHARACTERS = 32
_JSON = json.JSONEncoder(sort_keys=True, ensure_ascii=True, separators=(",", ":"))

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What a check of the files found."""

    line_count: int
    problems: tuple[str, ...]
    """Sentences that name the place; empty if nothing was changed."""


class AuditFile:
    """Appends to the audit log of a data folder. One process at a time; any thread."""

    def __init__(self, data_dir: Path) -> None:
        """Opens or creates it. A last line that a kill has left unfinished is removed, and the log says so.

        Raises:
            ConfigurationError: the folder cannot be used.
        """
        self._folder = data_dir / FOLDER_NAME
        try:
            create_folder(self._folder)
            self._key = _read_key(self._folder)
            self._repair()
            self._sequence, self._chain = _last(self._folder)
        except OSError as error:
            raise ConfigurationError(f"the audit log in {str(self._folder)!r} cannot be opened: {error}") from error

    def append(self, entries: Sequence[AuditEntry | Mapping[str, Any]]) -> None:
        """Writes lines, and returns once they are on stable storage.

        Raises:
            StorageFailedError: they could not be written. Nothing of them is in the log.
        """
        path = self._current()
        sequence, chain, lines = self._sequence, self._chain, []
        for entry in entries:
            sequence += 1
            body = {"sequence": sequence, **(self._fields(entry) if isinstance(entry, AuditEntry) else entry)}
            line = _line(body)
            chain = _chain(self._key, chain, line)
            # The same object with its hash, without encoding it once more.
            lines.append(b'{"chain":"%b",%b' % (chain.encode(), line[1:]))
        size = path.stat().st_size if path.exists() else 0
        try:
            create_file(path)
            with path.open("ab") as file:
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())
            self._write_head(sequence, chain)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.truncate(path, size)
            raise StorageFailedError(f"the audit log cannot be written: {error}") from error
        self._sequence, self._chain = sequence, chain

    def _fields(self, entry: AuditEntry) -> dict[str, Any]:
        named = {
            "tenant": entry.tenant,
            "subject": entry.subject,
            "peer": entry.peer,
            "records": [_hash_of(self._key, entry.tenant, one) for one in entry.records],
        }
        return {
            "time": entry.time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "method": entry.method,
            "code": entry.code,
            "request_id": entry.request_id,
            **{key: value for key, value in named.items() if value},
        }

    def _current(self) -> Path:
        files = _files(self._folder)
        if files and files[-1].stat().st_size < FILE_BYTES_MAX:
            return files[-1]
        return self._folder / f"{self._sequence + 1:015d}.jsonl"

    def _write_head(self, sequence: int, chain: str) -> None:
        temporary = self._folder / f"{_HEAD}.new"
        create_file(temporary)
        temporary.write_text(json.dumps({"sequence": sequence, "chain": chain}), encoding="utf-8")
        temporary.replace(self._folder / _HEAD)

    def _repair(self) -> None:
        for path in _files(self._folder)[-1:]:
            data = path.read_bytes()
            kept = data.rfind(b"\n") + 1
            if kept < len(data):
                log.warning("the last line of the audit log %s was unfinished, and is removed", path)
                os.truncate(path, kept)


def read_audit(data_dir: Path) -> Iterator[dict[str, Any]]:
    """The lines of the audit log, oldest first. Raises StorageFailedError if one is not JSON."""
    for path in _files(data_dir / FOLDER_NAME):
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise StorageFailedError(f"line {number} of {path} is not a line of an audit log") from error


def verify_audit(data_dir: Path) -> AuditReport:
    """Checks every line against the ones before it, and the end against the file `head`. Reads only.

    Raises:
        ConfigurationError: the folder has no audit log, or its key cannot be read.
    """
    folder = data_dir / FOLDER_NAME
    if not folder.is_dir():
        raise ConfigurationError(f"{str(data_dir)!r} has no audit log")
    try:
        key = (folder / _KEY).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"the key of the audit log cannot be read: {error}") from error
    chain, sequence, problems, chains = START, 0, [], {0: START}
    try:
        for line in read_audit(data_dir):
            sequence += 1
            body = {name: value for name, value in line.items() if name != "chain"}
            expected = _chain(key, chain, _line(body))
            if line.get("sequence") != sequence or not hmac.compare_digest(str(line.get("chain")), expected):
                problems.append(f"entry {sequence} was changed, or an entry before it is missing")
                break
            chain = chains[sequence] = expected
    except StorageFailedError as error:
        problems.append(str(error))
    if not problems:
        problems += _end_problems(folder, chains, sequence)
    return AuditReport(sequence, tuple(problems))


def _end_problems(folder: Path, chains: Mapping[int, str], sequence: int) -> Iterator[str]:
    try:
        head = json.loads((folder / _HEAD).read_bytes())
    except (OSError, ValueError):
        if sequence:
            yield "the file head is missing or damaged, so entries may be missing at the end"
        return
    if head["sequence"] > sequence:
        yield f"the log ends with entry {sequence}, and {head['sequence']} were written"
    elif chains.get(head["sequence"]) != head["chain"]:
        yield f"entry {head['sequence']} is not the one that was written"


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl"))


def _last(folder: Path) -> tuple[int, str]:
    """The sequence number and the hash of the last line."""
    for path in reversed(_files(folder)):
        if lines := path.read_bytes().splitlines():
            last = json.loads(lines[-1])
            return int(last["sequence"]), str(last["chain"])
    return 0, START


def _read_key(folder: Path) -> bytes:
    path = folder / _KEY
    create_file(path)
    if not (key := path.read_bytes()):
        key = os.urandom(32)
        path.write_bytes(key)
    return key


def _chain(key: bytes, before: str, line: bytes) -> str:
    """The hash of a line that does not have it yet, and of all before it."""
    return hmac.digest(key, before.encode() + line, "sha256").hex()


def _hash_of(key: bytes, tenant: str, record_id: str) -> str:
    return hmac.digest(key, f"{tenant}\0{record_id}".encode(), "sha256").hex()[:_ID_CHARACTERS]


def audit_hash(data_dir: Path, tenant: str, record_id: str) -> str:
    """What the log has in place of an id."""
    return _hash_of((data_dir / FOLDER_NAME / _KEY).read_bytes(), tenant, record_id)


def _line(body: Mapping[str, Any]) -> bytes:
    return _JSON.encode(body).encode() + b"\n"
