"""The commands `mnemon-server shadow`: shows the progress of a second embedding model, or removes it."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import click
from mnemon.shared.terminal import echo

from mnemon_server.commands.data_folder import DataFolder, with_folder
from mnemon_server.commands.errors import explained
from mnemon_server.commands.progress import progress
from mnemon_server.domain.access import TENANT_ID
from mnemon_server.domain.backup import RECORDS

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
@with_folder
def status(*, follow: bool, as_json: bool, folder: DataFolder) -> None:
    """Say how many passages of each tenant have a vector of the second model, and how much both models agree.

    The overlap is the part of the ten nearest documents that both models have in common, for up to 100 stored texts of
    each kind of record. A server may be running. The exit code is 1 if vectors are missing, and 2 if there is no second
    model.
    """
    from mnemon_server.engines.sqlite.upkeep.overlap import overlap

    with explained(2):
        vaults = _vaults(folder)
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
@with_folder
def remove(folder: DataFolder) -> None:
    """Remove the vectors of the second model from all vaults, while no server uses the data folder."""
    from mnemon_server.engines.sqlite.schema import open_writer
    from mnemon_server.engines.sqlite.upkeep.shadow import remove as remove_shadow

    with explained(2), folder.locked():
        for keys in _vaults(folder):
            with closing(open_writer(keys.folder / RECORDS, keys)) as connection:
                with connection:
                    remove_shadow(connection)
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _vaults(folder: DataFolder) -> "list[VaultKeyFile]":
    from mnemon_server.engines.folder import find_files
    from mnemon_server.engines.vault_key import VaultKeyFile

    master, vaults = folder.master_keys(), folder.vaults
    folders = [file.parent for file in find_files(vaults, RECORDS) if file.parent.parent == vaults]
    return [VaultKeyFile(each, master) for each in folders if TENANT_ID.fullmatch(each.name)]


@contextmanager
def _opened(keys: "VaultKeyFile") -> Iterator["apsw.Connection"]:
    from mnemon_server.engines.sqlite.schema import open_reader

    with closing(open_reader(keys.folder / RECORDS, keys)) as connection, connection:
        yield connection


def _progress(connection: "apsw.Connection") -> "ShadowProgress | None":
    from mnemon_server.engines.sqlite.upkeep.shadow import progress_of

    return progress_of(connection)


def _follow(vaults: "Sequence[VaultKeyFile]") -> None:
    from rich.progress import MofNCompleteColumn, TimeRemainingColumn

    with progress(MofNCompleteColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("Embedding", total=None)
        while True:
            found = []
            for keys in vaults:
                with _opened(keys) as connection:
                    if (one := _progress(connection)) is not None:
                        found.append(one)
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
