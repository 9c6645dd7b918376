"""Sealed segments: what is removed leaves them, they are merged while events are recorded and read, and damage costs
only what it hits, and the exact number is reported.
"""

import json
import random
import shutil
import threading
from contextlib import closing
from dataclasses import replace
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import apsw
import numpy as np
import pytest
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.errors import ConfigurationError, NotServingError, StorageFailedError
from mnemon_server.domain.events import CompactionProgress, EventsState, PruneReason
from mnemon_server.engines.events.segment_files import HashFilter
from mnemon_server.engines.events.tables import SegmentRow, SegmentState
from mnemon_server.engines.promises.events import EventEngine
from mnemon_server.engines.sqlite.query import runs_of
from mnemon_server.engines.sqlite_vault import SQLiteVault, VaultSettings

from tests.contract.timeline_suite import ALL, SETTINGS, append, append_at, get, happening, told, window
from tests.contract.vault_suite import DIMENSION, START, ManualClock
from tests.support.databases import contents_of, open_database
from tests.support.server import wait_until

ROOMY = replace(SETTINGS, segment_events_max=100)
PAGE = 4_096
TOLD = ChangeType.EPISODIC_WARNING, ChangeType.EPISODIC_HEALTHY


def opened(folder: Path, settings: Any = SETTINGS, clock: ManualClock | None = None) -> SQLiteVault:
    vault = SQLiteVault(
        folder,
        model_identity="test/1",
        dimension=DIMENSION,
        settings=VaultSettings(events=settings, erasure_delay_s=0.05),
        clock=clock or ManualClock(),
    )
    assert vault.events.wait_until_warm(60)
    return vault


def sealed(events: EventEngine) -> None:
    """Waits until at most one segment is not sealed."""
    wait_until(lambda: events.status().unsealed_count < SETTINGS.segment_events_max)


def segments(folder: Path) -> list[Path]:
    return sorted((folder / "timeline").glob("*.segment"))


def small_segments(vault: SQLiteVault, clock: ManualClock, count: int = 4) -> None:
    """Segments of three events each, the last of which is open."""
    for number in range(count):
        # Events are sealed automatically once they are an hour old; no time passes after the last ones.
        clock.now += timedelta(hours=2)
        append(vault.events, *(happening(f"e{number}.{i}") for i in range(3)))
    wait_until(lambda: vault.events.status().unsealed_count == 3)


def test_a_summary_of_everybody_follows_removals_and_the_files_that_they_rewrite(folder: Path) -> None:
    def summarized(events: EventEngine) -> int:
        asked = [[events.summarize(ALL, zone) for zone in (UTC, ZoneInfo("Pacific/Kiritimati"))] for _ in range(2)]
        assert asked[0] == asked[1] and asked[0][0].days != asked[0][1].days
        found = {sum(count for _, count in summary.days) for summary in asked[0]}
        assert found == {events.summarize(ALL).event_count}
        return found.pop()

    with closing(opened(folder)) as vault:
        assert summarized(vault.events) == 43
        before = segments(folder)
        vault.events.prune(get(vault.events, "e3", "e30", "e42"), PruneReason.REQUESTED).result()
        assert summarized(vault.events) == 40
        wait_until(lambda: not set(before) & set(segments(folder)))
        assert summarized(vault.events) == 40
        append(vault.events, happening("e43"))
        assert summarized(vault.events) == 41


