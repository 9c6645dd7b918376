"""The timeline after a crash: files are brought in line with what was committed, and nothing else changes."""

import random
from collections.abc import Callable

import pytest
from mnemon_server.engines.events.upkeep.manifest import Change, SegmentState

from tests.support.timeline_trial import StoppedError, Trial, TrialFiles

SEEDS = range(2)


def test_committed_events_are_in_files_and_still_there_after_a_restart() -> None:
    trial = Trial.begin()
    trial.append(11)
    trial.run()
    states = [(row.segment_id, row.state, row.synced_sequence) for row in trial.manifest.segments()]
    assert states == [(1, SegmentState.SEALED, 4), (5, SegmentState.SEALED, 8), (9, SegmentState.OPEN, 11)]
    assert sorted(trial.manifest.rows) == [9, 10, 11]
    trial.reopen()
    trial.check()
    assert trial.index.count == 11
    trial.append(6)
    trial.run()
    trial.reopen()
    trial.check()


def test_a_torn_tail_is_cut_off_exactly_and_written_again() -> None:
    trial = Trial.begin()
    trial.append(3)
    trial.run()
    name = trial.name_of(1)
    whole, synced = trial.files.content(name), trial.manifest.list[1].synced_offset
    assert synced == len(whole)
    trial.append_one(trial.clocks.now)
    trial.run()
    longer = trial.files.content(name)
    for end in range(len(whole), len(longer)):
        for garbage in (b"", b"\x7e\xa5\x01\x01garbage"):
            trial.files.put(name, longer[:end] + garbage)
            # The noted length is less than what the file holds, which is allowed.
            trial.manifest.list[1] = trial.manifest.list[1]._replace(synced_offset=synced, synced_sequence=3)
            trial.reopen()
            assert trial.files.content(name) == longer
            trial.check()
    assert trial.quarantine.names() == [] and trial.manifest.notes == []


@pytest.mark.parametrize("seed", range(20))
def test_events_noted_as_synced_survive_a_power_cut(seed: int) -> None:
    trial = Trial.begin()
    trial.append(3)
    trial.run()
    row = trial.manifest.list[1]
    synced = trial.files.content(trial.name_of(1))[: row.synced_offset]
    trial.append_one(trial.clocks.now)
    trial.files.stop_at = trial.files.changes + 2
    with pytest.raises(StoppedError):
        trial.run()
    trial.crash(random.Random(seed))
    assert row.synced_sequence == 3 and trial.files.content(trial.name_of(1)).startswith(synced)


@pytest.mark.parametrize("damaged", [0, 70, 200])
def test_an_unsealed_file_that_differs_from_what_was_synced_is_rewritten(damaged: int) -> None:
    trial = Trial.begin()
    trial.append(3)
    trial.run()
    name, before = trial.name_of(1), trial.files.content(trial.name_of(1))
    trial.damage(1, damaged)
    broken = trial.files.content(name)
    trial.reopen()
    trial.check()
    assert trial.name_of(1) != name and trial.quarantine.content(name) == broken
    assert len(trial.files.content(trial.name_of(1))) == len(before)
    assert trial.lost == [] and trial.manifest.notes == []


def test_a_missing_unsealed_file_is_rewritten() -> None:
    trial = Trial.begin()
    trial.append(3)
    trial.run()
    trial.files.unlink(trial.name_of(1))
    trial.reopen()
    trial.check()
    assert trial.lost == [] and trial.manifest.notes == []


def test_a_missing_sealed_file_costs_only_its_own_events() -> None:
    trial = Trial.begin()
    trial.append(11)
    trial.run()
    trial.files.unlink(trial.name_of(5))
    trial.reopen()
    for sequence in range(5, 9):
        del trial.expected[sequence]
    trial.check()
    assert trial.lost == [(5, 8, 4)]
    assert trial.severities == ["critical", "healthy"]
    warning = trial.manifest.notes[0]
    assert warning is not None and "segment 5" in warning.message and "5 to 8" in warning.message
    trial.reopen()
    trial.check()
    assert trial.lost == [(5, 8, 4)] and trial.severities == ["critical", "healthy"]


def test_unknown_files_are_deleted() -> None:
    trial = Trial.begin()
    trial.append(6)
    trial.run()
    sealed = trial.files.content(trial.name_of(1))
    trial.files.put("00000000000000000001-0002.segment", sealed)
    trial.files.put("00000000000000000001-0002.segment.tmp", b"half")
    trial.files.put("00000000000000000077-0001.segment", sealed)
    trial.files.put("notes.txt", b"mine")
    trial.reopen()
    trial.check()
    assert trial.quarantine.names() == ["00000000000000000077-0001.segment", "notes.txt"]
    assert trial.quarantine.content("notes.txt") == b"mine"


