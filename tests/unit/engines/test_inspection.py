"""The commands that inspect a timeline's files: they describe the content and exactly what is damaged."""

import json
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from mnemon.v1.episodic_pb2 import EpisodicEvent
from mnemon_server.cli import cli
from mnemon_server.engines.events.format import segment_reader
from mnemon_server.engines.events.format.files import OsFiles, ReadFile
from mnemon_server.engines.events.format.frames import FRAME_OVERHEAD, erased_frame
from mnemon_server.engines.events.format.inspection import find_segments, inspect_segment
from mnemon_server.engines.events.format.layout import FOOTER_BYTES, SegmentHeader, epoch_digest
from mnemon_server.engines.events.format.salvage import Salvage, salvage_frames
from mnemon_server.engines.events.format.segment_reader import SegmentReader
from mnemon_server.engines.events.format.segment_writer import SegmentWriter

from tests.support.repository import ROOT
from tests.support.segment_files import EPOCH, bodies, header, summary, write_open, write_sealed

README = ROOT / "server" / "mnemon_server" / "engines" / "timeline" / "format" / "README.md"


@dataclass(frozen=True)
class EventEngine:
    """Three segments in a folder: two sealed ones, and an open one."""

    folder: Path
    first: Path
    second: Path
    last: Path

    def offset(self, path: Path, sequence: int) -> int:
        """The offset of an event."""
        with SegmentReader(OsFiles(path.parent), path.name, epoch=EPOCH) as reader:
            return next(frame.offset for frame in reader.frames() if frame.sequence == sequence)


@pytest.fixture
def timeline(tmp_path: Path) -> EventEngine:
    files = OsFiles(tmp_path / "timeline")
    write_sealed(files, bodies(100))
    write_sealed(files, bodies(50, first_sequence=101))
    write_open(files, bodies(20, first_sequence=151))
    first, second, last = sorted((tmp_path / "timeline").iterdir())
    return EventEngine(tmp_path, first, second, last)


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["timeline", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout


def run_json(*arguments: str | Path) -> tuple[int, dict[str, Any]]:
    code, printed = run(*arguments, "--json")
    return code, json.loads(printed)


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)


def test_a_sound_timeline_is_reported_as_sound(timeline: EventEngine) -> None:
    code, printed = run("verify", timeline.folder)
    assert (code, printed) == (0, "3 segments, 170 events; 0 segments are damaged\n")
    code, told = run_json("verify", timeline.folder)
    assert (code, told["sound"], told["contradictions"]) == (0, True, [])
    assert [it["state"] for it in told["segments"]] == ["sealed", "sealed", "open"]


def test_a_segment_is_described_for_people_and_for_programs(timeline: EventEngine) -> None:
    code, printed = run("inspect", timeline.second)
    assert code == 0
    assert "sealed" in printed and "segment    101, generation 1, created 2023-11-14T22:13:20.000000Z" in printed
    assert "events     50, sequences 101 to 150" in printed
    assert "2023-11-14T22:13:19.999000Z to 2023-11-14T22:13:20.000000Z" in printed
    code, told = run_json("inspect", timeline.second, timeline.last)
    sealed, unsealed = told["segments"]
    assert (code, sealed["footer"]["event_count"], sealed["header"]["epoch"]) == (0, 50, EPOCH.hex())
    assert (unsealed["footer"], unsealed["event_count"], unsealed["last_sequence"]) == (None, 20, 170)


def test_damage_is_printed_with_its_exact_bytes_and_neighbours(timeline: EventEngine) -> None:
    start, end = timeline.offset(timeline.first, 40), timeline.offset(timeline.first, 41)
    flip(timeline.first, start + 21)
    code, printed = run("verify", timeline.folder)
    assert code == 1
    assert f"bytes {start} to {end - 1} ({end - start}), after event 39, before event 41" in printed
    assert "1 of 100 events" in printed
    assert timeline.second.name not in printed
    code, told = run_json("inspect", timeline.first)
    (damage,) = told["segments"][0]["damages"]
    assert (code, told["sound"], told["segments"][0]["lost_count"]) == (1, False, 1)
    assert (damage["start"], damage["end"], damage["after_sequence"], damage["before_sequence"]) == (start, end, 39, 41)


