"""Reports about segment files without access to records.db, for `mnemon-server timeline`."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from mnemon_server.domain.errors import MnemonError
from mnemon_server.engines.events.format.files import OsFiles
from mnemon_server.engines.events.format.layout import Footer, SegmentDamagedError, SegmentHeader
from mnemon_server.engines.events.format.salvage import Damage, Salvage
from mnemon_server.engines.events.format.segment_reader import SegmentReader
from mnemon_server.engines.folder import find_files

_ATTEMPTS, _PAUSE_S = 4, 0.05
_QUARANTINE = "quarantine"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SegmentState(StrEnum):
    """The state of a file."""

    SEALED = "sealed"
    OPEN = "open"
    """Not sealed, without damage."""
    DAMAGED = "damaged"
    REFUSED = "refused"
    """A different segment than its name says, in a newer format, or unreadable."""


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """The content of one file."""

    path: Path
    state: SegmentState
    size: int
    header: SegmentHeader | None = None
    footer: Footer | None = None
    event_count: int = 0
    """The number of intact events."""
    erased_count: int = 0
    """The number of events that were removed and overwritten."""
    first_sequence: int | None = None
    """Sequences of the intact events."""
    last_sequence: int | None = None
    damages: tuple[Damage, ...] = ()
    torn: Damage | None = None
    """The bytes of an open file after its last complete event: an interrupted write, or one in progress."""
    problem: str = ""
    """Problems of the file as a whole."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing in it is damaged."""
        return self.state in (SegmentState.SEALED, SegmentState.OPEN)

    @property
    def lost_count(self) -> int | None:
        """How many events of a sealed file were lost; None if their original number is unknown."""
        return self.footer.event_count - self.event_count - self.erased_count if self.footer else None


def inspect_segment(path: Path) -> SegmentReport:
    """Reads a whole file of any kind, and changes nothing. A server may be writing to it meanwhile."""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE_S)
        size = _size_of(path)
        report = _inspect(path)
        # Apparent damage may be a write in progress: if the file has grown since the start, or is empty, as every new
        # file is for a moment.
        if report.is_sound or not path.exists() or _size_of(path) == size > 0:
            break
    return report


def find_segments(folder: Path) -> list[Path]:
    """The segments in a folder and all its subfolders, sorted, without those in quarantine. Raises OSError as
    `find_files`.
    """
    return [path for path in find_files(folder, "*.segment") if _QUARANTINE not in path.relative_to(folder).parts]


def inspect_folder(paths: Sequence[Path]) -> Iterator[SegmentReport]:
    """A report for each file, in order, without files that a server removed meanwhile."""
    for path in paths:
        report = inspect_segment(path)
        if report.state is not SegmentState.REFUSED or path.exists():
            yield report


def find_contradictions(reports: Sequence[SegmentReport]) -> list[str]:
    """Contradictions between these files, as sentences. Segments in one folder belong to one vault."""
    folders: dict[Path, list[SegmentReport]] = {}
    for report in reports:
        folders.setdefault(report.path.parent, []).append(report)
    return [text for members in folders.values() for text in _contradictions(members)]


def render(report: SegmentReport) -> str:
    """The report as text for people."""
    return "\n".join([f"{report.path}: {report.state}, {report.size:,} bytes", *map("  ".__add__, _lines(report))])


def as_json(report: SegmentReport) -> dict[str, Any]:
    """The report for programs: numbers in their units, bytes in hexadecimal."""
    header, footer = report.header, report.footer
    return {
        "path": str(report.path),
        "state": report.state.value,
        "size_bytes": report.size,
        "header": header
        and {
            "epoch": header.epoch.hex(),
            "first_sequence": header.first_sequence,
            "generation": header.generation,
            "created": _time(header.created_us),
        },
        "footer": footer
        and {
            "event_count": footer.event_count,
            "first_sequence": footer.first_sequence,
            "last_sequence": footer.last_sequence,
            "first_time": _time(footer.min_time_us),
            "last_time": _time(footer.max_time_us),
            "index_bytes": footer.index_length,
            "sha256": footer.sha256.hex(),
        },
        "event_count": report.event_count,
        "erased_count": report.erased_count,
        "first_sequence": report.first_sequence,
        "last_sequence": report.last_sequence,
        "lost_count": report.lost_count,
        "damages": [_damage_json(damage) for damage in report.damages],
        "torn": report.torn and _damage_json(report.torn),
        "problem": report.problem,
    }