@pytest.mark.parametrize("source", ["another segment", "another vault"])
def test_a_file_in_the_place_of_another_is_ignored(source: str) -> None:
    trial, other = Trial.begin(), Trial.begin()
    other.manifest.epoch = bytes(range(1, 17)) if source == "another vault" else trial.manifest.epoch
    other.reopen()
    trial.append(6)
    trial.run()
    other.append(6)
    other.run()
    trial.files.put(trial.name_of(1), other.files.content(other.name_of(1)))
    trial.reopen()
    for sequence in range(1, 5):
        del trial.expected[sequence]
    trial.check()
    assert trial.lost == [(1, 4, 4)]


def test_a_start_that_cannot_read_a_segment_still_serves_the_others() -> None:
    trial = Trial.begin()
    trial.append(9)
    trial.run()
    trial.damage(1, 0)
    trial.damage(5, len(trial.files.content(trial.name_of(5))) - 1)
    trial.reopen(run=False)
    trial.maintenance.turn()
    assert trial.maintenance.is_warm
    trial.run()
    trial.check()
    assert trial.lost == []
    assert trial.severities == ["warning", "warning", "healthy"]


def test_rows_do_not_pile_up_while_events_keep_arriving() -> None:
    trial = Trial.begin()
    left = []
    for _ in range(60):
        trial.append(trial.settings.segment_events_max)
        trial.clocks.pass_time(1.0)
        trial.maintenance.turn()
        left.append(len(trial.manifest.rows))
    assert max(left[30:]) <= max(left[:30])
    trial.run()
    trial.check()


# Kills and power cuts


def _work(trial: Trial) -> None:
    """Everything that the maintenance thread does when nothing is damaged."""
    trial.append(6)
    trial.run()
    trial.remove(2)
    trial.run()
    trial.append(5)
    trial.run()
    trial.remove(7, 10)
    trial.append_one(trial.clocks.now)
    trial.run()
    trial.compact()
    trial.remove(12)
    trial.run()
    trial.append(3)
    trial.run()


def _count_changes(work: Callable[[Trial], None]) -> int:
    files = TrialFiles()
    trial = Trial.begin(files=files)
    work(trial)
    trial.check()
    return files.changes


@pytest.mark.parametrize("power", ["kill", *(f"power cut {seed}" for seed in SEEDS)])
def test_a_crash_at_any_moment_loses_nothing(power: str) -> None:
    total = _count_changes(_work)
    assert total > 80
    for stop_at in range(1, total + 1):
        files = TrialFiles()
        trial = Trial.begin(files=files)
        files.stop_at = stop_at
        with pytest.raises(StoppedError):
            _work(trial)
        files.stop_at = None
        if power != "kill":
            trial.crash(random.Random(f"{power} {stop_at}"))
        trial.reopen()
        trial.check()
        assert (trial.lost, trial.manifest.notes, trial.quarantine.names()) == ([], [], []), stop_at
        trial.append(2)
        trial.run()
        trial.scrub()
        trial.reopen()
        trial.check()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_commit_loses_nothing(when: str) -> None:
    def count(change: Change) -> None:
        commits.append(change)

    commits: list[Change] = []
    trial = Trial.begin()
    trial.manifest.after_commit = count
    _work(trial)
    assert len(commits) > 8
    for stop_at in range(1, len(commits) + 1):
        _stop_at_commit(stop_at, when)


def _stop_at_commit(stop_at: int, when: str) -> None:
    trial = Trial.begin()
    left = stop_at

    def stop(change: Change) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise StoppedError

    setattr(trial.manifest, f"{when}_commit", stop)
    with pytest.raises(StoppedError):
        _work(trial)
    trial.crash(random.Random(stop_at))
    trial.reopen()
    trial.check()
    assert (trial.lost, trial.manifest.notes, trial.quarantine.names()) == ([], [], [])


@pytest.mark.parametrize("power", ["kill", *(f"power cut {seed}" for seed in SEEDS)])
def test_a_crash_during_a_repair_loses_only_what_was_damaged(power: str) -> None:
    stop_at = 0
    finished = False
    while not finished:
        stop_at += 1
        files = TrialFiles()
        trial = Trial.begin(files=files)
        trial.append(10)
        trial.run()
        start, _ = trial.span(6)
        trial.damage(5, start + 30)
        del trial.expected[6]
        files.stop_at = files.changes + stop_at
        try:
            trial.scrub()
            finished = True
        except StoppedError:
            files.stop_at = None
            if power != "kill":
                trial.crash(random.Random(f"{power} {stop_at}"))
            trial.reopen()
            trial.scrub()
        trial.check()
        assert trial.lost == [(6, 6, 1)], stop_at
        assert trial.severities == ["critical", "healthy"]
        assert trial.quarantine.names() == ["00000000000000000005-0001.segment"]
    assert stop_at > 5