def test_erased_events_are_counted_and_are_no_damage_unless_a_byte_of_them_changes(timeline: EventEngine) -> None:
    start, end = timeline.offset(timeline.first, 40), timeline.offset(timeline.first, 41)
    frame = erased_frame(header().seed, start, 40, end - start - FRAME_OVERHEAD)
    OsFiles(timeline.first.parent).overwrite(timeline.first.name, [(start, frame)])
    code, printed = run("verify", timeline.folder)
    assert (code, printed) == (0, "3 segments, 169 events; 0 segments are damaged\n")
    assert "erased     1\n" in run("inspect", timeline.first)[1]
    assert run_json("inspect", timeline.first)[1]["segments"][0]["erased_count"] == 1
    content = timeline.first.read_bytes()
    for place in range(start, end):
        flip(timeline.first, place)
        code, told = run_json("inspect", timeline.first)
        assert (code, told["segments"][0]["event_count"]) == (1, 99), place
        timeline.first.write_bytes(content)


def test_any_flipped_byte_of_a_sealed_segment_ends_with_exit_code_1(timeline: EventEngine) -> None:
    content = timeline.second.read_bytes()
    for place in [*range(0, 64, 3), *range(64, len(content), 97), *range(len(content) - FOOTER_BYTES, len(content), 5)]:
        flip(timeline.second, place)
        code, told = run_json("inspect", timeline.second)
        assert (code, told["segments"][0]["state"]) == (1, "damaged"), place
        assert told["segments"][0]["event_count"] >= 49
        timeline.second.write_bytes(content)


def test_the_unfinished_end_of_an_open_segment_is_not_damage(timeline: EventEngine) -> None:
    content = timeline.last.read_bytes()
    start = timeline.offset(timeline.last, 170)
    timeline.last.write_bytes(content[: start + 7])
    code, printed = run("inspect", timeline.last)
    assert code == 0
    assert f"unfinished bytes {start} to {start + 6} (7)" in printed
    assert run_json("inspect", timeline.last)[1]["segments"][0]["event_count"] == 19


def test_a_truncated_footer_is_damage(timeline: EventEngine) -> None:
    content = timeline.first.read_bytes()
    timeline.first.write_bytes(content[:-10])
    code, told = run_json("inspect", timeline.first)
    assert (code, told["segments"][0]["state"], told["segments"][0]["event_count"]) == (1, "damaged", 100)


