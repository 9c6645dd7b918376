"""A second copy of the file of keys: a flipped bit in the only one would lock out every caller."""

import logging
import os
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

import apsw

from mnemon_server.domain.damage import PageDamagedError
from mnemon_server.domain.errors import MnemonError
from mnemon_server.engines.private import open_private, sync
from mnemon_server.engines.sqlite.pages.conversion import discard_draft, draft_of, put_draft_in_place
from mnemon_server.engines.sqlite.pages.database import MODE_READ, WrongKeyError, connect, connect_at_rest, is_plain
from mnemon_server.engines.sqlite.pages.page_file import PageFile
from mnemon_server.engines.sqlite.pages.raw_file import RawFile
from mnemon_server.engines.vault_key import VaultKeyFile

BUSY_TIMEOUT_MS = 30_000
PAGE_BYTES = 4_096

log = logging.getLogger(__name__)


class AccessCopy:
    """The copy, which is equal to the file byte by byte after each commit.

    Every commit changes the first page and another one. So if the two differ only in damaged pages, the copy is
    of the same commit, and no key that was revoked comes back with it.
    """

    def __init__(self, file: Path, copy: Path, keys: VaultKeyFile) -> None:
        """Opens nothing yet. `keys` has the key of both."""
        self._file, self._copy, self._keys, self._raw = file, copy, keys, RawFile(file)

    def is_alone(self) -> bool:
        """Whether the copy has content, and the file is missing or empty."""
        return self._copy.exists() and not (self._file.exists() and self._file.stat().st_size)

    def restore(self, *, dry_run: bool = False) -> None:
        """Restores a missing file from the copy, durably. Other processes must not open it meanwhile.

        Raises:
            PageDamagedError: the copy is damaged; the file stays missing.
            VaultKeyError: the key cannot be read.
            apsw.Error, OSError: the copy cannot be read, or the file not be written.
        """
        if damaged := self._damaged(self._copy):
            raise PageDamagedError(self._copy.name, damaged)
        if not dry_run:
            discard_draft(self._file)
            with open(draft_of(self._file), "xb", opener=open_private) as draft:
                draft.write(self._kept())
            put_draft_in_place(self._file)
            log.warning("%s was missing, and was put back from %s", self._file, self._copy.name)

    def mend(self, *, dry_run: bool = False) -> list[int]:
        """Restores damaged pages of the file, durably; returns their numbers. This process must not have it open.

        Raises:
            PageDamagedError: the copy is missing, damaged, or from another commit. Both files are unchanged.
            VaultKeyError: the key cannot be read.
            apsw.Error, OSError: the file cannot be read or written.
        """
        if not self._file.exists() or is_plain(self._file):
            return []
        if self._content() == self._kept() and not self._damaged(self._file):
            return []
        try:
            with closing(connect(self._file, self._keys, busy_timeout_ms=BUSY_TIMEOUT_MS)) as connection:
                # The lock keeps writers out.
                connection.execute("BEGIN IMMEDIATE")
                damaged = [*PageFile(connection).damaged()]
                if damaged:
                    self._put_back(damaged, dry_run=dry_run)
                return damaged
        except PageDamagedError as error:
            if error.pages != (1,) or self._differing() != [1]:
                raise
            # No process can write without the first page.
            self._put_back([1], dry_run=dry_run)
            return [1]

    def store(self) -> None:
        """Makes the copy equal to the file, durably, except for pages that are damaged in the file.

        A failure is only logged, because the file itself has been written.
        """
        try:
            with closing(
                connect(self._file, self._keys, flags=MODE_READ, busy_timeout_ms=BUSY_TIMEOUT_MS)
            ) as connection:
                connection.execute("BEGIN")
                connection.pragma("schema_version")  # other processes cannot write from here on
                changed, file = self._differing(), PageFile(connection)
                if changed:
                    self._write([number for number in changed if not file.is_damaged(number)])
        except (apsw.Error, OSError, MnemonError) as error:
            log.warning("%s could not be brought up to date: %s", self._copy, error)

    def close(self) -> None:
        """Closes the file, after all connections of this process to it."""
        self._raw.close()

    def _put_back(self, damaged: Sequence[int], *, dry_run: bool) -> None:
        if self._differing() != damaged or not set(damaged).isdisjoint(self._damaged(self._copy)):
            raise PageDamagedError(self._file.name, damaged)
        if not dry_run:
            _write_pages(self._raw.descriptor, self._kept(), damaged)
            named = ", ".join(map(str, damaged))
            log.warning("page %s of %s was damaged, and was put back from %s", named, self._file, self._copy.name)

    def _damaged(self, path: Path) -> list[int]:
        """The damaged pages of one of the two files. This process must have no connection to it."""
        try:
            with closing(connect_at_rest(path, self._keys)) as connection:
                return [*PageFile(connection).damaged()]
        except (PageDamagedError, WrongKeyError):
            return [1]

    def _write(self, numbers: Iterable[int]) -> None:
        is_new, content = not self._copy.exists(), self._content()
        descriptor = open_private(self._copy, os.O_RDWR | os.O_CREAT)
        try:
            os.ftruncate(descriptor, len(content))
            _write_pages(descriptor, content, numbers)
        finally:
            os.close(descriptor)
        if is_new:
            sync(self._copy.parent)

    def _differing(self) -> list[int]:
        """The pages in which the two differ; the first page is 1."""
        content, kept = self._content(), self._kept()
        starts = range(0, max(len(content), len(kept)), PAGE_BYTES)
        pairs = ((content[start : start + PAGE_BYTES], kept[start : start + PAGE_BYTES]) for start in starts)
        return [number for number, (page, other) in enumerate(pairs, start=1) if page != other]

    def _content(self) -> bytes:
        descriptor = self._raw.descriptor
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)

    def _kept(self) -> bytes:
        return self._copy.read_bytes() if self._copy.exists() else b""


def _write_pages(descriptor: int, content: bytes, numbers: Iterable[int]) -> None:
    for number in numbers:
        start = (number - 1) * PAGE_BYTES
        os.pwrite(descriptor, content[start : start + PAGE_BYTES], start)
    os.fsync(descriptor)
