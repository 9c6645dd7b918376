"""The commands `mnemon-server shadow`: shows the progress of a second embedding model, or removes it."""

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from mnemon.shared.terminal import echo

from mnemon_server.commands.errors import explained
from mnemon_server.commands.master_keys import data_dir_option, master_key_option, master_keys
from mnemon_server.config.loading import load_settings
from mnemon_server.domain.access import TENANT_ID
from mnemon_server.domain.backup import RECORDS
from mnemon_server.domain.errors import ConfigurationError

if TYPE_CHECKING:
    import apsw

    from mnemon_server.engines.sqlite.upkeep.shadow import ShadowProgress
    from mnemon_server.engines.vault_key import VaultKeyFile

POLL_S = 1.0


@click.group()
def shadow() -> None:
    """A second embedding model: the server computes its vectors in the background (setting embedding_shadow_model)."""


@shadow.command()
@click.option("--follow", is_flag=True, help="Show a progress bar until no vector is missing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@data_dir_option
@master_key_option
def status(*, follow: bool, as_json: bool, data_dir: Path | None, master_key_file: Path | None) -> None:
    """Say how many passages of each tenant have a vector of the second model, and how much both models agree.

    The overlap is the part of the ten nearest documents that both models have in common, for up to 100 stored texts of
    each kind of record. A server may be running. The exit code is 1 if vectors are missing, and 2 if there is no second
    model.
    """
    from mnemon_server.engines.sqlite.upkeep.overlap import overlap

    with explained(2):
        vaults = _vaults(data_dir, master_key_file)
        if follow:
            _follow(vaults)
        rows = []
        for keys in vaults:
            with _opened(keys) as connection:
                if (found := _progress(connection)) is not None:
                    rows.append((keys.folder.name, found, overlap(connection)))
        if not rows:
            echo("mnemon-server: no vault has vectors of a second model", err=True)
            sys.exit(2)
    if as_json:
        echo(json.dumps([_row(*row) for row in rows], indent=2, ensure_ascii=False))
    else:
        for tenant, found, share in rows:
            agreement = "" if share is None else f"; overlap@10 {share:.2f}"
            echo(f"{tenant}: {found.done:,} of {found.total:,} passages, {found.model}{agreement}")
    sys.exit(0 if all(found.is_complete for _, found, _ in rows) else 1)


@shadow.command()
@data_dir_option
@master_key_option
def remove(data_dir: Path | None, master_key_file: Path | None) -> None:
    """Remove the vectors of the second model from all vaults, while no server uses the data folder."""
    from mnemon_server.engines.folder import FolderInUseError, FolderLock
    from mnemon_server.engines.sqlite.schema import open_writer
    from mnemon_server.engines.sqlite.upkeep.shadow import remove as remove_shadow

    with explained(2):
        folder = _folder(data_dir)
        try:
            lock = FolderLock(folder)
        except FolderInUseError as error:
            raise ConfigurationError(
                f"a server uses {str(folder)!r}, and nothing has changed: stop it first"
            ) from error
        with lock:
            for keys in _vaults(data_dir, master_key_file):
                with closing(open_writer(keys.folder / RECORDS, keys)) as connection:
                    with connection:
                        remove_shadow(connection)
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _folder(data_dir: Path | None) -> Path:
    from mnemon_server.engines.vault_folders import vaults_folder

    return vaults_folder(data_dir or load_settings(environ=os.environ).settings.data_dir)


def _vaults(data_dir: Path | None, master_key_file: Path | None) -> "list[VaultKeyFile]":
    from mnemon_server.engines.folder import find_files
    from mnemon_server.engines.vault_key import VaultKeyFile

    master = master_keys(master_key_file)
    vaults = _folder(data_dir)
    folders = [file.parent for file in find_files(vaults, RECORDS) if file.parent.parent == vaults]
    return [VaultKeyFile(folder, master) for folder in folders if TENANT_ID.fullmatch(folder.name)]


@contextmanager
def _opened(keys: "VaultKeyFile") -> Iterator["apsw.Connection"]:
    from mnemon_server.engines.sqlite.schema import open_reader

    with closing(open_reader(keys.folder / RECORDS, keys)) as connection, connection:
        yield connection


def _progress(connection: "apsw.Connection") -> "ShadowProgress | None":
    from mnemon_server.engines.sqlite.upkeep.shadow import progress_of

    return progress_of(connection)


def _follow(vaults: "Sequence[VaultKeyFile]") -> None:
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("Embedding", total=None)
        while True:
            found = []
            for keys in vaults:
                with _opened(keys) as connection:
                    if (progress := _progress(connection)) is not None:
                        found.append(progress)
            done, total = sum(each.done for each in found), sum(each.total for each in found)
            bar.update(task, completed=done, total=total)
            if done >= total:
                return
            time.sleep(POLL_S)


def _row(tenant: str, found: "ShadowProgress", share: float | None) -> dict[str, object]:
    return {
        "tenant": tenant,
        "model": found.model,
        "done": found.done,
        "total": found.total,
        "complete": found.is_complete,
        "overlap_at_10": share,
    }
