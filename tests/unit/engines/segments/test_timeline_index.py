"""The index of a timeline answers about any events like plain lists."""

import threading
from dataclasses import replace
from itertools import pairwise

import pytest
from mnemon_server.domain.events import content_digest
from mnemon_server.domain.records import Scope
from mnemon_server.engines.events.index import hash_index
from mnemon_server.engines.events.index.hashes import id_hash, key_hash
from mnemon_server.engines.events.index.index import TimelineIndex
from mnemon_server.engines.events.index.rows import NO_OFFSET, EventKey, EventRow
from mnemon_server.engines.events.index.sealed_block import SealedBlock
from mnemon_server.engines.events.index.selection import Selection

from tests.support.timeline_index import DAY_US, TimelineTrial

SEEDS = range(8)


def row(sequence: int, time_us: int = 0, **changes: object) -> EventRow:
    """Some event."""
    event = EventRow(sequence, time_us, id_hash(str(sequence)), sequence, Scope(user="ada"), "task", 0.5, sequence)
    return event._replace(**changes)


@pytest.fixture(params=SEEDS)
def trial(request: pytest.FixtureRequest) -> TimelineTrial:
    """A timeline with a history."""
    trial = TimelineTrial(seed=request.param)
    trial.begin()
    for _ in range(120):
        trial.step()
    trial.append(5)
    return trial


def test_a_page_holds_the_first_events_and_all_that_share_the_last_ones_time(trial: TimelineTrial) -> None:
    for _ in range(60):
        selection, limit = trial.selection(), trial.random.choice([1, 2, 7, 50])
        for oldest_first in (False, True):
            wanted = trial.selected(selection, oldest_first=oldest_first)
            cut = [ref for ref in wanted if ref.time_us in {first.time_us for first in wanted[:limit]}]
            assert trial.index.page(selection, limit=limit, oldest_first=oldest_first) == cut


def test_a_page_continues_at_the_time_of_the_last_event_read(trial: TimelineTrial) -> None:
    for _ in range(60):
        selection, limit = trial.selection(), trial.random.choice([1, 3, 9])
        for oldest_first in (False, True):
            wanted = trial.selected(selection, oldest_first=oldest_first)
            if not wanted:
                continue
            last = trial.random.choice(wanted)
            same = [ref for ref in wanted if ref.time_us == last.time_us]
            behind = wanted[wanted.index(same[-1]) + 1 :]
            cut = [ref for ref in behind if ref.time_us in {first.time_us for first in behind[:limit]}]
            page = trial.index.page(selection, before=(last.time_us, "any"), limit=limit, oldest_first=oldest_first)
            assert page == same + cut


def test_a_page_after_the_window_is_empty() -> None:
    index = TimelineIndex()
    index.add_open(1)
    index.append(1, [row(1, 10), row(2, 20), row(3, 30)])
    selection = Selection(start_us=15, end_us=25)
    assert index.page(selection, before=(30, "z"), limit=5) == index.page(selection, limit=5)
    assert index.page(selection, before=(10, "a"), limit=5) == []
    assert index.page(selection, limit=0) == []
    assert index.page(Selection(start_us=2**70), limit=5) == index.page(Selection(end_us=-(2**70)), limit=5) == []


def test_iterating_returns_all_events_once_in_chunks_that_end_with_a_time(trial: TimelineTrial) -> None:
    for _ in range(30):
        selection = trial.selection()
        for oldest_first in (False, True):
            chunks = list(trial.index.iterate(selection, oldest_first=oldest_first, chunk=4))
            assert [ref for chunk in chunks for ref in chunk] == trial.selected(selection, oldest_first=oldest_first)
            assert all(before[-1].time_us != after[0].time_us for before, after in pairwise(chunks))


def test_events_are_counted_by_context_and_by_window(trial: TimelineTrial) -> None:
    for _ in range(100):
        selection = trial.selection()
        assert trial.index.counts(selection) == trial.counts(selection)
        page = trial.index.page(selection, limit=5)
        assert trial.index.counted_page(selection, limit=5) == (trial.counts(selection), page)
        before = (page[-1].time_us, "any") if page else (0, "any")
        behind = trial.index.page(selection, before=before, limit=5)
        assert trial.index.counted_page(selection, before=before, limit=5) == (trial.counts(selection), behind)
    assert trial.index.count == len(trial.alive)


def test_a_summary_has_the_first_and_last_time_and_the_counts_by_type_and_day(trial: TimelineTrial) -> None:
    for _ in range(60):
        selection = trial.selection()
        summary = trial.index.summarize(selection)
        assert summary == trial.summary(selection)
        assert list(summary.per_day) == sorted(summary.per_day)


