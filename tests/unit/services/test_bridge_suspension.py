"""A warning of the timeline suspends the bridge, and a call pauses it. Afterwards it handles all waiting events."""

import asyncio
from datetime import timedelta

import pytest
from mnemon_server.domain.bridge import BridgeActivity, RoutingPolicy
from mnemon_server.domain.changes import ChangeType
from mnemon_server.engines.promises.events import EventsWarning
from mnemon_server.services.bridge.bridge import Bridge

from tests.support.bridge_stores import WARNING, BridgedStores, contents, details, happening
from tests.support.semantic_stores import eventually

LONG_AGO = timedelta(minutes=1)


async def is_in(bridge: Bridge, state: BridgeActivity) -> None:
    """Waits until the bridge is in this state."""

    async def holds() -> bool:
        return (await bridge.status()).activity is state

    await eventually(holds)


async def looked_at(stores: BridgedStores, bridge: Bridge) -> None:
    """Waits until the suspended bridge has read everything in the log."""
    head = stores.vault.changes.state().head

    async def holds() -> bool:
        return bridge._ledger.state.seen >= head

    await eventually(holds)


async def test_a_warning_is_passed_on_and_nothing_is_saved_until_the_timeline_recovers(stores: BridgedStores) -> None:
    async with stores.bridge() as bridge:
        stores.happen(happening("e1"))
        await stores.settled(bridge)
        stores.warn()
        await is_in(bridge, BridgeActivity.SUSPENDED)
        stores.happen(happening("e2", ago=LONG_AGO), happening("e3", ago=LONG_AGO))
        await looked_at(stores, bridge)
        status = await bridge.status()
        assert (status.queue_depth, status.message) == (2, "suspended by the timeline: the disk is slow")
        assert contents(await stores.statements()) == ["what happened in e1"]
        stores.warn(None)
        status = await stores.settled(bridge)
        assert (status.activity, status.message, status.routed_count) == (BridgeActivity.RUNNING, "", 3)
    assert contents(await stores.statements()) == [f"what happened in e{n}" for n in (1, 2, 3)]
    [suspended], [resumed] = stores.changes(ChangeType.BRIDGE_SUSPENDED), stores.changes(ChangeType.BRIDGE_RESUMED)
    assert suspended.record_id == resumed.record_id == "bridge"
    assert details(suspended) == {
        "severity": WARNING.severity,
        "message": WARNING.message,
        "remediation": WARNING.remediation,
    }
    assert details(resumed)["severity"] == "info"


@pytest.mark.parametrize(("lag_s", "ends"), [(10, True), (10.001, False)])
async def test_a_recent_event_ends_the_suspension(stores: BridgedStores, lag_s: float, *, ends: bool) -> None:
    async with stores.bridge() as bridge:
        stores.warn()
        stores.happen(happening("old", ago=LONG_AGO), happening("e1", importance=0.1, ago=timedelta(seconds=lag_s)))
        if ends:
            assert (await stores.settled(bridge)).routed_count == 1
            assert len(stores.changes(ChangeType.BRIDGE_RESUMED)) == 1
        else:
            await is_in(bridge, BridgeActivity.SUSPENDED)
            await looked_at(stores, bridge)
            assert (await bridge.status()).routed_count == 0


async def test_pruned_events_are_reconciled_at_once_and_once_only(stores: BridgedStores) -> None:
    async with stores.bridge() as bridge:
        stores.happen(happening("e1"))
        await stores.settled(bridge)
        stores.warn()
        stores.happen(happening("e2", ago=LONG_AGO), happening("e3", ago=LONG_AGO))
        stores.forget("e1")
        stores.forget("e2")
        await looked_at(stores, bridge)
        assert await stores.statements() == []
        status = await bridge.status()
        assert (status.activity, status.deleted_count, status.queue_depth) == (BridgeActivity.SUSPENDED, 1, 2)
    async with stores.bridge() as bridge:
        await looked_at(stores, bridge)
        stores.warn(None)
        status = await stores.settled(bridge)
    assert contents(await stores.statements()) == ["what happened in e3"]
    assert (status.deleted_count, status.routed_count, status.skipped_counts) == (1, 2, {"gone": 1})
    assert len(stores.changes(ChangeType.BRIDGE_RECONCILED)) == 1


