"""The command `mnemon-server verify`: reads all stored data and reports damage."""

import json
import os
import shlex
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from mnemon.shared.terminal import echo

from mnemon_server.commands.data_folder import DataFolder, master_key_option
from mnemon_server.commands.errors import explained
from mnemon_server.commands.progress import progress
from mnemon_server.domain.backup import MANIFEST, RECORDS, BackupError
from mnemon_server.domain.errors import ConfigurationError, RecordDamagedError, StorageFailedError

if TYPE_CHECKING:
    from rich.progress import Progress

    from mnemon_server.engines.backups.chain import StoredBackup
    from mnemon_server.engines.master_keys import MasterKeys
    from mnemon_server.engines.vault_key import VaultKeyFile


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path, exists=True, file_okay=False, readable=False))
@master_key_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify(folder: Path | None, master_key_file: Path | None, *, as_json: bool) -> None:
    """Read every record and every segment in FOLDER (default: data_dir), and every byte of the backups in it.

    The exit code is 1 if anything is damaged, and 2 if FOLDER could not be read to the end.

    Nothing is changed. A server may be running. It is delayed no more than by a search, except that SQLite cannot
    shorten its write-ahead log while it checks a large table.
    """
    from mnemon_server.engines.access_file import FILE_NAME, KEY_NAME
    from mnemon_server.engines.backups.chain import find_backups
    from mnemon_server.engines.backups.folders import find_drafts
    from mnemon_server.engines.sqlite.upkeep.verification import find_records
    from mnemon_server.engines.vault_folders import VAULT_GONE, missing_vaults, vaults_folder
    from mnemon_server.engines.vault_key import VaultKeyFile

    with explained(2):
        data = DataFolder(folder, master_key_file)
        folder, master = data.path, data.master_keys()
        backups = find_backups(folder)
        within = {*(backup.folder for backup in backups), *find_drafts(folder)}
        missing = {vaults_folder(folder) / tenant for tenant in missing_vaults(folder)}
        files = [file for file in find_records(folder) if file.parent not in within | missing]
        with progress() as bar:
            keys_of = [VaultKeyFile(file.parent, master) for file in files]
            damages = [damage for keys in keys_of for damage in _vault(keys, folder, bar)]
            damages += [{"file": f"tenants/{gone.name}/{RECORDS}", "text": VAULT_GONE} for gone in sorted(missing)]
            damages += _links(folder)
            damages += _access(VaultKeyFile(folder, master, KEY_NAME))
            damages += _segments(folder, within, master, bar)
            of_backups = [damage for backup in backups for damage in _backup(backup, folder, bar)]
        if not (files or backups or damages or (folder / FILE_NAME).exists()):
            raise ConfigurationError(f"there are no records in {str(folder)!r}")
    steps = [*_next_steps(folder, has_damage=bool(damages), has_bad_backup=bool(of_backups))]
    damages += of_backups
    if as_json:
        figures = {"sound": not damages, "vaults": len(files), "backups": len(backups), "damages": damages}
        figures |= {"next_steps": steps} if steps else {}
        echo(json.dumps(figures, indent=2))
    else:
        for damage in damages:
            echo(f"{damage['file']}: {damage['text']}")
        kept = f"; backups: {len(backups):,}" if backups else ""
        echo(f"vaults: {len(files):,}{kept}; damaged places: {len(damages):,}")
        for step in steps:
            echo(step, err=True)
    sys.exit(1 if damages else 0)


def _next_steps(folder: Path, *, has_damage: bool, has_bad_backup: bool) -> Iterator[str]:
    """The steps that an operator can take after damage."""
    where = shlex.quote(str(folder))
    if has_damage:
        yield (
            f"Next: stop the server and run `mnemon-server repair --data-dir {where} --dry-run`. For each file, it "
            "says whether `repair` can rebuild it from the rest, or only a backup brings it back: "
            f"`mnemon-server restore BACKUP --data-dir {where} --tenant TENANT --replace`."
        )
    if has_bad_backup:
        yield (
            "A damaged backup cannot be repaired, nor can those that build on it be restored: make a new one with "
            "`mnemon-server backup FOLDER`, without a base."
        )


def _vault(keys: "VaultKeyFile", folder: Path, bar: "Progress") -> Iterator[dict[str, Any]]:
    """The damage in records.db, and in the files that are derived from it."""
    from mnemon_server.engines.master_keys import VaultKeyError
    from mnemon_server.engines.sqlite.schema import open_reader
    from mnemon_server.engines.sqlite.upkeep.verification import RecordsVerifier, open_still
    from mnemon_server.engines.vault_files import damaged_files, missing_segments

    file = keys.folder / RECORDS
    name = str(file.relative_to(folder))
    try:
        opened = RecordsVerifier(file, keys)
    except (StorageFailedError, RecordDamagedError, VaultKeyError) as error:
        yield {"file": name, "text": str(error)}
        return
    with opened as verifier:
        task = bar.add_task(f"{name}{' (in use)' if verifier.is_served else ''}", total=verifier.row_count)
        for step in verifier.run():
            bar.advance(task, step.rows)
            for each in step.damages:
                text = str(each)
                yield {"file": name, "table": each.table, "row": each.row, "problem": each.problem, "text": text}
        connect = open_reader if verifier.is_served else open_still
        for path in missing_segments(keys, connect):
            yield {"file": str(path.relative_to(folder)), "text": "the file is missing"}
        for path, problem in damaged_files(keys, connect):
            yield {"file": str(path.relative_to(folder)), "text": f"{problem}; a server makes it again"}


def _links(folder: Path) -> Iterator[dict[str, Any]]:
    """The symbolic links among the files of vaults; settings and certificates may be links."""
    from mnemon_server.engines.folder import LinkError, find_links
    from mnemon_server.engines.vault_folders import vaults_folder

    vaults = vaults_folder(folder)
    for link in find_links(vaults if os.path.lexists(vaults) else folder):
        yield {"file": str(link.relative_to(folder)), "text": str(LinkError(link))}


def _access(keys: "VaultKeyFile") -> Iterator[dict[str, Any]]:
    """The damage in the file of API keys and tenants."""
    from mnemon_server.engines.repair import access_damage

    yield from ({"file": file, "text": problem} for file, problem in access_damage(keys))


def _backup(backup: "StoredBackup", folder: Path, bar: "Progress") -> Iterator[dict[str, Any]]:
    from mnemon_server.engines.backups.chain import damage_of

    name = backup.folder.relative_to(folder)
    try:
        total = sum(file.size for file in backup.files)
    except BackupError as error:
        yield {"file": str(name / MANIFEST), "text": str(error)}
        return
    task = bar.add_task(f"{name}", total=total)
    for path, problem in damage_of(backup, lambda count: bar.advance(task, count)):
        yield {"file": str(path.relative_to(folder)), "text": problem}


def _segments(
    folder: Path, backups: Collection[Path], master: "MasterKeys", bar: "Progress"
) -> Iterator[dict[str, Any]]:
    from mnemon_server.engines.events.inspection import (
        find_contradictions,
        find_segments,
        inspect_folder,
        render,
    )

    paths = [path for path in find_segments(folder) if path.parent.parent not in backups]
    task = bar.add_task("timeline", total=len(paths), visible=bool(paths))
    reports = []
    for report in inspect_folder(paths, master):
        bar.advance(task)
        reports.append(report)
        if not report.is_sound:
            yield {"file": str(report.path.relative_to(folder)), "text": render(report)}
    for text in find_contradictions(reports):
        yield {"file": "timeline", "text": text}
