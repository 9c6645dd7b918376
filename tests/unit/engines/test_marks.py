"""Marks find exactly the runs that they were made of, wherever these are, and hold none of their bytes."""

import os
import random
from pathlib import Path
from typing import Any

import pytest
from mnemon_server.engines.file_scan import scan_files
from mnemon_server.engines.promises.marks import RUN_BYTES_MAX, Marks, runs_of
from mnemon_server.engines.vault_key import VaultKeyFile


def made(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randint(8, RUN_BYTES_MAX))


@pytest.mark.parametrize("seed", range(5))
def test_runs_are_found_at_any_offset_and_others_are_not(seed: int) -> None:
    rng = random.Random(seed)
    planted, absent = [made(rng) for _ in range(200)], [made(rng) for _ in range(200)]
    # Many marks begin with the same bytes.
    planted += [b"I often like " + made(rng)[:20] for _ in range(50)]
    absent += [b"I often like " + made(rng)[:20] for _ in range(50)]
    marks = Marks.of([*planted, *absent])
    data = b"".join(part for run in planted for part in (rng.randbytes(rng.randint(0, 40)), run))
    found = marks.find(data)
    assert found == set().union(*(marks.find(run) for run in planted))
    assert len(found) == len(planted)
    assert marks.find(rng.randbytes(100_000)) == set()


def test_stored_marks_find_the_same_and_hold_none_of_the_bytes() -> None:
    runs = [f"a text about {number} things".encode() for number in range(100)]
    text = Marks.of(runs).to_text()
    marks = Marks.from_text(text)
    assert len(marks.find(b" ".join(runs))) == 100
    assert marks.find(text.encode()) == set()
    assert Marks.from_text(Marks.of([]).to_text()).find(b"anything at all") == set()


@pytest.mark.parametrize(
    ("data", "runs"),
    [
        (b"short", []),
        (b"        ", []),
        (bytes(1_000), []),
        (b"a text!!", [b"a text!!"]),
        (bytes(500) + b"a text!!", [b"\0\0\0\0\0a t" + b"ext!!"]),
    ],
)
def test_what_cannot_be_told_from_other_bytes_is_not_marked(data: bytes, runs: list[bytes]) -> None:
    assert sorted({*runs_of(data)}) == runs


def test_a_long_text_is_marked_at_its_beginning_middle_and_end() -> None:
    data = random.Random(0).randbytes(10_000)
    assert runs_of(data) == [data[:64], data[5_000:5_064], data[-64:]]


def test_files_are_read_in_parts_that_overlap(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("mnemon_server.engines.file_scan._BYTES_AT_ONCE", 100)
    rng = random.Random(1)
    run = rng.randbytes(RUN_BYTES_MAX)
    marks = Marks.of([run])
    for offset in range(120):
        (tmp_path / "file").write_bytes(rng.randbytes(offset) + run + rng.randbytes(50))
        scan = scan_files(VaultKeyFile(tmp_path), marks)
        assert (scan.found, scan.files, scan.bytes) == ({"file": frozenset({0})}, 1, offset + 114)


def test_a_folder_that_disappears_meanwhile_counts_as_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kept").write_bytes(b"a text of Ada")
    gone, scandir = tmp_path / "copies", os.scandir
    gone.mkdir()

    def scan_later(place: Path) -> Any:
        if Path(place) == gone:
            gone.rmdir()
        return scandir(place)

    monkeypatch.setattr(os, "scandir", scan_later)
    assert scan_files(VaultKeyFile(tmp_path), Marks.of([b"a text of Ada"])).found == {"kept": frozenset({0})}
    assert not gone.exists()
