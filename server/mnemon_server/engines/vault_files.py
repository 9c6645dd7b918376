"""The files of a vault beside records.db: whether they are there, and undamaged."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw

from mnemon_server.domain.backup import RECORDS
from mnemon_server.domain.damage import UNREADABLE
from mnemon_server.domain.errors import MnemonError, RecordDamagedError
from mnemon_server.engines.events.segment_files import FOLDER
from mnemon_server.engines.events.tables import sealed_names
from mnemon_server.engines.events.text_file import FILE_NAME
from mnemon_server.engines.hnsw import snapshots
from mnemon_server.engines.sqlite.pages.page_file import PageFile
from mnemon_server.engines.vault_key import SNAPSHOTS, VaultKeyFile

_GRAPHS = ("index/*/*.graph", "semantic-index/*.graph")
_PAGES_NAMED = 5


Connect = Callable[[Path, VaultKeyFile], apsw.Connection]
"""Opens a database for reading."""


def missing_segments(keys: VaultKeyFile, connect: Connect) -> list[Path]:
    """The sealed segments of the timeline that are not there. Nothing is missing if records.db cannot be read.

    Raises:
        VaultKeyError: the key cannot be read.
    """

    def missing() -> set[Path]:
        with closing(connect(keys.folder / RECORDS, keys)) as connection:
            paths = [keys.folder / FOLDER / name for name in sealed_names(connection)]
        return {path for path in paths if not path.exists()}

    try:
        # Twice, because a server that uses the folder may have replaced one meanwhile.
        return sorted(missing() & missing())
    except (*UNREADABLE, apsw.Error, RecordDamagedError):
        return []


def damaged_files(keys: VaultKeyFile, connect: Connect) -> Iterator[tuple[Path, str]]:
    """Reads every byte of the files that are made from records.db and from the events; yields those that are damaged,
    each with its problem. A server makes them again.

    Raises:
        VaultKeyError: the key cannot be read.
    """
    key = keys.find()
    if (text := keys.folder / "timeline-index" / FILE_NAME).exists() and (
        problem := damaged_pages(text, keys, connect)
    ):
        yield text, problem
    for path in sorted(path for pattern in _GRAPHS for path in keys.folder.glob(pattern)):
        try:
            problem = snapshots.damage_of(path, key.cipher(SNAPSHOTS) if key else None)
        except FileNotFoundError:
            continue  # a server has written newer ones
        except OSError as error:
            problem = f"it cannot be read: {error.strerror}"
        if problem:
            yield path, problem


def damaged_pages(path: Path, keys: VaultKeyFile, connect: Connect) -> str | None:
    """The damage in a database, in words; None if it is intact."""
    try:
        with closing(connect(path, keys)) as connection:
            pages = [*PageFile(connection).damaged()]
    except (apsw.Error, MnemonError) as error:
        return str(error)
    named = ", ".join(map(str, pages[:_PAGES_NAMED])) + (" and others" if len(pages) > _PAGES_NAMED else "")
    return f"page {named}: it is not what was written" if pages else None