def test_a_summary_of_everything_follows_removals_and_rewrites(trial: TimelineTrial) -> None:
    for _ in range(60):
        whole = Selection()
        assert trial.index.summarize(whole) == trial.summary(whole)
        trial.step()


def test_events_are_found_by_their_ids(trial: TimelineTrial) -> None:
    ids = [*{told.event_id for told in trial.told}, "never told"]
    found = trial.index.find_ids(ids)
    assert [sorted(refs) for refs in found] == [trial.with_id(event_id) for event_id in ids]


def test_events_are_found_by_their_duplicate_key(trial: TimelineTrial) -> None:
    keys = [EventKey(told.row.scope.user, told.row.time_us, told.row.key_hash) for told in trial.told]
    keys += [key._replace(time_us=key.time_us + 1) for key in keys[:5]]
    keys += [key._replace(user="nobody") for key in keys[:5]] + [key._replace(key_hash=77) for key in keys[:5]]
    trial.random.shuffle(keys)
    found = trial.index.find_keys(keys)
    assert [sorted(refs) for refs in found] == [trial.with_key(key) for key in keys]
    assert trial.index.find_keys([]) == []


def test_events_are_found_by_their_sequences(trial: TimelineTrial) -> None:
    sequences = [told.row.sequence for told in trial.told][::2]
    wanted = [trial.ref(told) for told in trial.alive if told.row.sequence in sequences]
    assert sorted(trial.index.locate([*sequences, 10**6])) == sorted(wanted)
    selection = trial.selection()
    chosen = sorted(ref.sequence for ref in trial.selected(selection))
    assert trial.index.sequences(selection).tolist() == chosen