# Damage


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed vault with two sealed segments of twenty events of some size, and three events in an open one."""
    folder = tmp_path_factory.mktemp("kept")
    with closing(opened(folder, replace(SETTINGS, segment_events_max=20))) as vault:
        append(vault.events, *(happening(f"e{i}", context="long " * 200) for i in range(43)))
        wait_until(lambda: vault.events.status().unsealed_count == 3)
        wait_until(lambda: row_count(folder) == 3)
    return folder


def row_count(folder: Path) -> int:
    """The number of events in records.db."""
    with closing(open_database(folder / "records.db", flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        return int(connection.execute("SELECT count(*) FROM timeline_event").get)


@pytest.fixture
def folder(kept: Path, tmp_path: Path) -> Path:
    return shutil.copytree(kept, tmp_path / "vault")


def expect_lost(folder: Path, allowed: set[int], *, is_damaged: bool = True) -> set[int]:
    """Opens a damaged vault: each event is unchanged or reported as lost. Returns the sequences of lost events."""
    with closing(opened(folder)) as vault:
        events = vault.events
        events.scrub()
        wait_until(lambda: events.status().state is EventsState.READY)
        status = events.status()
        found = {one.position.event_id: one.sequence for one in events.window(ALL, limit=1_000).events}
        assert all(sequence == int(event_id[1:]) + 1 for event_id, sequence in found.items())
        lost = set(range(1, 44)) - set(found.values())
        assert lost <= allowed
        assert sum(one.event_count for one in status.lost) == len(lost)
        named = {i for one in status.lost for i in range(one.first_sequence, one.last_sequence + 1)}
        assert named == lost
        assert events.count(ALL) == status.event_count == len(found)
        notes = [json.loads(change.details)["severity"] for change in told(vault, *TOLD)]
        expected = [] if not is_damaged else ["critical" if lost else "warning", "info"]
        wait_until(lambda: len(told(vault, *TOLD)) == len(expected))
        assert notes in (expected, expected[:1])
        [again] = append(events, happening("e42", context="long " * 200))
        assert again.duplicate
    return lost


def test_a_flipped_bit_costs_only_events_of_its_page_and_each_loss_is_told(folder: Path) -> None:
    rng = random.Random(4)
    path = segments(folder)[1]
    content = path.read_bytes()
    costs = []
    for page in range(len(content) // PAGE):
        at = page * PAGE + rng.randrange(PAGE)
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes([content[at] ^ 1 << rng.randrange(8)]))
        before = sorted(folder.rglob("*"))
        backup = {each: each.read_bytes() for each in before if each.is_file()}
        costs.append(len(expect_lost(folder, set(range(21, 41)))))
        assert [each.name for each in (folder / "quarantine").iterdir()] == [path.name]
        for each in folder.rglob("*"):
            if each.is_file() and each not in backup:
                each.unlink()
        for each, kept in backup.items():
            each.write_bytes(kept)
        path.write_bytes(content)
    # The first page and the root of the table lead to all events; a leaf has a few of them, an index none.
    assert sorted(costs)[-2:] == [20, 20] and max(sorted(costs)[:-2]) <= 4
    assert costs.count(0) >= 4 and sum(0 < cost <= 4 for cost in costs) >= 5


@pytest.mark.parametrize("left", [0, 100, PAGE, 5 * PAGE, -PAGE, -1])
def test_a_cut_file_costs_at_most_its_own_events(folder: Path, left: int) -> None:
    path = segments(folder)[1]
    path.write_bytes(path.read_bytes()[:left])
    expect_lost(folder, set(range(21, 41)))


def test_a_missing_file_costs_its_own_events_and_the_warning_names_them(folder: Path) -> None:
    segments(folder)[1].unlink()
    assert expect_lost(folder, set(range(21, 41))) == set(range(21, 41))
    with closing(opened(folder)) as vault:
        [warning] = told(vault, ChangeType.EPISODIC_WARNING)
        details = json.loads(warning.details)
        assert (
            "segment 21 of the timeline was damaged, and 20 events are lost: sequences 21 to 40" in details["message"]
        )
        assert "quarantine" not in details["remediation"]


def test_garbage_behind_the_end_costs_nothing(folder: Path) -> None:
    path = segments(folder)[1]
    path.write_bytes(path.read_bytes() + bytes(3 * PAGE))
    assert expect_lost(folder, set(), is_damaged=False) == set()


@pytest.mark.parametrize("source", ["another segment", "another vault"])
def test_a_file_in_the_place_of_another_is_not_taken_for_it(folder: Path, tmp_path: Path, source: str) -> None:
    path = segments(folder)[1]
    if source == "another segment":
        path.write_bytes(segments(folder)[0].read_bytes())
    else:
        with closing(opened(tmp_path / "other")) as vault:
            append_at(vault.events, [START] * 6)
            sealed(vault.events)
        path.write_bytes(segments(tmp_path / "other")[0].read_bytes())
    assert expect_lost(folder, set(range(21, 41))) == set(range(21, 41))


def damage_event(path: Path) -> None:
    """Damages a page of a segment that has events."""
    with path.open("r+b") as file:
        file.seek(4 * PAGE + 99)
        file.write(b"damage")


def test_a_read_that_finds_damage_has_it_repaired_before_it_answers(folder: Path) -> None:
    with closing(opened(folder)) as vault:
        damage_event(segments(folder)[1])
        found = {one.sequence for one in vault.events.window(ALL, limit=1_000).events}
        lost = set(range(1, 44)) - found
        assert 0 < len(lost) < 5
        assert sum(one.event_count for one in vault.events.status().lost) == len(lost)
        assert vault.events.count(ALL) == len(found)


def test_removed_events_are_not_lost_and_leave_the_copy_of_a_damaged_segment(folder: Path) -> None:
    removed = [f"e{number}" for number in range(20, 39)]
    with closing(opened(folder, replace(SETTINGS, erase_delay_s=60.0))) as vault:
        vault.events.prune(get(vault.events, *removed[:9]), PruneReason.REQUESTED).result()
    damage_event(segments(folder)[1])
    with closing(opened(folder)) as vault:
        vault.events.scrub()
        lost = sum(one.event_count for one in vault.events.status().lost)
        there = [one for one in vault.events.get(removed[9:]) if one is not None]
        assert lost <= 4 and len(there) >= 10 - lost
        vault.events.prune(there, PruneReason.REQUESTED).result()
        wait_until(lambda: vault.events.status().removal_pending_count == 0)
        assert [*(folder / "quarantine").iterdir()] == []
    files = contents_of(folder / "timeline")
    assert b"content of e1" in files
    assert not any(b"content of " + one.encode() in files for one in removed)


def test_events_that_can_be_read_are_found_while_the_repaired_file_cannot_be_written(folder: Path) -> None:
    [_, path] = segments(folder)
    damage_event(path)
    obstacle = path.with_name(f"{path.stem[:-4]}0002.segment.tmp")
    obstacle.mkdir()
    with closing(opened(folder, replace(SETTINGS, retry_s=0.05, retry_s_max=0.05))) as vault:
        events = vault.events
        found = {one.sequence for one in events.window(ALL, limit=1_000).events}
        assert 38 <= len(found) < 43
        assert "could not be read or repaired" in str(events.failure())
        assert events.status().lost == ()
        obstacle.rmdir()
        wait_until(lambda: events.failure() is None)
        assert {one.sequence for one in events.window(ALL, limit=1_000).events} == found
        assert sum(one.event_count for one in events.status().lost) == 43 - len(found)


# Erasing and merging


def test_removed_events_leave_the_disk(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as vault:
        append_at(vault.events, [START] * 23)
        sealed(vault.events)
        gone = ["e1", *(f"e{i}" for i in range(5, 10)), "e12", "e21"]
        vault.events.prune(get(vault.events, *gone), PruneReason.REQUESTED).result()
        wait_until(lambda: vault.events.status().removal_pending_count == 0)
        assert len(segments(tmp_path)) == 3
        left = [f"e{i}" for i in range(23) if f"e{i}" not in gone]
        assert sorted(window(vault.events)) == sorted(left)
    with closing(opened(tmp_path)) as vault:
        assert sorted(window(vault.events)) == sorted(left)
        assert vault.events.status().lost == ()
    files = contents_of(tmp_path)
    assert b"content of e22" in files
    assert not any(b"content of " + event_id.encode() in files for event_id in gone[1:])


def test_several_removals_in_quick_succession_cause_one_rewrite(tmp_path: Path) -> None:
    with closing(opened(tmp_path, replace(SETTINGS, erase_delay_s=0.5))) as vault:
        append_at(vault.events, [START] * 6)
        sealed(vault.events)
        for event_id in ("e1", "e2", "e3"):
            vault.events.prune(get(vault.events, event_id), PruneReason.REQUESTED).result()
        wait_until(lambda: vault.events.status().removal_pending_count == 0)
        assert [path.name for path in segments(tmp_path)] == ["00000000000000000001-0002.segment"]


def test_small_neighbours_become_one_segment_and_the_progress_is_told(tmp_path: Path) -> None:
    clock = ManualClock()
    with closing(opened(tmp_path, ROOMY, clock)) as vault:
        small_segments(vault, clock)
        before = sum(path.stat().st_size for path in segments(tmp_path))
        reports: list[CompactionProgress] = []
        done = vault.events.compact(reports.append)
        assert reports[-1] == done and [report.done for report in reports] == [False] * (len(reports) - 1) + [True]
        [path] = segments(tmp_path)
        assert done.segment_count == 1 and 0 < done.reclaimed_bytes < done.total_bytes == done.processed_bytes
        assert done.total_bytes > before > path.stat().st_size
        assert vault.events.status().unsealed_count == 0
        assert len(window(vault.events)) == 12
        assert vault.events.compact(reports.append) == CompactionProgress(segment_count=1, done=True)
    with closing(opened(tmp_path, ROOMY)) as vault:
        assert len(window(vault.events)) == 12


def test_many_small_segments_are_merged_by_themselves(tmp_path: Path) -> None:
    clock = ManualClock()
    with closing(opened(tmp_path, replace(ROOMY, joined_min=4), clock)) as vault:
        for number in range(6):
            append(vault.events, happening(f"e{number}"))
            clock.now += timedelta(hours=2)
        wait_until(lambda: vault.events.status().segment_count <= 3)
        assert len(window(vault.events)) == 6


def test_reads_and_writes_go_on_while_a_vault_is_compacted(tmp_path: Path) -> None:
    with closing(opened(tmp_path, replace(SETTINGS, segment_events_max=20))) as vault:
        append_at(vault.events, [START] * 40)
        stop = threading.Event()
        failures: list[object] = []

        def read() -> None:
            number = 0
            while not stop.is_set():
                append(vault.events, happening(f"more{number}", START + timedelta(hours=1)))
                number += 1
                found = window(vault.events)
                if len(found) != 40 + number:
                    failures.append(found)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            for _ in range(5):
                assert vault.events.compact(lambda progress: None).done
        finally:
            stop.set()
            reader.join()
        assert failures == []


def test_a_compaction_continues_when_its_caller_has_left(tmp_path: Path) -> None:
    def refuse(progress: CompactionProgress) -> None:
        raise ConnectionResetError

    clock = ManualClock()
    with closing(opened(tmp_path, ROOMY, clock)) as vault:
        small_segments(vault, clock)
        assert vault.events.compact(refuse).segment_count == 1


def test_damage_found_by_a_compaction_is_repaired_and_the_rest_is_merged(tmp_path: Path) -> None:
    clock = ManualClock()
    with closing(opened(tmp_path, ROOMY, clock)) as vault:
        small_segments(vault, clock)
        segments(tmp_path)[1].unlink()
        done = vault.events.compact(lambda progress: None)
        assert (done.done, done.segment_count) == (True, 1)
        assert [one.event_count for one in vault.events.status().lost] == [3]
        assert len(window(vault.events)) == 9


def test_who_waits_for_the_maintenance_is_told_when_it_ends(tmp_path: Path) -> None:
    vault = opened(tmp_path)
    append_at(vault.events, [START] * 12)
    vault.close()
    vault.close()
    with pytest.raises((NotServingError, StorageFailedError)):
        vault.events.compact(lambda progress: None)


# Crashes


@pytest.mark.parametrize("left", ["a draft", "the next generation", "a merged segment", "another segment", "notes"])
def test_what_an_interrupted_rewrite_has_left_is_removed(folder: Path, left: str) -> None:
    [first, second] = segments(folder)
    name = {
        "a draft": "00000000000000000021-0002.segment.tmp",
        "the next generation": "00000000000000000021-0002.segment",
        "a merged segment": "00000000000000000025-0001.segment",
        "another segment": "00000000000000000099-0001.segment",
        "notes": "notes.txt",
    }[left]
    (folder / "timeline" / name).write_bytes(second.read_bytes())
    with closing(opened(folder)) as vault:
        assert len(window(vault.events)) == 43
        assert (vault.events.failure(), vault.events.status().lost) == (None, ())
    assert segments(folder) == [first, second] and not (folder / "timeline" / name).exists()
    assert (folder / "quarantine" / name).exists() == (left in ("another segment", "notes"))


def test_a_segment_is_sealed_by_age_when_nothing_is_appended(tmp_path: Path) -> None:
    clock = ManualClock()
    with closing(opened(tmp_path, clock=clock)) as vault:
        append_at(vault.events, [START] * 2)
    clock.now += timedelta(seconds=SETTINGS.segment_age_max_s + 1)
    with closing(opened(tmp_path, clock=clock)) as vault:
        wait_until(lambda: vault.events.status().unsealed_count == 0)
        assert len(segments(tmp_path)) == 1 and sorted(window(vault.events)) == ["e0", "e1"]


def test_a_vault_of_an_earlier_layout_is_refused_and_the_archive_is_named(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with closing(open_database(tmp_path / "records.db")) as connection:
        connection.pragma("user_version", 16)
    with pytest.raises(ConfigurationError, match=r"an earlier version of Mnemon wrote.*`mnemon export`"):
        opened(tmp_path)


# Parts


def test_a_filter_knows_all_its_hashes_and_few_others() -> None:
    rng = np.random.default_rng(3)
    some, others = rng.integers(-(2**63), 2**63, (2, 5_000))
    known = HashFilter(HashFilter.of(some).content)
    assert all(known.may_have(number) for number in some.tolist())
    assert sum(known.may_have(number) for number in others.tolist()) < 250
    assert not HashFilter.of(some[:0]).may_have(1)


@pytest.mark.parametrize("sequences", [[], [7], [1, 2, 3], [1, 3, 4, 9, 11, 12]])
def test_runs_tell_which_events_a_segment_has(sequences: list[int]) -> None:
    row = SegmentRow(1, 1, SegmentState.SEALED, 12, 0, 0, 0, runs=runs_of(np.array(sequences, np.int64)).tobytes())
    assert row.sequences().tolist() == sequences
    assert row.sequences(3, 11).tolist() == [one for one in sequences if 3 <= one <= 11]