def _size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _inspect(path: Path) -> SegmentReport:
    # The server does not follow symbolic links to segments, but a copy of a timeline may contain some.
    file = path.resolve()
    try:
        with SegmentReader(OsFiles(file.parent), file.name, epoch=None) as reader:
            salvage = reader.salvage()
            problem = _problem_of_whole(reader, salvage)
    except MnemonError as error:
        return SegmentReport(path, SegmentState.REFUSED, _size_of(path), problem=str(error))
    torn = salvage.damages[0] if salvage.damages and salvage.is_torn else None
    damages = () if torn else tuple(salvage.damages)
    return SegmentReport(
        path=path,
        state=_state(salvage, damaged=bool(damages or problem)),
        size=salvage.size,
        header=salvage.header,
        footer=salvage.footer,
        event_count=len(salvage.sequences),
        erased_count=len(salvage.erased),
        first_sequence=salvage.sequences[0] if salvage.sequences else None,
        last_sequence=salvage.sequences[-1] if salvage.sequences else None,
        damages=damages,
        torn=torn,
        problem=problem,
    )


def _state(salvage: Salvage, *, damaged: bool) -> SegmentState:
    if damaged:
        return SegmentState.DAMAGED
    return SegmentState.SEALED if salvage.footer else SegmentState.OPEN


def _problem_of_whole(reader: SegmentReader, salvage: Salvage) -> str:
    """The problem of a sealed file whose parts are all intact."""
    if salvage.footer is None or salvage.damages:
        return ""
    try:
        reader.verify(erased=None)
    except SegmentDamagedError as error:
        return error.problem
    return ""


def _contradictions(reports: list[SegmentReport]) -> Iterator[str]:
    headed = [(report, report.header) for report in reports if report.header]
    for (one, one_header), (two, two_header) in pairwise(headed):
        if one_header.epoch != two_header.epoch:
            yield f"{one.path.name} and {two.path.name} belong to different vaults"
    held = sorted(
        _Held(first, report.last_sequence or 0, header.generation, header.first_sequence, report.path.name)
        for report, header in headed
        if (first := report.first_sequence) is not None
    )
    for lower, upper in pairwise(held):
        if upper.first <= lower.last and not (lower.replaces(upper) or upper.replaces(lower)):
            yield f"{lower.name} and {upper.name} both hold events from {upper.first} to {min(lower.last, upper.last)}"


class _Held(NamedTuple):
    """The events that a file contains."""

    first: int
    last: int
    generation: int
    segment: int
    name: str

    def replaces(self, other: "_Held") -> bool:
        """Whether it can be a rewrite of the other, alone or merged with its predecessors."""
        return self.generation > other.generation and self.segment <= other.segment


def _lines(report: SegmentReport) -> Iterator[str]:
    header, footer = report.header, report.footer
    if header:
        yield f"segment    {header.first_sequence}, generation {header.generation}, created {_time(header.created_us)}"
        yield f"vault      {header.epoch.hex()}"
    if report.event_count:
        yield f"events     {report.event_count:,}, sequences {report.first_sequence} to {report.last_sequence}"
    elif header:
        yield "events     none"
    if report.erased_count:
        yield f"erased     {report.erased_count:,}"
    if footer:
        yield f"times      {_time(footer.min_time_us)} to {_time(footer.max_time_us)}"
        yield f"index      {footer.index_length:,} bytes"
        yield f"SHA-256    {footer.sha256.hex()}"
    if report.torn:
        yield f"unfinished {_range(report.torn)}: an interrupted write, or one in progress"
    for damage in report.damages:
        yield f"damage     {_range(damage)}, {_neighbours(damage)}: {damage.problem}"
    if report.lost_count and not report.is_sound:
        yield f"lost       {report.lost_count:,} of {report.lost_count + report.event_count:,} events"
    if report.problem:
        yield f"problem    {report.problem}"


def _range(damage: Damage) -> str:
    if damage.start == damage.end:
        return f"at byte {damage.start}"
    return f"bytes {damage.start} to {damage.end - 1} ({damage.end - damage.start:,})"


def _neighbours(damage: Damage) -> str:
    after = "at the beginning" if damage.after is None else f"after event {damage.after}"
    return after if damage.before is None else f"{after}, before event {damage.before}"


def _damage_json(damage: Damage) -> dict[str, Any]:
    return {
        "start": damage.start,
        "end": damage.end,
        "after_sequence": damage.after,
        "before_sequence": damage.before,
        "problem": damage.problem,
    }


def _time(time_us: int) -> str:
    try:
        return (_EPOCH + timedelta(microseconds=time_us)).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except OverflowError:
        return f"{time_us} us"