def test_expired_events_come_oldest_first_with_their_number(trial: TimelineTrial) -> None:
    times = sorted(told.row.time_us for told in trial.alive)
    for before_us in (times[0], times[len(times) // 2], times[-1] + 1, -(2**63)):
        old = sorted(trial.ref(told) for told in trial.alive if told.row.time_us < before_us)
        for limit in (0, 3, 10**6):
            expired = trial.index.expired(before_us, limit)
            assert (expired.oldest, expired.count) == (old[:limit], len(old))


def test_a_window_includes_its_bounds() -> None:
    index = TimelineIndex()
    index.add_sealed(SealedBlock.from_rows(1, [row(1, 10), row(2, 20), row(3, 30)], index.interners))
    refs = index.page(Selection(scope=Scope(user="ada"), start_us=20, end_us=30), limit=9)
    assert [ref.sequence for ref in refs] == [3, 2]


@pytest.mark.parametrize("sealed", [False, True])
def test_importance_is_compared_in_single_precision_and_never_guessed(*, sealed: bool) -> None:
    index = TimelineIndex()
    rows = [row(1, importance=0.7), row(2, importance=None), row(3, importance=0.6999), row(4, importance=0.0)]
    index.add_open(1)
    index.append(1, rows)
    if sealed:
        index.seal(SealedBlock.from_open(index.open_block(1), [1, 2, 3, 4]))
    assert index.sequences(Selection(min_importance=0.7)).tolist() == [1]
    assert index.sequences(Selection(min_importance=0.0)).tolist() == [1, 3, 4]
    assert index.counts(Selection(min_importance=0.7)).filtered_by_context == 3


def test_an_event_removed_while_its_segment_is_sealed_stays_removed() -> None:
    index = TimelineIndex()
    index.add_open(1)
    index.append(1, [row(1), row(2), row(3)])
    index.mark_dead([1])
    block = SealedBlock.from_open(index.open_block(1), [100, 200, 300])
    index.mark_dead([2])
    index.seal(block)
    assert index.page(Selection(), limit=9) == [(0, 3, 1, 300)]
    assert index.mark_dead([1, 2]) == 0
    index.swap([1], SealedBlock.from_rows(1, [row(1), row(2), row(3)], index.interners))
    assert index.count == 1


def test_a_block_with_other_events_does_not_replace_an_open_one() -> None:
    index = TimelineIndex()
    index.add_open(1)
    index.append(1, [row(1), row(2)])
    block = SealedBlock.from_open(index.open_block(1), [100, 200])
    index.append(1, [row(3)])
    with pytest.raises(ValueError, match="segment 1 has 3 events, its sealed block 2"):
        index.seal(block)
    assert index.count == 3
    with pytest.raises(KeyError):
        index.open_block(7)
    with pytest.raises(KeyError):
        index.sealed_block(1)


def test_many_rows_are_found_by_hash_wherever_the_index_stores_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_index, "TAIL_MAX", 50)
    index = TimelineIndex()
    index.add_open(1)
    ids = [f"id {sequence % 90}" for sequence in range(1, 301)]
    rows = [row(place, place, id_hash=id_hash(event_id), key_hash=place) for place, event_id in enumerate(ids, 1)]
    for start in range(0, 300, 7):
        index.append(1, rows[start : start + 7])
    found = index.find_ids([f"id {number}" for number in range(90)])
    expected = [[place for place, event_id in enumerate(ids, 1) if event_id == f"id {number}"] for number in range(90)]
    assert [sorted(ref.sequence for ref in refs) for refs in found] == expected
    by_key = index.find_keys([EventKey("ada", place, place) for place in range(1, 301)])
    assert [[ref.sequence for ref in refs] for refs in by_key] == [[place] for place in range(1, 301)]


def test_readers_see_whole_batches_while_others_write() -> None:
    index = TimelineIndex()
    index.add_open(1)
    done = threading.Event()
    seen: list[set[int]] = []

    def read() -> None:
        while not done.is_set():
            for user in ("ada", ""):
                refs = index.page(Selection(scope=Scope(user=user)), limit=10**6)
                seen.append({len(refs) % 10})

    reader = threading.Thread(target=read)
    reader.start()
    segment_id = 1
    for start in range(1, 6001, 10):
        # Each batch brings a new scope and a new type.
        rows = [row(place, place, event_type=f"t{start}") for place in range(start, start + 10)]
        index.append(segment_id, [each._replace(scope=Scope("ada", project=f"p{start}")) for each in rows])
        if start % 500 == 1 and start > 1:
            count = index.open_block(segment_id).view().count
            index.seal(SealedBlock.from_open(index.open_block(segment_id), range(count)))
            segment_id = start + 10
            index.add_open(segment_id)
    done.set()
    reader.join(timeout=60)
    assert seen and set.union(*seen) == {0}
    assert index.count == 6000


def test_a_sealed_event_takes_at_most_fifty_bytes() -> None:
    count, users = 100_000, [Scope(user=f"user {number}", persona="p") for number in range(1000)]
    index = TimelineIndex()
    rows = [row(place, place, scope=users[place % 1000], key_hash=place) for place in range(1, count + 1)]
    index.add_sealed(SealedBlock.from_rows(1, rows, index.interners))
    assert index.nbytes <= 50 * count + 100_000  # the second number is for the scopes
    assert index.counts(Selection(scope=Scope(user="user 7"))).in_context == count / 1000


def test_missing_events_are_reported_as_missing() -> None:
    index = TimelineIndex()
    selection = Selection(scope=Scope(user="ada"))
    assert index.page(selection, limit=5) == [] and list(index.iterate(Selection())) == []
    assert index.counts(Selection()) == (0, 0, 0)
    assert index.summarize(Selection()).earliest_us is None
    assert index.find_ids(["a", "b"]) == [[], []]
    assert index.find_keys([EventKey("ada", 0, 0)]) == [[]]
    assert index.expired(DAY_US, 5).count == 0
    index.add_open(1)
    index.add_sealed(SealedBlock.from_rows(9, [], index.interners))
    assert index.page(replace(selection, scope=Scope()), limit=5) == [] and index.counts(selection) == (0, 0, 0)
    assert index.find_keys([EventKey("ada", 0, 0)]) == [[]] and index.mark_dead([1, 9]) == 0
    assert index.segment_ids == [1, 9]


def test_an_open_event_has_no_offset_and_a_sealed_one_has_its_own() -> None:
    index = TimelineIndex()
    index.add_open(5)
    index.append(5, [row(5, 3), row(6, 1), row(7, 2)])
    assert {ref.offset for ref in index.page(Selection(), limit=9)} == {NO_OFFSET}
    index.seal(SealedBlock.from_open(index.open_block(5), [64, 1000, 2**32 - 1]))
    assert index.page(Selection(), limit=9, oldest_first=True) == [(1, 6, 5, 1000), (2, 7, 5, 2**32 - 1), (3, 5, 5, 64)]


def test_hashes_of_keys_distinguish_their_parts() -> None:
    digest = content_digest("tea")
    hashes = {
        key_hash("ab", "c", "task", 1, digest),
        key_hash("a", "bc", "task", 1, digest),
        key_hash("ab", "", "ctask", 1, digest),
        key_hash("ab", "c", "task", -1, digest),
        key_hash("ab", "c", "task", 1, content_digest("Tea")),
    }
    assert len(hashes) == 5
    # Files contain these numbers, so they must never change.
    assert id_hash("é") == 3394012004367669963
    assert key_hash("ab", "c", "task", 1, digest) == 5319478829163803104
