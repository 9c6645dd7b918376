"""Reads and duplicate checks are right while segments are sealed, joined, rewritten and emptied."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import apsw
import pytest
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.events import Event, EventSelection, PruneReason
from mnemon_server.domain.records import Scope
from mnemon_server.engines.events.settings import EventEngineSettings
from mnemon_server.engines.promises.events import EventEngine
from mnemon_server.engines.sqlite_vault import SQLiteVault, VaultSettings

from tests.contract.timeline_suite import ALL, append, get, happening, told, window
from tests.contract.vault_suite import DIMENSION, START, ManualClock
from tests.support.server import wait_until

EVENTS = 600
KEPT = {f"e{number}" for number in range(EVENTS) if number % 3}


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[SQLiteVault]:
    settings = EventEngineSettings(segment_events_max=40, erase_delay_s=0.001, joined_min=2, rewriting_share_max=1.0)
    vault = SQLiteVault(
        tmp_path / "vault",
        model_identity="test/1",
        dimension=DIMENSION,
        settings=VaultSettings(events=settings),
        clock=ManualClock(),
    )
    assert vault.events.wait_until_warm(60)
    yield vault
    vault.close()


@pytest.fixture
def timeline(vault: SQLiteVault) -> EventEngine:
    return vault.events


def event(number: int) -> Event:
    return happening(f"e{number}", START + timedelta(seconds=number * 37 % EVENTS), user=f"u{number % 4}")


@contextmanager
def after_commits(look: Callable[[], None]) -> Iterator[None]:
    """Calls `look` at the moment when a transaction can be read but its writer has not finished."""

    def trace(connection: apsw.Connection) -> None:
        if not connection.open_flags & apsw.SQLITE_OPEN_READONLY:
            connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, lambda ended: look() if ended["sql"] == "COMMIT" else None)

    apsw.connection_hooks.append(trace)
    try:
        yield
    finally:
        apsw.connection_hooks.remove(trace)


@contextmanager
def meanwhile(*checks: Callable[[random.Random], None]) -> Iterator[None]:
    """Repeats checks on threads of their own. Raises at the end what any of them raised."""
    over = threading.Event()
    errors: list[BaseException] = []

    def repeat(check: Callable[[random.Random], None], seed: int) -> None:
        rng = random.Random(seed)
        try:
            while not over.is_set():
                check(rng)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=(check, seed)) for seed, check in enumerate(checks)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


def test_no_read_misses_or_repeats_events_that_stay(timeline: EventEngine) -> None:
    stored = set[int]()

    def by_window(rng: random.Random) -> None:
        user = f"u{rng.randrange(4)}"
        expected = {f"e{number}" for number in set(stored) if f"e{number}" in KEPT and f"u{number % 4}" == user}
        found = window(timeline, EventSelection(scope=Scope(user=user)))
        assert len(found) == len(set(found))
        assert expected <= set(found)

    def by_id(rng: random.Random) -> None:
        ids = [f"e{number}" for number in set(stored) if f"e{number}" in KEPT]
        some = rng.sample(ids, min(len(ids), 20))
        assert [one and one.position.event_id for one in timeline.get(some)] == some

    with meanwhile(by_window, by_id):
        for start in range(0, EVENTS, 20):
            append(timeline, *map(event, range(start, start + 20)))
            stored |= set(range(start, start + 20))
            doomed = [f"e{number}" for number in range(start, start + 20) if f"e{number}" not in KEPT]
            assert timeline.prune(get(timeline, *doomed), PruneReason.REQUESTED).result() == len(doomed)
        timeline.compact(lambda progress: None)

    assert set(window(timeline)) == KEPT
    assert (timeline.failure(), timeline.status().lost) == (None, ())
    wait_until(lambda: timeline.status().removal_pending_count == 0)


def test_duplicates_are_found_while_their_segments_move(timeline: EventEngine) -> None:
    append(timeline, *map(event, range(200)))

    def again(rng: random.Random) -> None:
        numbers = [number for number in rng.sample(range(200), 10) if f"e{number}" in KEPT]
        receipts = append(timeline, *map(event, numbers))
        assert [(one.event_id, one.sequence, one.duplicate) for one in receipts] == [
            (f"e{number}", number + 1, True) for number in numbers
        ]

    with meanwhile(again, again):
        for start in range(0, 200, 5):
            doomed = [f"e{number}" for number in range(start, start + 5) if f"e{number}" not in KEPT]
            timeline.prune(get(timeline, *doomed), PruneReason.REQUESTED).result()
            timeline.compact(lambda progress: None)

    kept = [number + 1 for number in range(200) if f"e{number}" in KEPT]
    assert timeline.sequences(ALL).tolist() == kept
    assert (timeline.failure(), timeline.status().lost) == (None, ())


def test_an_event_in_the_log_is_found_by_any_read(tmp_path: Path) -> None:
    opened: list[SQLiteVault] = []
    looks: list[tuple[set[str], set[str]]] = []
    looking = threading.Lock()

    def look() -> None:
        with looking:
            for vault in opened:
                saved = {change.record_id for change in told(vault, ChangeType.EPISODIC_SAVED)}
                looks.append((saved, {one.position.event_id for one in vault.events.get([*saved]) if one}))

    with after_commits(look):
        vault = SQLiteVault(tmp_path / "vault", model_identity="test/1", dimension=DIMENSION, clock=ManualClock())
        assert vault.events.wait_until_warm(60)
        opened.append(vault)
        append(vault.events, event(1))
        append(vault.events, event(2))
        look()
        with looking:
            opened.clear()
        vault.close()

    assert len(looks) >= 3
    assert all(saved == found for saved, found in looks)
    assert looks[-1][0] == {"e1", "e2"}
