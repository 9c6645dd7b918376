"""The commands `mnemon-server timeline`, which read a timeline's files even while a server uses them."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from mnemon.shared.terminal import counted, echo

from mnemon_server.commands.data_folder import DataFolder, master_key_option
from mnemon_server.commands.progress import progress

if TYPE_CHECKING:
    from mnemon_server.engines.events.inspection import SegmentReport
    from mnemon_server.engines.master_keys import MasterKeys

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def timeline() -> None:
    """Inspect the files of a timeline. Nothing is changed, and a server may be running."""


@timeline.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@master_key_option
@_JSON
def inspect(files: tuple[Path, ...], master_key_file: Path | None, *, as_json: bool) -> None:
    """Print the content of segments and any damage; exit code 1 if anything is damaged."""
    from mnemon_server.engines.events.inspection import inspect_segment

    master = DataFolder(None, master_key_file).master_keys()
    _print([inspect_segment(file, master) for file in files], [], as_json=as_json)


@timeline.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False, readable=False))
@master_key_option
@_JSON
def verify(folder: Path, master_key_file: Path | None, *, as_json: bool) -> None:
    """Read every segment in a folder and its subfolders; exit code 1 if anything is damaged."""
    from mnemon_server.engines.events.inspection import find_contradictions

    reports = list(_verified(folder, DataFolder(None, master_key_file).master_keys()))
    _print(reports, find_contradictions(reports), as_json=as_json, only_unsound=True)


def _verified(folder: Path, master: "MasterKeys") -> Iterator["SegmentReport"]:
    """A report for each segment, while the terminal shows a progress bar."""
    from mnemon_server.engines.events.inspection import find_segments, inspect_folder

    paths = find_segments(folder)
    with progress() as bar:
        task = bar.add_task("Verifying", total=len(paths))
        for report in inspect_folder(paths, master):
            bar.advance(task)
            yield report


def _print(
    reports: list["SegmentReport"], contradictions: list[str], *, as_json: bool, only_unsound: bool = False
) -> None:
    from mnemon_server.engines.events.inspection import as_json as to_json
    from mnemon_server.engines.events.inspection import render

    sound = not contradictions and all(report.is_sound for report in reports)
    if as_json:
        segments = [to_json(report) for report in reports]
        echo(json.dumps({"sound": sound, "segments": segments, "contradictions": contradictions}, indent=2))
    else:
        for report in reports:
            if not (only_unsound and report.is_sound):
                echo(render(report))
        for text in contradictions:
            echo(text)
        if only_unsound:
            echo(_summary(reports))
    sys.exit(0 if sound else 1)


def _summary(reports: list["SegmentReport"]) -> str:
    unsound = sum(not report.is_sound for report in reports)
    events = sum(report.event_count for report in reports)
    return f"{counted(len(reports), 'segment')}, {counted(events, 'event')}; damaged segments: {unsound:,}"
