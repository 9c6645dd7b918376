"""Damage to timeline files: no wrong event is returned, only the damaged ones are lost, and every loss is reported."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest
from mnemon_server.domain.events import EventsState, PruneReason
from mnemon_server.engines.events.format.layout import FOOTER_BYTES
from mnemon_server.engines.events.upkeep.manifest import SegmentState
from mnemon_server.engines.sqlite_vault import SQLiteVault, VaultSettings

from tests.contract.timeline_suite import SETTINGS, append, append_at, get, happening, told, window
from tests.contract.vault_suite import DIMENSION, START, ManualClock
from tests.support.databases import contents_of
from tests.support.server import wait_until
from tests.support.timeline_trial import SETTINGS as TRIAL_SETTINGS
from tests.support.timeline_trial import Trial

EVENTS = 11
SETTINGS_OF_TWENTY = replace(TRIAL_SETTINGS, segment_events_max=20)


def three_segments() -> Trial:
    """Events 1 to 4 and 5 to 8 in sealed segments, 9 to 11 in the open one."""
    trial = Trial.begin()
    trial.append(EVENTS)
    trial.run()
    states = [(row.segment_id, row.state) for row in trial.manifest.segments()]
    assert states == [(1, SegmentState.SEALED), (5, SegmentState.SEALED), (9, SegmentState.OPEN)]
    return trial


class Copy:
    """A copy of a timeline from which each trial begins."""

    def __init__(self) -> None:
        self.trial = three_segments()
        self.contents = {name: self.trial.files.content(name) for name in self.trial.files.names()}
        self.list = dict(self.trial.manifest.list)
        self.rows = dict(self.trial.manifest.rows)
        self.expected = dict(self.trial.expected)
        self.spans = {sequence: self.trial.span(sequence) for sequence in range(1, 9)}

    def restore(self) -> Trial:
        """Restores the timeline. It is not yet started."""
        trial = self.trial
        for name in trial.files.names():
            trial.files.unlink(name)
        for name in trial.quarantine.names():
            trial.quarantine.unlink(name)
        for name, content in self.contents.items():
            trial.files.put(name, content)
        trial.manifest.list, trial.manifest.rows = dict(self.list), dict(self.rows)
        trial.manifest.lost, trial.manifest.notes = [], []
        trial.expected = dict(self.expected)
        return trial

    def touched(self, segment_id: int, start: int, end: int) -> list[int]:
        """The events of a sealed segment whose frames overlap a range of bytes."""
        return [
            one
            for one, (first, behind) in self.spans.items()
            if segment_id <= one < segment_id + 4 and first < end and start < behind
        ]


def expect_lost(trial: Trial, lost: list[int]) -> None:
    """Checks that exactly these events are gone and reported as lost, and that nothing else is wrong."""
    for sequence in lost:
        del trial.expected[sequence]
    trial.check()
    assert [sequence for first, last, _ in trial.lost for sequence in range(first, last + 1)] == lost
    assert sum(count for _, _, count in trial.lost) == len(lost)
    assert trial.manifest.notes == [] or trial.manifest.notes[-1] is None
    assert bool(lost) == ("critical" in trial.severities)
    assert trial.maintenance.failure() is None


EVERYWHERE = pytest.mark.parametrize(
    ("segment_id", "step"),
    [
        *((segment_id, 5) for segment_id in (1, 5, 9)),
        *(pytest.param(segment_id, 1, marks=pytest.mark.slow) for segment_id in (1, 5, 9)),
    ],
)
"""At every fifth byte of a file, and in the long form at each."""


@EVERYWHERE
def test_a_flipped_byte_costs_at_most_the_event_that_holds_it(segment_id: int, step: int) -> None:
    copy = Copy()
    name = copy.trial.name_of(segment_id)
    for offset in range(0, len(copy.contents[name]), step):
        trial = copy.restore()
        trial.damage(segment_id, offset, bit=offset % 8)
        trial.reopen()
        expect_lost(trial, copy.touched(segment_id, offset, offset + 1))
        assert trial.quarantine.names() == [name], offset


@EVERYWHERE
def test_a_truncated_file_costs_only_the_events_after_the_cut(segment_id: int, step: int) -> None:
    copy = Copy()
    name = copy.trial.name_of(segment_id)
    for size in range(0, len(copy.contents[name]), step):
        trial = copy.restore()
        trial.files.put(name, copy.contents[name][:size])
        trial.reopen()
        expect_lost(trial, copy.touched(segment_id, size, len(copy.contents[name])))


def test_damage_found_by_a_read_is_repaired_before_the_answer() -> None:
    copy = Copy()
    for sequence in (1, 4, 6):
        trial = copy.restore()
        trial.reopen()
        trial.damage(1 if sequence < 5 else 5, copy.spans[sequence][0] + 25)
        assert set(trial.found()) == set(range(1, EVENTS + 1)) - {sequence}
        trial.run()
        expect_lost(trial, [sequence])


def test_removed_events_in_a_damaged_segment_do_not_count_as_lost() -> None:
    trial = three_segments()
    spans = {sequence: trial.span(sequence) for sequence in (6, 7)}
    trial.manifest.remove([6])
    trial.index.mark_dead([6])
    del trial.expected[6]
    for start, _ in spans.values():
        trial.damage(5, start + 30)
    trial.scrub()
    expect_lost(trial, [7])


def test_events_whose_rows_still_exist_are_restored_from_them() -> None:
    trial = three_segments()
    start, _ = trial.span(7)
    trial.manifest.rows[7] = 5, trial.expected[7]
    trial.damage(5, start + 30)
    trial.scrub()
    expect_lost(trial, [])
    assert trial.severities == ["warning", "healthy"]


def test_several_damages_of_one_segment_are_reported_as_separate_ranges() -> None:
    trial = Trial.begin(settings=SETTINGS_OF_TWENTY)
    trial.append(21)
    trial.run()
    for sequence in (3, 4, 5, 11, 20):
        trial.damage(1, trial.span(sequence)[0] + 30)
    trial.damage(1, len(trial.files.content(trial.name_of(1))) - 20)
    trial.reopen()
    for sequence in (3, 4, 5, 11, 20):
        del trial.expected[sequence]
    trial.check()
    assert trial.lost == [(3, 5, 3), (11, 11, 1), (20, 20, 1)]


def test_a_cut_after_removed_events_is_reported_by_count_and_range() -> None:
    trial = Trial.begin(settings=SETTINGS_OF_TWENTY)
    trial.append(21)
    trial.run()
    trial.remove(2, 9, 15)
    trial.run()
    end = trial.span(12)[0]
    name = trial.name_of(1)
    trial.files.put(name, trial.files.content(name)[:end])
    trial.reopen()
    for sequence in (12, 13, 14, 16, 17, 18, 19, 20):
        del trial.expected[sequence]
    trial.check()
    assert trial.lost == [(12, 20, 8)]


def test_unreadable_pages_cost_only_the_events_on_them() -> None:
    trial = Trial.begin()
    trial.context = "long " * 1_700
    trial.append(EVENTS)
    trial.run()
    start, end = trial.span(6)
    trial.reopen()
    trial.files.bad_bytes = {trial.name_of(5): range((start + end) // 2, (start + end) // 2 + 1)}
    trial.scrub()
    trial.files.bad_bytes.clear()
    del trial.expected[6]
    assert trial.found() == trial.expected and trial.lost == [(6, 6, 1)]
    # It could not be copied as a whole, so it stays.
    assert trial.quarantine.names() == []
    assert "00000000000000000005-0001.segment.unreadable" in trial.files.names()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EACCES])
@pytest.mark.parametrize("at_start", [False, True])
def test_a_file_that_cannot_be_opened_for_a_while_does_not_count_as_lost(error: int, *, at_start: bool) -> None:
    trial = three_segments()
    name = trial.name_of(5)
    trial.files.unopenable = {name: error}
    if at_start:
        trial.reopen()
    else:
        trial.maintenance.store.readers.forget(name)
        trial.scrub()
    assert trial.lost == [] and name in trial.files.names()
    failure = trial.maintenance.failure()
    assert failure is not None and name in failure and errno.errorcode[error] in failure
    trial.files.unopenable = {}
    trial.clocks.pass_time(60)
    trial.run()
    trial.check()
    assert trial.lost == [] and trial.severities == ["warning", "healthy"]


def test_a_file_that_can_no_longer_be_opened_is_lost_but_kept_and_the_warning_says_where() -> None:
    trial = three_segments()
    name = trial.name_of(5)
    trial.files.unopenable = {name: errno.EIO}
    trial.reopen()
    assert sorted(trial.found()) == sorted(trial.expected.keys() - {5, 6, 7, 8}) and trial.lost == [(5, 8, 4)]
    assert trial.quarantine.names() == [] and f"{name}.unreadable" in trial.files.names()
    assert trial.manifest.notes[0] is not None and f"{name}.unreadable" in trial.manifest.notes[0].remediation


def test_the_warning_of_a_damaged_file_says_where_it_is_and_that_of_a_missing_one_does_not() -> None:
    trial = three_segments()
    trial.damage(1, trial.span(2)[0] + 30)
    trial.scrub()
    trial.files.unlink(trial.name_of(5))
    trial.scrub()
    remedies = [note.remediation for note in trial.manifest.notes if note is not None]
    assert ["quarantine" in remedy for remedy in remedies] == [True, False]
    assert all("restore the events from a backup" in remedy for remedy in remedies)


def test_garbage_after_the_end_of_a_sealed_file_costs_nothing() -> None:
    trial = three_segments()
    name = trial.name_of(1)
    trial.files.put(name, trial.files.content(name) + b"\x7e\xa5\x01\x01 and so on")
    trial.reopen()
    expect_lost(trial, [])
    assert trial.severities == ["warning", "healthy"]


def test_without_space_for_the_repaired_file_sound_events_are_still_found() -> None:
    trial = three_segments()
    trial.damage(5, trial.span(6)[0] + 30)
    trial.damage(5, len(trial.files.content(trial.name_of(5))) - FOOTER_BYTES // 2)
    trial.files.fail("append", at=1, times=10**6, error=errno.ENOSPC)
    trial.quarantine.fail("append", at=1, times=10**6, error=errno.ENOSPC)
    trial.reopen()
    del trial.expected[6]
    assert trial.found() == trial.expected
    failure = trial.maintenance.failure()
    assert failure is not None and "no space" in failure
    assert trial.lost == [] and trial.severities == ["warning"]
    trial.files.heal()
    trial.quarantine.heal()
    trial.clocks.pass_time(60)
    trial.run()
    trial.check()
    assert trial.lost == [(6, 6, 1)]
    assert trial.severities == ["warning", "critical", "healthy"]


# A whole vault


def _open(folder: Path, clock: ManualClock) -> SQLiteVault:
    vault = SQLiteVault(
        folder, model_identity="test/1", dimension=DIMENSION, settings=VaultSettings(events=SETTINGS), clock=clock
    )
    assert vault.events.wait_until_warm(60)
    return vault


def _sealed_vault(folder: Path, clock: ManualClock) -> list[Path]:
    """A closed vault with two sealed segments of five events, and three events in an open one."""
    vault = _open(folder, clock)
    append_at(vault.events, [START] * 13)
    wait_until(lambda: vault.events.status().unsealed_count == 3)
    vault.close()
    return sorted((folder / "timeline").iterdir())


def test_a_damaged_vault_opens_with_everything_else_and_reports_the_loss(tmp_path: Path) -> None:
    clock = ManualClock()
    files = _sealed_vault(tmp_path, clock)
    content = bytearray(files[1].read_bytes())
    content[len(content) // 4] ^= 1
    files[1].write_bytes(content)

    vault = _open(tmp_path, clock)
    wait_until(lambda: bool(vault.events.status().lost) and vault.events.status().state is EventsState.READY)
    [lost] = vault.events.status().lost
    assert (lost.segment_id, lost.event_count) == (6, 1) and 6 <= lost.first_sequence == lost.last_sequence <= 10
    assert sorted(window(vault.events)) == sorted(f"e{n}" for n in range(13) if n != lost.first_sequence - 1)
    wait_until(lambda: len(_warnings(vault)) == 2)
    warning, healthy = _warnings(vault)
    assert warning[0] == "memory:episodic:warning" and "segment 6" in warning[1] and "critical" in warning[1]
    assert healthy[0] == "memory:episodic:healthy"
    assert [path.name for path in (tmp_path / "quarantine").iterdir()] == [files[1].name]
    vault.close()


@pytest.mark.parametrize("copies_left", [1, 0])
def test_pruned_events_leave_the_copy_of_a_damaged_segment(tmp_path: Path, copies_left: int) -> None:
    """The event's bytes go and the damage stays for inspection. If the event may be in the damage, the copy goes."""
    clock = ManualClock()
    vault = _open(tmp_path, clock)
    append(vault.events, *(happening(f"e{n}", content=f"word{n}") for n in range(13)))
    wait_until(lambda: vault.events.status().unsealed_count == 3)
    vault.close()
    damaged = sorted((tmp_path / "timeline").iterdir())[1]
    content = bytearray(damaged.read_bytes())
    content[content.index(b"word7") + 4] ^= 0x40
    if not copies_left:
        # There is no longer a way to tell where its events are.
        content[:8] = bytes(8)
    damaged.write_bytes(content)

    vault = _open(tmp_path, clock)
    wait_until(lambda: bool(vault.events.status().lost) and vault.events.status().state is EventsState.READY)
    [copy] = (tmp_path / "quarantine").iterdir()
    assert b"word8" in copy.read_bytes()
    vault.events.prune(get(vault.events, "e8", "e2"), PruneReason.REQUESTED).result()
    wait_until(lambda: vault.events.status().removal_pending_count == 0)
    kept = [path.read_bytes() for path in (tmp_path / "quarantine").iterdir()]
    assert [(b"word8" in one, b"word6" in one, b"wordw" in one) for one in kept] == [(False, True, True)] * copies_left
    files = contents_of(tmp_path)
    assert not any(removed in files for removed in (b"word2", b"word8"))
    # Nobody removed the lost event: its words leave the text index when that is compared at the next start.
    files = b"".join(path.read_bytes() for path in (tmp_path / "timeline").iterdir())
    assert [number for number in range(13) if b"word%d" % number in files] == [0, 1, 3, 4, 5, 6, 9, 10, 11, 12]
    assert sorted(window(vault.events)) == sorted(f"e{n}" for n in range(13) if n not in (2, 7, 8))
    vault.close()


def test_a_vault_with_all_files_truncated_opens_with_what_is_before_the_cuts(tmp_path: Path) -> None:
    clock = ManualClock()
    files = _sealed_vault(tmp_path, clock)
    for path in files:
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 3])
    vault = _open(tmp_path, clock)
    lost = vault.events.status().lost
    assert [run.segment_id for run in lost] == [1, 6]
    gone = {sequence for run in lost for sequence in range(run.first_sequence, run.last_sequence + 1)}
    assert len(gone) == sum(run.event_count for run in lost) < 10
    assert sorted(window(vault.events)) == sorted(f"e{n}" for n in range(13) if n + 1 not in gone)
    vault.close()


def _warnings(vault: SQLiteVault) -> list[tuple[str, str]]:
    kinds = ("memory:episodic:warning", "memory:episodic:healthy")
    return [(event.type.value, event.details) for event in told(vault) if event.type.value in kinds]
