"""The files of exports and imports: written completely or not at all, and read line by line."""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import click

from mnemon._cli.documents.sources import STDIN
from mnemon._mappings import records_in

_FILE_MODE = 0o600


@contextmanager
def new_file(path: str) -> Iterator[TextIO]:
    """A file to write. It is synced and gets its name when the block succeeds; "-" is standard output.

    Only its owner can read it. A device or a pipe is written to as it is.
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
    """Fails if a file to write exists already; the advice says how to go on."""
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


def lines_of(path: str) -> Iterator[bytes]:
    """The lines of a file, or of standard input."""
    try:
        with sys.stdin.buffer if path == STDIN else Path(path).open("rb") as file:
            yield from file
    except OSError as error:
        raise click.ClickException(f"{path}: it cannot be read: {error.strerror or error}") from error


def foreign_records(path: str) -> Iterator[tuple[int, object]]:
    """The records of another system's export with their lines: JSON lines, or one JSON document over many lines.

    A line that is not JSON is returned as text.
    """
    lines = enumerate(lines_of(path), start=1)
    for number, line in lines:
        if not line.strip():
            continue
        try:
            found: Any = json.loads(line)
        except (ValueError, RecursionError):
            if number > 1 or line.lstrip()[:1] not in b"[{":
                yield number, line.decode(errors="replace")
                continue
            # JSON that does not end on the first line is one document.
            found = _document(path, line + b"".join(rest for _, rest in lines))
        for record in records_in(found):
            yield number, record


def _document(path: str, content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise click.ClickException(f"{path}: it is neither JSON nor JSON lines: {error}") from error
