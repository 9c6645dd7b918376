"""Reports about the files of segments, without records.db."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw

from mnemon_server.domain.clock import from_microseconds
from mnemon_server.domain.errors import MnemonError
from mnemon_server.engines.events.segment_files import QUARANTINE, damage_of
from mnemon_server.engines.folder import find_files
from mnemon_server.engines.master_keys import NO_MASTER_KEYS, MasterKeys
from mnemon_server.engines.sqlite.pages.database import connect_at_rest
from mnemon_server.engines.sqlite.query import fetch
from mnemon_server.engines.vault_key import VaultKeyFile

_CONTENT = (
    "SELECT s.segment_id, s.generation, s.event_count, (SELECT min(sequence) FROM timeline_event),"
    " (SELECT max(sequence) FROM timeline_event), (SELECT min(time) FROM timeline_event),"
    " (SELECT max(time) FROM timeline_event) FROM segment AS s"
)


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """The content of one file. The numbers are 0 if they cannot be read."""

    path: Path
    size: int
    problem: str = ""
    """A description of the damage; empty without any."""
    segment_id: int = 0
    generation: int = 0
    event_count: int = 0
    first_sequence: int = 0
    last_sequence: int = 0
    earliest_us: int | None = None
    latest_us: int | None = None

    @property
    def is_sound(self) -> bool:
        """Whether nothing in it is damaged."""
        return not self.problem


def inspect_segment(path: Path, master: MasterKeys = NO_MASTER_KEYS) -> SegmentReport:
    """Reads a whole file, and changes nothing. The key of its vault is expected in the folder above its own."""
    keys = VaultKeyFile(path.absolute().parent.parent, master)
    size = path.stat().st_size
    try:
        problem = damage_of(path, keys) or ""
        with closing(connect_at_rest(path, keys)) as connection:
            rows = fetch(connection, _CONTENT)
    except (MnemonError, apsw.Error, UnicodeDecodeError) as error:
        return SegmentReport(path, size, str(error))
    return SegmentReport(path, size, problem, *rows[0]) if rows else SegmentReport(path, size, "it is empty")


def find_segments(folder: Path) -> list[Path]:
    """The segments in a folder and all its subfolders, sorted, without those in quarantine. Raises OSError as
    `find_files`.
    """
    return [path for path in find_files(folder, "*.segment") if QUARANTINE not in path.relative_to(folder).parts]


def inspect_folder(paths: Sequence[Path], master: MasterKeys = NO_MASTER_KEYS) -> Iterator[SegmentReport]:
    """A report for each file, in order, without files that a server removed meanwhile."""
    for path in paths:
        try:
            report = inspect_segment(path, master)
        except FileNotFoundError:
            continue
        if report.is_sound or path.exists():
            yield report


def find_contradictions(reports: Sequence[SegmentReport]) -> list[str]:
    """Contradictions between these files, as sentences. Segments in one folder belong to one vault."""
    folders: dict[Path, list[SegmentReport]] = {}
    for report in reports:
        if report.is_sound:
            folders.setdefault(report.path.parent, []).append(report)
    return [
        f"{first.path} and {second.path} both contain events {second.first_sequence} to "
        f"{min(first.last_sequence, second.last_sequence)}"
        for members in folders.values()
        for first, second in pairwise(sorted(members, key=lambda each: each.first_sequence))
        if second.first_sequence <= first.last_sequence
    ]


def render(report: SegmentReport) -> str:
    """The report as text for people."""
    lines = [f"{report.path}: {'sealed' if report.is_sound else 'damaged'}, {report.size:,} bytes"]
    if report.segment_id:
        lines.append(f"segment {report.segment_id}, generation {report.generation}")
        lines.append(
            f"events: {report.event_count:,}, {report.first_sequence} to {report.last_sequence}, from "
            f"{_time(report.earliest_us)} to {_time(report.latest_us)}"
        )
    return "\n  ".join([*lines, *([report.problem] if report.problem else [])])


def as_json(report: SegmentReport) -> dict[str, Any]:
    """The report for programs."""
    return {
        "path": str(report.path),
        "sound": report.is_sound,
        "size_bytes": report.size,
        "problem": report.problem,
        "segment_id": report.segment_id,
        "generation": report.generation,
        "event_count": report.event_count,
        "first_sequence": report.first_sequence,
        "last_sequence": report.last_sequence,
        "earliest": _time(report.earliest_us),
        "latest": _time(report.latest_us),
    }


def _time(time_us: int | None) -> str | None:
    return None if time_us is None else from_microseconds(time_us).isoformat()
