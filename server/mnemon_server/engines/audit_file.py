"""The audit log in files: lines of JSON. The last of those that were written together has a keyed hash of all so far.

A line cannot be changed, removed or moved without the key, which is beside the files: anyone who can read and write the
whole folder can make a new log. Keep copies elsewhere against that. The file `head` has the last line that was
synced, so that lines missing at the end are noticed, too.
"""

import contextlib
import errno
import hmac
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mnemon_server.domain.access.audit import AuditEntry, LeftOut
from mnemon_server.domain.errors import ConfigurationError, StorageFailedError
from mnemon_server.engines.audit_lines import SEALED, AuditLines, Place
from mnemon_server.engines.private import create_file, create_folder, open_private

FOLDER_NAME = "audit"
FILE_BYTES_MAX = 64 << 20
"""A file that has reached this size is followed by another one."""
_KEY, _HEAD = "key", "head"
_HEAD_BYTES = 128
_PERSON = re.compile(rb'"subject":"(?:jwt:[^":]*|mtls:[a-z]+):((?:[^"\\]|\\.)+)"')

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of a check of the files."""

    line_count: int
    problems: tuple[str, ...]
    """Sentences that name the place; empty if nothing was changed."""


class AuditFile:
    """Appends to the audit log of a data folder. One process at a time; any thread."""

    def __init__(self, data_dir: Path) -> None:
        """Opens or creates it. An end that a kill has left unfinished is removed, and the server's log says so.

        Raises:
            ConfigurationError: the folder cannot be used.
        """
        self._folder = data_dir / FOLDER_NAME
        try:
            create_folder(self._folder)
            self._lines = AuditLines(_read_key(self._folder))
            # Lines that `head` knows and that are missing stay missing: otherwise, the next ones would hide that.
            self._end = max(_repaired(self._folder), _head(self._folder) or Place())
            self._path = next(reversed(_files(self._folder)), None) or self._new_path()
            self._size = self._path.stat().st_size if self._path.exists() else 0
        except OSError as error:
            raise ConfigurationError(f"the audit log in {str(self._folder)!r} cannot be opened: {error}") from error

    def append(self, entries: Sequence[AuditEntry | LeftOut]) -> None:
        """Writes lines, at least one, and returns once they are on stable storage.

        Raises:
            StorageFailedError: they could not be written. Nothing of them is in the log.
        """
        if self._size >= FILE_BYTES_MAX:
            self._path, self._size = self._new_path(), 0
        lines, end = self._lines.encoded(entries, self._end)
        try:
            _write(self._path, lines, os.O_APPEND | os.O_DSYNC)
            # In place, and always of the same length: to replace the file would cost more than all the rest.
            _write(self._folder / _HEAD, json.dumps(end._asdict()).ljust(_HEAD_BYTES).encode())
        except OSError as error:
            with contextlib.suppress(OSError):
                os.truncate(self._path, self._size)
            raise StorageFailedError(f"the audit log cannot be written: {error}") from error
        self._size += len(lines)
        self._end = end

    def _new_path(self) -> Path:
        return self._folder / f"{self._end.sequence + 1:015d}.jsonl"


def _write(path: Path, text: bytes, flags: int = 0) -> None:
    """Writes to a file, which it creates if needed. Raises OSError.

    A file object makes twice as many system calls, and waits for the interpreter after each of them.
    """
    descriptor = open_private(path, os.O_WRONLY | os.O_CREAT | flags)
    try:
        if os.write(descriptor, text) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)


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
        lines = AuditLines((folder / _KEY).read_bytes())
    except OSError as error:
        raise ConfigurationError(f"the key of the audit log cannot be read: {error}") from error
    # Before the lines: a server may add some meanwhile.
    head = _head(folder)
    end, together, problem, has_head = Place(), [], "", False
    for line in _lines(folder):
        together.append(line)
        if sealed := SEALED.fullmatch(line):
            chain = lines.chain(end.chain, [*together[:-1], b"{", sealed[2]])
            if not hmac.compare_digest(sealed[1], chain.encode()):
                problem = f"{_entries(end, together)} changed, or an entry before is missing"
                break
            end, together = Place(end.sequence + len(together), chain), []
            has_head = has_head or end == head
    if together and not problem:
        problem = f"{_entries(end, together)} added, or not written to the end"
    problem = problem or _end_problem(head, end, has_head=has_head)
    return AuditReport(end.sequence + len(together), (problem,) if problem else ())


def _entries(end: Place, together: Sequence[bytes]) -> str:
    """Which entries follow a place, as the beginning of a sentence."""
    first, last = end.sequence + 1, end.sequence + len(together)
    return f"entry {first} was" if first == last else f"one of the entries {first} to {last} was"


def _end_problem(head: Place | None, end: Place, *, has_head: bool) -> str:
    if head is None:
        return "the file head is missing or damaged, so entries may be missing at the end" if end.sequence else ""
    if head.sequence > end.sequence:
        return f"the log ends with entry {end.sequence}, and {head.sequence} were written"
    return "" if has_head else f"entry {head.sequence} is not the one that was written"


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl"))


def _lines(folder: Path) -> Iterator[bytes]:
    for path in _files(folder):
        with path.open("rb") as file:
            yield from file


def _repaired(folder: Path) -> Place:
    """Where the log ends, without lines of a write that a kill has ended: they are removed."""
    for path in reversed(_files(folder)):
        lines = path.read_bytes().splitlines(keepends=True)
        count = len(lines)
        while lines and not SEALED.fullmatch(lines[-1]):
            lines.pop()
        if len(lines) < count:
            log.warning("the end of the audit log %s was unfinished, and is removed", path)
            os.truncate(path, sum(map(len, lines)))
        if lines:
            return _place(lines[-1])
    return Place()


def _head(folder: Path) -> Place | None:
    """The last place that was synced; None if that cannot be read."""
    try:
        return _place((folder / _HEAD).read_bytes())
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _place(text: bytes) -> Place:
    found = json.loads(text)
    return Place(int(found["sequence"]), str(found["chain"]))


def _read_key(folder: Path) -> bytes:
    path = folder / _KEY
    create_file(path)
    if not (key := path.read_bytes()):
        key = os.urandom(32)
        path.write_bytes(key)
    return key


def audit_hash(data_dir: Path, tenant: str, record_id: str) -> str:
    """The form of an id in the log."""
    return AuditLines((data_dir / FOLDER_NAME / _KEY).read_bytes()).hash_of(tenant, record_id)


def caller_names(data_dir: Path) -> Callable[[str], str]:
    """Returns the function that names a subject in the logs of a data folder. Makes the key if needed.

    Raises:
        ConfigurationError: the folder cannot be used.
    """
    folder = data_dir / FOLDER_NAME
    try:
        create_folder(folder)
        return AuditLines(_read_key(folder)).name_of
    except OSError as error:
        raise ConfigurationError(f"the key of the audit log in {str(folder)!r} cannot be read: {error}") from error


def clear_subjects(data_dir: Path) -> set[str]:
    """The subjects of tokens that earlier versions logged in plain text. Blocks."""
    found = {each for line in _lines(data_dir / FOLDER_NAME) for each in _PERSON.findall(line)}
    return {json.loads(b'"%b"' % each) for each in found}
