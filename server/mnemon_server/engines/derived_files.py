"""The files beside records.db that are made from it and from the events: whether they are damaged."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from shutil import rmtree

import apsw

from mnemon_server.domain.errors import MnemonError
from mnemon_server.engines.chroma import folder as chroma
from mnemon_server.engines.hnsw import snapshots
from mnemon_server.engines.sqlite.pages.page_file import PageFile
from mnemon_server.engines.timeline.rows.text_file import FILE_NAME, discard
from mnemon_server.engines.vault_key import SNAPSHOTS, VaultKeyFile

_GRAPHS = ("index/*/*.graph", "semantic-index/*.graph")
_CHROMA = ("chroma", "chroma-memories")
_PAGES_NAMED = 5


def damaged_files(
    keys: VaultKeyFile, connect: Callable[[Path, VaultKeyFile], apsw.Connection]
) -> Iterator[tuple[Path, str]]:
    """Reads every byte of the derived files; yields those that are damaged, each with its problem. A server makes them
    again.

    Args:
        keys: the file with the key, in the vault's folder.
        connect: opens a database for reading.

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
    for folder in (keys.folder / name for name in _CHROMA):
        if folder.is_dir() and (problem := chroma.damage_of(folder)):
            yield folder, problem


def remove(path: Path) -> None:
    """Removes a derived file or folder. Raises OSError if that fails."""
    if path.is_dir():
        rmtree(path)
    else:
        discard(path)


def damaged_pages(
    path: Path, keys: VaultKeyFile, connect: Callable[[Path, VaultKeyFile], apsw.Connection]
) -> str | None:
    """What is damaged in a database; None if nothing is."""
    try:
        with closing(connect(path, keys)) as connection:
            pages = [*PageFile(connection).damaged()]
    except (apsw.Error, MnemonError) as error:
        return str(error)
    named = ", ".join(map(str, pages[:_PAGES_NAMED])) + (" and others" if len(pages) > _PAGES_NAMED else "")
    return f"page {named}: it is not what was written" if pages else None
