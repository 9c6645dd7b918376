"""The bridge writes nothing that it computed from an outdated state."""

from dataclasses import replace

import pytest
from mnemon_server.domain.bridge import RoutingPolicy
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.errors import StorageFullError
from mnemon_server.engines.promises.vault import VaultTransaction
from mnemon_server.services.bridge.feed import items_of_log
from mnemon_server.services.bridge.ledger import BridgeLedger, ChangedError
from mnemon_server.services.bridge.state import State

from tests.support.bridge_stores import BridgedStores, happening


@pytest.fixture
async def ledger(stores: BridgedStores) -> BridgeLedger:
    """A ledger that has loaded its state."""
    ledger = BridgeLedger(stores.vault, stores.offload)
    await ledger.load()
    return ledger


def routed(tx: VaultTransaction, state: State) -> State:
    """Notes one more saved statement in the log and in the state."""
    tx.note_change(ChangeType.SEMANTIC_SAVED, "m")
    return state.counted(routed=1)


async def test_a_call_that_changes_the_state_invalidates_earlier_plans(
    stores: BridgedStores, ledger: BridgeLedger
) -> None:
    version = ledger.version
    await ledger.change(lambda _, state: replace(state, paused=True))
    with pytest.raises(ChangedError):
        await ledger.commit(version, routed)
    await ledger.update_policy(lambda _: RoutingPolicy(content_max=99))
    with pytest.raises(ChangedError):
        await ledger.commit(version, routed)
    assert (ledger.state, ledger.policy.content_max) == (State(paused=True), 99)
    assert stores.changes() == []
    await ledger.commit(ledger.version, routed)
    assert ledger.state == State(paused=True, routed=1)


async def test_changes_by_another_writer_are_not_overwritten(stores: BridgedStores, ledger: BridgeLedger) -> None:
    other = BridgeLedger(stores.vault, stores.offload)
    await other.load()
    await other.commit(other.version, routed)
    with pytest.raises(ChangedError):
        await ledger.commit(ledger.version, routed)
    await ledger.load()
    assert (ledger.state, len(stores.changes())) == (State(routed=1), 1)
    await other.update_policy(lambda _: RoutingPolicy(content_max=99))
    await ledger.change(lambda _, state: replace(state, paused=True))
    assert (ledger.state, ledger.policy.content_max) == (State(routed=1, paused=True), 99)


async def test_after_a_failure_nothing_is_written_until_the_state_is_reloaded(ledger: BridgeLedger) -> None:
    def failing(_: VaultTransaction, __: State) -> State:
        raise StorageFullError("no space is left")

    version = ledger.version
    with pytest.raises(StorageFullError):
        await ledger.commit(version, failing)
    with pytest.raises(ChangedError):
        await ledger.commit(ledger.version, routed)
    await ledger.load()
    with pytest.raises(ChangedError):
        await ledger.commit(version, routed)
    await ledger.commit(ledger.version, routed)
    assert ledger.state == State(routed=1)


async def test_positions_in_memory_are_written_once_they_have_moved_far_enough(
    stores: BridgedStores, ledger: BridgeLedger
) -> None:
    ledger.move(position=10)
    ledger.move(position=7, ahead=12)
    await ledger.keep(distance=13)
    assert stores.kept_position() == 0
    await ledger.keep(distance=12)
    assert (stores.kept_position(), ledger.state) == (10, State(position=10, ahead=12))


async def test_events_already_read_from_the_timeline_are_not_handled_again(stores: BridgedStores) -> None:
    stores.happen(happening("e1"), happening("e2", importance=0.1), happening("e3"))
    saved = stores.changes(ChangeType.EPISODIC_SAVED)
    first, second, third = items_of_log(
        stores.timeline, saved, RoutingPolicy(), stores.quarantine.hides, taken_through=1
    )
    assert (first.event, first.skip, first.progress) == (None, None, {"position": saved[0].sequence})
    assert second.skip == "importance"
    assert third.event is not None
    assert (third.event.event_id, third.progress["timeline_sequence"]) == ("e3", 3)