async def test_every_warning_is_passed_on_exactly_once(stores: BridgedStores) -> None:
    worse = EventsWarning("critical", "the disk is full", "make room")
    stores.happen(happening("e1", ago=LONG_AGO))
    stores.warn()
    stores.happen(happening("e2", ago=LONG_AGO))
    stores.warn(worse)
    stores.happen(happening("e3", ago=LONG_AGO))
    stores.warn(None)
    stores.happen(happening("e4", ago=LONG_AGO))
    status = await stores.run()
    assert (status.activity, status.routed_count) == (BridgeActivity.RUNNING, 4)
    said = [details(event)["message"] for event in stores.changes(ChangeType.BRIDGE_SUSPENDED)]
    assert said == ["the disk is slow", "the disk is full"]
    assert len(stores.changes(ChangeType.BRIDGE_RESUMED)) == 1


async def test_a_suspension_survives_a_restart(stores: BridgedStores) -> None:
    stores.warn()
    async with stores.bridge() as bridge:
        await is_in(bridge, BridgeActivity.SUSPENDED)
    stores.happen(happening("e1", ago=LONG_AGO))
    async with stores.bridge() as bridge:
        await looked_at(stores, bridge)
        assert (await bridge.status()).activity is BridgeActivity.SUSPENDED
        assert await stores.statements() == []
        await bridge.resume()
        assert (await stores.settled(bridge)).routed_count == 1
    assert len(stores.changes(ChangeType.BRIDGE_RESUMED)) == 1


async def test_a_pause_survives_restarts_and_loses_nothing(stores: BridgedStores) -> None:
    async with stores.bridge() as bridge:
        stores.happen(happening("e1"))
        await stores.settled(bridge)
        await bridge.pause()
        stores.happen(happening("e2"))
        stores.forget("e1")
        await asyncio.sleep(0.1)
        assert contents(await stores.statements()) == ["what happened in e1"]
    async with stores.bridge() as bridge:
        status = await bridge.status()
        assert (status.activity, status.queue_depth, status.message) == (
            BridgeActivity.PAUSED,
            2,
            "the bridge is paused",
        )
        await asyncio.sleep(0.1)
        assert contents(await stores.statements()) == ["what happened in e1"]
        await bridge.resume()
        status = await stores.settled(bridge)
    assert contents(await stores.statements()) == ["what happened in e2"]
    assert (status.routed_count, status.deleted_count) == (2, 1)


async def test_a_disabled_bridge_says_so_and_accepts_calls(stores: BridgedStores) -> None:
    stores.happen(happening("e1"))
    off = stores.bridge()
    status = await off.status()
    assert (status.activity, status.message, status.queue_depth) == (
        BridgeActivity.PAUSED,
        "the bridge is turned off",
        1,
    )
    wanted = (await off.update_policy(RoutingPolicy(min_importance=0.95))).policy
    status = await stores.run()
    assert (status.policy, status.skipped_counts) == (wanted, {"importance": 1})


async def test_calls_made_while_events_arrive_all_take_effect(stores: BridgedStores) -> None:
    async with stores.bridge() as bridge:
        for number in range(20):
            stores.happen(*(happening(f"e{number}-{n}") for n in range(10)))
            wanted = RoutingPolicy(content_max=16 + number)
            await asyncio.gather(bridge.update_policy(wanted), bridge.pause())
            assert ((await bridge.status()).activity, await bridge.policy()) == (BridgeActivity.PAUSED, wanted)
            await bridge.resume()
        assert (await stores.settled(bridge)).routed_count == 200
    assert len(await stores.statements()) == 200
