"""Removed events are overwritten in sealed files at once, and nothing else in these files changes."""

import errno
import random

import pytest

from tests.contract.test_timeline_recovery import SEEDS
from tests.support.timeline_trial import StoppedError, Trial, TrialFiles


def sealed_segments() -> Trial:
    """Three sealed segments of four events each, on a disk without room for new files."""
    trial = Trial.begin()
    trial.append(12)
    trial.run()
    trial.seal_all()
    trial.files.fail("create", at=1, times=10_000, error=errno.ENOSPC)
    return trial


def contents(trial: Trial) -> dict[str, bytes]:
    return {name: trial.files.content(name) for name in trial.files.names()}


def test_removed_events_leave_their_files_although_there_is_no_room_to_rewrite_them() -> None:
    trial = sealed_segments()
    spans = {sequence: trial.span(sequence) for sequence in (2, 4, 6)}
    before = contents(trial)
    trial.remove(2, 4, 6)
    trial.run()
    trial.check()
    assert trial.maintenance.erased_counts() == {(1, 1): 2, (5, 1): 1}
    for name, content in contents(trial).items():
        owned = [span for sequence, span in spans.items() if (sequence < 5) == (name == trial.name_of(1))]
        rest = bytearray(before[name])
        for start, end in owned if name != trial.name_of(9) else []:
            rest[start:end] = content[start:end]
        assert bytes(rest) == content
    trial.reopen()
    trial.check()
    trial.clocks.pass_time(60)
    trial.scrub()
    trial.check()
    assert (trial.lost, trial.quarantine.names()) == ([], [])
    trial.files.heal()
    trial.clocks.pass_time(60)
    trial.run()
    trial.check()
    assert trial.manifest.marks == set() and trial.maintenance.failure() is None


def test_a_segment_without_remaining_events_is_deleted_without_being_overwritten() -> None:
    trial = sealed_segments()
    trial.remove(5, 6, 7, 8)
    trial.run()
    trial.check()
    assert [row.segment_id for row in trial.manifest.segments()] == [1, 9]
    assert trial.files.calls["overwrite"] == 0


def test_an_event_is_erased_although_its_frame_is_damaged() -> None:
    trial = sealed_segments()
    start, _ = trial.span(6)
    trial.damage(5, start + 7)
    trial.remove(6)
    trial.run()
    trial.check()
    trial.files.heal()
    trial.clocks.pass_time(60)
    trial.scrub()
    trial.check()
    assert (trial.lost, trial.severities, trial.quarantine.names()) == ([], ["warning", "healthy"], [])


def test_an_erased_event_that_the_records_still_have_is_reported_as_lost() -> None:
    """As after the restoration of older records beside newer files."""
    trial = sealed_segments()
    bodies = dict(trial.expected)
    trial.remove(6)
    trial.run()
    trial.files.heal()
    trial.manifest.marks.clear()
    trial.reopen()
    assert trial.found() == {sequence: body for sequence, body in bodies.items() if sequence != 6}
    assert trial.lost == [(6, 6, 1)]


def test_damage_beside_erased_events_costs_only_the_damaged_event() -> None:
    trial = sealed_segments()
    trial.remove(2)
    trial.run()
    trial.damage(1, trial.span(3)[0] + 30)
    del trial.expected[3]
    trial.files.heal()
    trial.clocks.pass_time(60)
    trial.scrub()
    trial.check()
    assert trial.lost == [(3, 3, 1)]


@pytest.mark.parametrize("power", ["kill", *(f"power cut {seed}" for seed in SEEDS)])
def test_erasing_that_was_interrupted_is_completed_after_the_start(power: str) -> None:
    for operation in ("overwrite", "sync"):
        for at in (1, 2, 3):
            trial = sealed_segments()
            trial.files.fail(operation, at=at, error=errno.EIO)
            trial.remove(1, 2, 4, 6)
            trial.run()
            if power != "kill":
                trial.crash(random.Random(f"{power} {at}"))
            trial.files.heal()
            trial.reopen()
            trial.check()
            assert (trial.lost, trial.quarantine.names()) == ([], [])


def test_a_process_killed_while_it_erases_leaves_all_other_events() -> None:
    for stop_at in range(1, 6):
        files = TrialFiles()
        trial = Trial.begin(files=files)
        trial.append(8)
        trial.run()
        files.stop_at = files.changes + stop_at
        trial.manifest.remove([1, 3, 6])
        trial.index.mark_dead([1, 3, 6])
        for sequence in (1, 3, 6):
            del trial.expected[sequence]
        trial.maintenance.pruned()
        with pytest.raises(StoppedError):
            trial.run()
        files.stop_at = None
        trial.crash(random.Random(stop_at))
        assert trial.found() == trial.expected
        trial.reopen()
        trial.check()
        assert (trial.lost, trial.manifest.notes, trial.quarantine.names()) == ([], [], [])