@pytest.mark.parametrize("content", [b"", b"\x00" * 500, b"just text\n" * 20])
def test_a_file_that_is_not_a_segment_is_damaged_from_its_first_byte(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.segment"
    path.write_bytes(content)
    code, told = run_json("inspect", path)
    (segment,) = told["segments"]
    assert (code, segment["state"], segment["event_count"], segment["header"]) == (1, "damaged", 0, None)


def test_swapped_files_are_refused(timeline: EventEngine) -> None:
    first, second = timeline.first.read_bytes(), timeline.second.read_bytes()
    timeline.first.write_bytes(second)
    timeline.second.write_bytes(first)
    code, told = run_json("verify", timeline.folder)
    assert (code, [it["state"] for it in told["segments"]]) == (1, ["refused", "refused", "open"])
    assert f"the header is that of {timeline.second.name}" in told["segments"][0]["problem"]


def test_a_segment_of_another_vault_is_noticed(timeline: EventEngine) -> None:
    files = OsFiles(timeline.first.parent)
    write_sealed(files, bodies(5, first_sequence=500), header(500, epoch=epoch_digest(b"another vault")))
    code, printed = run("verify", timeline.folder)
    assert code == 1
    assert "belong to different vaults" in printed


def test_overlapping_segments_are_named_but_not_a_segment_and_its_rewritten_form(timeline: EventEngine) -> None:
    files = OsFiles(timeline.first.parent)
    write_sealed(files, bodies(90, first_sequence=2), header(1, generation=2))
    assert run("verify", timeline.folder)[0] == 0
    write_sealed(files, bodies(30, first_sequence=90), header(90))
    code, told = run_json("verify", timeline.folder)
    assert code == 1
    assert any("both hold events from 101 to 119" in text for text in told["contradictions"])


def test_a_link_to_a_segment_is_followed(timeline: EventEngine, tmp_path: Path) -> None:
    link = tmp_path / "elsewhere" / "a.segment"
    link.parent.mkdir()
    link.symlink_to(timeline.first)
    code, found = run_json("inspect", link)
    assert (code, found["segments"][0]["state"], found["segments"][0]["path"]) == (0, "sealed", str(link))
    link.unlink()
    link.symlink_to(tmp_path / "gone")
    assert inspect_segment(link).problem.startswith("could not open gone")


def test_segments_in_quarantine_are_not_verified(timeline: EventEngine) -> None:
    files = OsFiles(timeline.first.parent)
    files.copy_to(timeline.first.name, OsFiles(timeline.first.parent / "quarantine"))
    flip(timeline.first.parent / "quarantine" / timeline.first.name, 100)
    assert run("verify", timeline.folder) == (0, "3 segments, 170 events; 0 segments are damaged\n")


def test_a_segment_that_is_being_written_and_sealed_is_never_called_damaged(tmp_path: Path) -> None:
    files, written = OsFiles(tmp_path), threading.Event()

    def write() -> None:
        for first in range(1, 1_600, 8):
            writer = SegmentWriter.create(files, header(first).file_name, header(first))
            for event in bodies(8, first_sequence=first, longest=3_000):
                writer.append(*event)
            writer.seal(b"an index" * 50_000, summary(8))
        written.set()

    thread = threading.Thread(target=write)
    thread.start()
    states = set()
    while not written.is_set():
        states |= {inspect_segment(path).state for path in find_segments(tmp_path)[-1:]}
    thread.join()
    assert states <= {"sealed", "open"}
    assert all(inspect_segment(path).state == "sealed" for path in find_segments(tmp_path))


def test_a_segment_that_begins_during_the_inspection_is_not_called_damaged(
    timeline: EventEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = timeline.last.read_bytes()
    timeline.last.write_bytes(b"")

    def begun_meanwhile(file: ReadFile, header: SegmentHeader | None, beginning: bytes) -> Salvage:
        if header is None:
            timeline.last.write_bytes(content)
        return salvage_frames(file, header, beginning)

    monkeypatch.setattr(segment_reader, "salvage_frames", begun_meanwhile)
    assert inspect_segment(timeline.last).state == "open"


def test_a_new_file_is_given_a_moment_to_get_its_header(timeline: EventEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    content = timeline.last.read_bytes()
    timeline.last.write_bytes(b"")
    monkeypatch.setattr(time, "sleep", lambda seconds: timeline.last.write_bytes(content))
    assert inspect_segment(timeline.last).state == "open"


def test_inspection_changes_nothing(timeline: EventEngine) -> None:
    flip(timeline.first, 200)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in timeline.first.parent.iterdir()}
    run("verify", timeline.folder)
    run("inspect", *before)
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in timeline.first.parent.iterdir()}
    assert after == before


def test_the_example_in_the_readme_prints_the_events_of_a_segment(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    events = [EpisodicEvent(event_id=f"event-{n}", content=f"Ada ate {n} apples.") for n in range(1, 4)]
    write_sealed(OsFiles(tmp_path), [(n, event.SerializeToString()) for n, event in enumerate(events, start=1)])
    (path,) = tmp_path.iterdir()
    command = [sys.executable, "-c", example, str(path)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert [line for line in printed.splitlines() if line.startswith(("1 ", "2 ", "3 "))] == [
        f'{n} event_id: "event-{n}"' for n in range(1, 4)
    ]
    assert printed.count("apples") == 3
    flip(path, 200)
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode != 0 and "damaged at" in done.stderr
