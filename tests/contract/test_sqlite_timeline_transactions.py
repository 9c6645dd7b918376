"""Events that share a transaction of records.db with other writes, and disks that fail while events are stored."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import pytest
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import DOCUMENTS
from mnemon_server.domain.errors import MnemonError, StorageFailedError, StorageFullError
from mnemon_server.domain.events import EventReceipt, EventsState, PruneReason
from mnemon_server.domain.records import RequestKey
from mnemon_server.engines.events.settings import EventEngineSettings
from mnemon_server.engines.events.tables import delete_events, sealed_events
from mnemon_server.engines.promises.events import EventWrite
from mnemon_server.engines.sqlite.query import insert_rows
from mnemon_server.engines.sqlite.tables import TIMELINE_STATEMENTS
from mnemon_server.engines.sqlite_vault import SQLiteVault, VaultSettings

from tests.contract.test_sqlite_transactions import in_one_commit
from tests.contract.timeline_suite import ALL, append, append_at, get, happening, told, window
from tests.contract.vault_suite import DIMENSION, START, ManualClock, key, listed, write
from tests.support.databases import content_of, open_database
from tests.support.faulty_vfs import FaultyVFS
from tests.support.server import wait_until

_NAMES = count()
_HOUR_US = 3_600_000_000


def open_vault(
    folder: Path, clock: ManualClock | None = None, vfs: str | None = None, **settings: float
) -> SQLiteVault:
    options = {"segment_events_max": 5, "joined_min": 1_000_000} | settings
    vault = SQLiteVault(
        folder,
        model_identity="test/1",
        dimension=DIMENSION,
        clock=clock or ManualClock(),
        settings=VaultSettings(events=EventEngineSettings(**options)),  # type: ignore[arg-type]
        vfs=vfs,
    )
    assert vault.events.wait_until_warm(60)
    return vault


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def vault(tmp_path: Path, clock: ManualClock) -> Iterator[SQLiteVault]:
    vault = open_vault(tmp_path / "vault", clock)
    yield vault
    vault.close()


@pytest.fixture
def vfs() -> Iterator[FaultyVFS]:
    vfs = FaultyVFS(f"faulty-timeline-{next(_NAMES)}")
    yield vfs
    vfs.unregister()


def one(event_id: str, request: RequestKey | None = None, **fields: Any) -> list[EventWrite]:
    return [EventWrite(happening(event_id, **fields), id_is_new=False, request=request)]


def outcomes(results: list[EventReceipt | MnemonError]) -> list[tuple[int, bool, bool]]:
    return [(result.sequence, result.duplicate, result.replayed) for result in results]  # type: ignore[union-attr]


# Calls that are committed together


def test_calls_of_one_commit_see_each_other(vault: SQLiteVault) -> None:
    record = partial(partial, vault.events.append)
    futures = in_one_commit(
        vault,
        record(one("a")),
        record(one("a", content="another text")),
        record(one("b", content="content of a")),
        record(one("c", key("r"))),
        record(one("c", key("r"))),
        record(one("d")),
    )
    assert [outcomes(future.result()) for future in futures] == [
        [(1, False, False)],
        [(1, True, False)],
        [(1, True, False)],
        [(2, False, False)],
        [(2, False, True)],
        [(3, False, False)],
    ]
    assert sorted(window(vault.events)) == ["a", "c", "d"]
    assert len(told(vault, ChangeType.EPISODIC_SAVED)) == 3


def test_segments_are_rolled_within_a_commit_as_between_two(vault: SQLiteVault) -> None:
    record = partial(partial, vault.events.append)
    batches = [[write for number in numbers for write in one(f"e{number}")] for numbers in ([0, 1, 2], range(3, 14))]
    futures = in_one_commit(vault, *map(record, batches))
    receipts = [receipt for future in futures for receipt in future.result()]
    assert [receipt.segment_id for receipt in receipts] == [1] * 5 + [6] * 5 + [11] * 4
    assert [one.segment_id for one in vault.events.read(range(1, 15))] == [1] * 5 + [6] * 5 + [11] * 4


def test_an_event_removed_in_the_same_commit_is_stored_again(vault: SQLiteVault) -> None:
    append(vault.events, happening("a"))
    stored = get(vault.events, "a")
    removing, storing, again = in_one_commit(
        vault,
        lambda: vault.events.prune(stored, PruneReason.REQUESTED),
        lambda: vault.events.append(one("a")),
        lambda: vault.events.prune(stored, PruneReason.REQUESTED),
    )
    assert (removing.result(), outcomes(storing.result()), again.result()) == (1, [(2, False, False)], 0)
    assert [found and found.sequence for found in vault.events.get(["a"])] == [2]
    assert vault.events.read([1]) == []


def test_a_failing_write_undoes_no_event_and_duplicates_none(vault: SQLiteVault) -> None:
    def fail(tx: object) -> str:
        tx.collection(DOCUMENTS).put_document(write("never"))  # type: ignore[attr-defined]
        raise ValueError("the test's program fails after it has written")

    record = partial(partial, vault.events.append)
    before, failed, after = in_one_commit(
        vault, record(one("before", key("r"))), lambda: vault.transact(fail), record(one("after"))
    )
    assert isinstance(failed.exception(), ValueError)
    assert [outcomes(future.result()) for future in (before, after)] == [[(1, False, False)], [(2, False, False)]]
    assert sorted(window(vault.events)) == ["after", "before"]
    assert [event.record_id for event in told(vault)] == ["before", "after"]
    assert listed(vault.collection(DOCUMENTS)) == []
    assert vault.events.sequences(ALL).tolist() == [1, 2]


# The clock


@pytest.mark.parametrize("jump_s", [-7_200, 7_200])
def test_clock_jumps_change_no_order_and_lose_nothing(tmp_path: Path, clock: ManualClock, jump_s: float) -> None:
    vault = open_vault(tmp_path / "vault", clock)
    append(vault.events, happening("a", START + timedelta(seconds=1)))
    clock.now += timedelta(seconds=jump_s)
    receipts = append(vault.events, happening("b", START), happening("c", START + timedelta(seconds=2)))
    clock.now -= timedelta(seconds=jump_s)
    receipts += append(vault.events, happening("d", START + timedelta(seconds=3)))
    assert [receipt.sequence for receipt in receipts] == [2, 3, 4]
    assert window(vault.events) == ["d", "c", "a", "b"]
    noted = told(vault, ChangeType.EPISODIC_SAVED)
    assert [event.record_id for event in noted] == ["a", "b", "c", "d"]
    assert [event.time for event in noted] == sorted(event.time for event in noted)
    vault.close()
    vault = open_vault(tmp_path / "vault", clock)
    assert window(vault.events) == ["d", "c", "a", "b"]
    vault.close()


def test_a_segment_ends_at_its_maximum_age(vault: SQLiteVault, clock: ManualClock) -> None:
    ids = []
    # A segment may be made a moment before its first event, and its age counts from then.
    for minutes in (0, 59, 60, 61, 121):
        clock.now = START + timedelta(minutes=minutes)
        [receipt] = append(vault.events, happening(f"e{minutes}"))
        ids.append(receipt.segment_id)
    assert ids[0] == ids[1] < ids[2] == ids[3] < ids[4]


def test_a_segment_ends_at_its_maximum_size(tmp_path: Path) -> None:
    vault = open_vault(tmp_path / "vault", segment_bytes_max=5_000, segment_events_max=100)
    sizes = [1_500, 1_500, 1_500, 1_500, 9_000, 10]
    receipts = append(vault.events, *(happening(f"e{i}", content=str(i) * size) for i, size in enumerate(sizes)))
    assert [receipt.segment_id for receipt in receipts] == [1, 1, 1, 4, 5, 6]
    assert [len(stored.body) > size for stored, size in zip(vault.events.read(range(1, 7)), sizes, strict=True)] == [
        True
    ] * 6
    vault.close()


# Disks that fail


def test_a_full_disk_refuses_events_until_there_is_space(tmp_path: Path, vfs: FaultyVFS) -> None:
    vault = open_vault(tmp_path / "vault", vfs=vfs.name)
    append_at(vault.events, [START] * 3)
    vfs.fail_write_at, vfs.failures = vfs.writes + 1, 10_000
    for _ in range(3):
        with pytest.raises(StorageFullError, match="no space"):
            vault.events.append(one("more", key("r"))).result()
        with pytest.raises(StorageFullError, match="no space"):
            vault.events.prune(get(vault.events, "e0"), PruneReason.REQUESTED).result()
    assert window(vault.events) == ["e2", "e1", "e0"]
    vfs.fail_write_at = 0
    assert outcomes(vault.events.append(one("more", key("r"))).result()) == [(4, False, False)]
    assert vault.events.prune(get(vault.events, "e0"), PruneReason.REQUESTED).result() == 1
    assert window(vault.events) == ["more", "e2", "e1"]
    vault.close()


@pytest.mark.parametrize("calls", range(1, 7))
@pytest.mark.parametrize("failures", [1, 2, 4])
def test_after_a_failed_sync_the_timeline_agrees_with_its_file(
    tmp_path: Path, vfs: FaultyVFS, calls: int, failures: int
) -> None:
    vault = open_vault(tmp_path / "vault", vfs=vfs.name)
    append_at(vault.events, [START] * 7)
    vfs.fail_sync_at, vfs.failures = vfs.syncs + calls, failures
    acknowledged = {f"e{number}" for number in range(7)}
    removed = set()
    for number in range(12):
        try:
            append(vault.events, happening(f"more{number}"))
            acknowledged.add(f"more{number}")
            vault.events.prune(get(vault.events, f"e{number}"), PruneReason.REQUESTED).result()
            removed.add(f"e{number}")
        except (StorageFailedError, AssertionError):
            break
    assert vault.failure()
    status = vault.events.status()
    assert (status.state, status.message) == (EventsState.DEGRADED, vault.failure())
    assert status.segment_count >= 2 and status.event_count >= 6
    # If the disk fails for long, unacknowledged writes may be there when the file is opened again.
    wait_until(lambda: recovered(vault))

    found = window(vault.events)
    assert acknowledged - removed - {f"e{len(removed)}"} <= set(found)
    assert not removed & set(found) and len(found) == len(set(found))
    [anew] = append(vault.events, happening("later"))
    known = append(vault.events, *(happening(event_id, content="another") for event_id in found))
    assert all(receipt.duplicate for receipt in known)
    kept = sorted([*found, "later"])
    assert sorted(vault.events.sequences(ALL).tolist())[-1] == anew.sequence
    vault.close()

    vault = open_vault(tmp_path / "vault")
    assert sorted(window(vault.events)) == kept
    saved, pruned = told(vault, ChangeType.EPISODIC_SAVED), told(vault, ChangeType.EPISODIC_PRUNED)
    assert len(saved) - len(pruned) == len(kept)
    vault.close()


# What the file holds


def test_the_text_of_events_leaves_the_file_with_their_rows(tmp_path: Path) -> None:
    vault = open_vault(tmp_path / "vault")
    append(vault.events, *(happening(f"e{i}", content=f"confidential-{i} " * 9) for i in range(11)))
    vault.events.prune(get(vault.events, "e10"), PruneReason.REQUESTED).result()
    wait_until(lambda: rows(tmp_path / "vault") == [])
    vault.close()
    assert b"confidential" not in content_of(tmp_path / "vault" / "records.db")


def test_rows_are_deleted_in_steps_limited_by_count_and_bytes(tmp_path: Path) -> None:
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT ROWID")
    for statement in TIMELINE_STATEMENTS:
        connection.execute(statement)
    bodies = [*[b"x"] * 2_500, *[bytes(3 << 20)] * 5]
    scope = ("u", "", "", "", "", "", "")
    rows = [(i, 0, i, i, *scope, "t", None, "", body) for i, body in enumerate(bodies, 1)]
    insert_rows(connection, "INSERT INTO timeline_event VALUES", rows)
    steps = []
    while sealed := sealed_events(connection):
        delete_events(connection, sealed)
        steps.append(len(sealed))
    assert steps == [2_000, 502, 2, 1]


def recovered(vault: SQLiteVault) -> bool:
    try:
        vault.recover()
    except StorageFailedError:
        return False
    return True


def rows(folder: Path) -> list[int]:
    """The sequences of the rows of events."""
    connection = open_database(folder / "records.db", flags=apsw.SQLITE_OPEN_READONLY)
    found: list[Any] = connection.execute("SELECT sequence FROM timeline_event").fetchall()
    connection.close()
    return [sequence for (sequence,) in found]
