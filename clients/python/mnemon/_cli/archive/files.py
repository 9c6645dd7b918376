"""The files of exports and imports: written atomically, and read in parts."""

import io
import os
import posixpath
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TextIO, TypeVar

import click

from mnemon._archive_lines import MARK
from mnemon._cli.documents.sources import file_id
from mnemon._cli.options import STDIN

_Part = TypeVar("_Part")

_FILE_MODE = 0o600


@contextmanager
def new_file(path: str) -> Iterator[TextIO]:
    """A file to write. It is synced and gets its name when the block succeeds; "-" is standard output.

    Only its owner can read it. Devices and pipes are written to directly.
    """
    if path == STDIN:
        yield sys.stdout
        sys.stdout.flush()
        return
    try:
        if _is_special(path):
            with Path(path).open("w", encoding="utf-8") as file:
                yield file
            return
        target = Path(path).resolve()
        # In the same folder, since a file can only be renamed within its file system.
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
        draft = Path(name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                draft.chmod(_FILE_MODE)
                yield file
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
            _sync_folder(target.parent)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise click.ClickException(f"{path}: it cannot be written: {error.strerror or error}") from error


def refuse_existing(path: str, advice: str) -> None:
    """Fails if the output file exists; `advice` tells how to proceed."""
    if path != STDIN and os.path.lexists(path) and not _is_special(path):
        raise click.ClickException(f"{path}: it exists already and was not changed; {advice}")


def _is_special(path: str) -> bool:
    return Path(path).exists() and not Path(path).is_file()


def _sync_folder(folder: Path) -> None:
    """Makes the new name durable; where folders cannot be synced, the system does that by itself."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A file to read."""

    path: str
    name: str
    """Its path inside the given folder, or the name of the file; with several paths, it begins with the path."""


def files_of(paths: Sequence[str]) -> list[GivenFile]:
    """The files at the paths; a folder contributes its files in name order, except hidden ones."""
    if STDIN in paths and len(paths) > 1:
        raise click.UsageError(f"{STDIN} is standard input, and cannot be read beside files")
    found: list[GivenFile] = []
    for path in paths:
        if Path(path).is_dir():
            inside = ((each, each.relative_to(path)) for each in sorted(Path(path).rglob("*")) if each.is_file())
            base = Path() if len(paths) == 1 else Path(posixpath.normpath(path))
            found += [GivenFile(str(each), (base / name).as_posix()) for each, name in inside if not _is_hidden(name)]
        else:
            found.append(GivenFile(path, "stdin" if path == STDIN else file_id(path, paths)))
    if not found:
        raise click.ClickException(f"{', '.join(paths)}: contains no files")
    return found


def _is_hidden(name: Path) -> bool:
    return any(part.startswith(".") for part in name.parts)


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """A file or standard input. Unless it is an archive, it can be read more than once."""
    try:
        given = nullcontext(sys.stdin.buffer) if path == STDIN else Path(path).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise _unreadable(path, error) from error
    with given as file, tempfile.TemporaryFile() as copy:
        if file.seekable() or (isinstance(file, io.BufferedReader) and MARK.encode() in file.peek()):
            yield file
            return
        shutil.copyfileobj(file, copy)
        copy.seek(0)
        yield copy


def reading(path: str, parts: Iterable[_Part]) -> Iterator[_Part]:
    """The parts of a file; an error in reading one names the file."""
    try:
        yield from parts
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: OSError) -> click.ClickException:
    return click.ClickException(f"{path}: it cannot be read: {error.strerror or error}")
