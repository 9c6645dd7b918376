"""However often the bridge is interrupted, and whatever the log has lost, the statements match the timeline."""

import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from mnemon_server.domain.bridge import BridgeStatus
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.semantic import SaveSemantic, SemanticMemory
from mnemon_server.services.background.clock_guard import ClockGuard
from mnemon_server.services.bridge.state import (
    STATE_KEY,
    CatchUp,
    State,
    Suspension,
    state_from_json,
    state_to_json,
)
from mnemon_server.services.feed.retention import ChangeRetention, ChangeRetentionSettings

from tests.support.bridge_stores import BridgedStores, details, happening, open_bridged
from tests.support.semantic_stores import ADA

SEED = 5


def live(stores: BridgedStores) -> None:
    """A fixed history of events of every kind."""
    rng, there = random.Random(SEED), []
    for round_ in range(12):
        events = [
            happening(
                f"e{round_}-{n}",
                rng.choice(["Ada likes tea", "Ada plays chess", "", ""]),
                importance=rng.choice([0.9, 0.9, 0.3, None]),
                ago=timedelta(minutes=1, seconds=100 * round_ + n),
            )
            for n in range(rng.randrange(1, 30))
        ]
        stores.happen(*events)
        there += [event.event_id for event in events]
        if rng.random() < 0.6:
            gone = rng.sample(there, len(there) // 3)
            stores.forget(*gone)
            there = [event_id for event_id in there if event_id not in gone]
        if rng.random() < 0.3:
            stores.warn()
        if rng.random() < 0.3:
            stores.warn(None)
    stores.warn(None)


def counts(status: BridgeStatus) -> dict[str, Any]:
    """Counts of what was done so far."""
    return {
        "routed": status.routed_count,
        "skipped": status.skipped_counts,
        "linked": status.linked_count,
        "deleted": status.deleted_count,
        "queued": status.queue_depth,
    }


async def outcome(stores: BridgedStores, status: BridgeStatus) -> tuple[Any, ...]:
    """Everything that must be the same whatever happened on the way."""
    audits = [(details(event)["event_ids"], event.record_id) for event in stores.changes(ChangeType.BRIDGE_RECONCILED)]
    notes = [event.type for event in stores.changes(ChangeType.BRIDGE_SUSPENDED, ChangeType.BRIDGE_RESUMED)]
    return await stores.known(), counts(status), audits, notes


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("transactions", [1, 2, 3])
async def test_a_bridge_interrupted_after_every_transaction_gets_the_same_result(
    stores: BridgedStores, tmp_path: Path, transactions: int, *, commits: bool
) -> None:
    live(stores)
    async with open_bridged(tmp_path / "undisturbed") as undisturbed:
        live(undisturbed)
        wanted = await outcome(undisturbed, await undisturbed.run())
    # If it is interrupted before a commit, it does not get past its first transaction.
    for _ in range(200 if commits or transactions > 1 else 3):
        await stores.run_cut_off(transactions, commits=commits)
    assert await outcome(stores, await stores.run()) == wanted
    assert wanted[0]


async def test_the_statements_match_the_events_that_are_left(stores: BridgedStores) -> None:
    live(stores)
    await stores.run()
    there = stores.event_ids()
    linked = [event_id for ids in (await stores.known()).values() for event_id in ids]
    assert linked
    assert set(linked) <= there
    assert len(linked) == len(set(linked))


async def test_events_that_the_log_lost_are_read_from_the_timeline(stores: BridgedStores) -> None:
    stores.happen(*(happening(f"e{n}") for n in range(5)))
    status = await stores.run()
    stores.happen(*(happening(f"f{n}", importance=0.9 if n % 2 else 0.1) for n in range(600)))
    stores.forget("e0", "e1")
    stores.happen(happening("g", ago=timedelta(seconds=30)))
    while stores.vault.changes.trim(before=stores.clock(), keep_max=0).result():
        pass
    stores.happen(happening("h"))
    status = await stores.run()
    wanted = ["e2", "e3", "e4", *(f"f{n}" for n in range(1, 600, 2)), "g", "h"]
    assert await stores.known() == {f"what happened in {event_id}": (event_id,) for event_id in wanted}
    assert counts(status) == {
        "routed": 307,
        "skipped": {"importance": 300},
        "linked": 0,
        "deleted": 2,
        "queued": 0,
    }
    assert (status.message, status.timeline_lag_s) == ("", 0.0)
    [audit] = stores.changes(ChangeType.BRIDGE_RECONCILED)
    assert sorted(details(audit)["event_ids"]) == ["e0", "e1"]


async def test_a_gap_is_closed_however_often_the_bridge_is_interrupted(stores: BridgedStores) -> None:
    stores.happen(*(happening(f"e{n}") for n in range(5)))
    await stores.run()
    stores.happen(*(happening(f"f{n}") for n in range(300)))
    stores.forget("e0")
    while stores.vault.changes.trim(before=stores.clock(), keep_max=1).result():
        pass
    for number in range(40):
        await stores.run_cut_off(1 + number % 2, commits=True)
    status = await stores.run()
    wanted = ["e1", "e2", "e3", "e4", *(f"f{n}" for n in range(300))]
    assert await stores.known() == {f"what happened in {event_id}": (event_id,) for event_id in wanted}
    assert (status.routed_count, status.linked_count, status.deleted_count) == (305, 0, 1)


async def test_a_position_beyond_the_log_belongs_to_another_log(stores: BridgedStores) -> None:
    stores.happen(happening("e1"), happening("e2"))
    await stores.run()
    beyond = replace(state_from_json(stores.vault.value(STATE_KEY)), position=10_000, timeline_sequence=1)

    def program(tx: Any) -> str:
        tx.set_value(STATE_KEY, state_to_json(beyond))
        return ""

    stores.vault.transact(program).result()
    stores.happen(happening("e3"))
    await stores.run()
    assert set(await stores.known()) == {f"what happened in e{n}" for n in (1, 2, 3)}


async def test_the_retention_of_the_log_keeps_what_the_bridge_has_not_read(stores: BridgedStores) -> None:
    async with stores.bridge() as bridge:
        stores.happen(*(happening(f"e{n}") for n in range(10)))
        await stores.settled(bridge)
        await bridge.pause()
        stores.happen(*(happening(f"f{n}") for n in range(10)))
        retention = ChangeRetention(
            stores.vault.changes,
            ChangeRetentionSettings(timedelta(0), keep_max=1),
            guard=ClockGuard(stores.vault),
            offload=stores.offload,
            keep_after=bridge.keep_after,
        )
        await retention.sweep()
        saved = [event.record_id for event in stores.changes(ChangeType.EPISODIC_SAVED)]
        assert saved == [f"f{n}" for n in range(10)]
        await bridge.resume()
        assert (await stores.settled(bridge)).routed_count == 20
        await retention.sweep()
        assert stores.vault.changes.state().count == 1


async def test_a_closed_bridge_keeps_its_position(stores: BridgedStores) -> None:
    async with stores.bridge() as bridge:
        stores.happen(happening("e1"))
        await stores.settled(bridge)
        kept = stores.kept_position()
        await stores.semantic.save(SaveSemantic(memory=SemanticMemory("", "Ada likes tea", scope=ADA)))
    assert stores.kept_position() > kept


def test_the_stored_form_of_the_state_is_stable() -> None:
    state = State(
        position=5,
        ahead=9,
        ahead_pruned=1,
        timeline_sequence=4,
        taken_through=3,
        catch_up=CatchUp(7, None),
        suspension=Suspension("critical", "slow", "wait"),
        paused=True,
        routed=1,
        skipped={"gone": 2},
        lag_us=8,
        segment_count=1,
        handled_us=6,
    )
    assert state_from_json(state_to_json(state)) == state
    assert state_from_json(None) == State()
