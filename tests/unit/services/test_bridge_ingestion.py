"""Events of the timeline become statements, once each, and wait while they cannot be saved."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from mnemon_server.domain.bridge import BridgeActivity, RoutingPolicy
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.records import Scope
from mnemon_server.domain.semantic import ConflictPolicy, SaveSemantic, SemanticMemory

from tests.support.bridge_stores import BridgedStores, contents, happening, links, open_bridged
from tests.support.gated_embedder import GatedEmbedder
from tests.support.semantic_stores import ADA, eventually


async def test_an_important_event_becomes_a_statement_of_the_same_user_and_time(stores: BridgedStores) -> None:
    scope = Scope(user="ada", persona="work", household="h", agent="a", project="p")
    event = happening("e1", "Ada moved to Oslo", scope=scope, ago=timedelta(days=3), source="diary")
    stores.happen(event)
    status = await stores.run()
    [memory] = await stores.statements()
    assert (memory.content, memory.scope, memory.source) == (event.content, scope, "diary")
    assert (memory.importance, memory.create_time) == (event.importance, event.event_time)
    assert links(memory) == ("e1",)
    assert (status.activity, status.routed_count, status.queue_depth) == (BridgeActivity.RUNNING, 1, 0)
    assert status.timeline_lag_s == pytest.approx(timedelta(days=3).total_seconds())
    assert (status.segment_count, status.handled_time) == (1, stores.clock())


async def test_events_that_are_not_routed_are_counted_by_reason(stores: BridgedStores) -> None:
    stores.happen(
        happening("e1", importance=0.2),
        happening("e2", importance=None),
        happening("e3", event_type="mood"),
        happening("e4"),
        happening("e5", scope=Scope()),
        replace(happening("e6"), content="  "),
        happening("e7"),
    )
    stores.forget("e7")
    status = await stores.run()
    assert contents(await stores.statements()) == ["what happened in e4"]
    assert status.routed_count == 1
    assert status.skipped_counts == {"importance": 2, "event_type": 1, "invalid": 1, "no_content": 1, "gone": 1}


async def test_events_are_handled_as_they_arrive(stores: BridgedStores) -> None:
    async with stores.bridge() as bridge:
        for number in range(3):
            stores.happen(happening(f"e{number}"))
            status = await stores.settled(bridge)
            assert status.routed_count == number + 1


async def test_many_events_keep_their_order(stores: BridgedStores) -> None:
    stores.happen(*(happening(f"e{n}", importance=0.9 if n % 3 else 0.1) for n in range(600)))
    status = await stores.run()
    assert (status.routed_count, status.skipped_counts) == (400, {"importance": 200})
    assert contents(await stores.statements()) == [f"what happened in e{n}" for n in range(600) if n % 3]


async def test_several_events_with_the_same_content_become_one_statement_linked_to_each(stores: BridgedStores) -> None:
    stores.happen(*(happening(f"e{n}", "Ada likes tea", ago=timedelta(hours=n)) for n in range(3)))
    stores.happen(happening("e3", "Ada likes tea", scope=Scope(user="ada", persona="work")))
    status = await stores.run()
    first, other = await stores.statements()
    assert (links(first), links(other)) == (("e0", "e1", "e2"), ("e3",))
    assert (status.routed_count, status.linked_count) == (2, 2)


async def test_the_newest_links_are_kept(stores: BridgedStores) -> None:
    stores.happen(*(happening(f"e{n}", "Ada likes tea", ago=timedelta(minutes=n)) for n in range(260)))
    await stores.run()
    [memory] = await stores.statements()
    assert links(memory) == tuple(f"e{n}" for n in range(4, 260))


async def test_statements_saved_directly_are_left_alone(stores: BridgedStores) -> None:
    told = await stores.semantic.save(SaveSemantic(memory=SemanticMemory("", "Ada likes tea", scope=ADA)))
    stores.happen(happening("e1", "Ada likes tea"))
    status = await stores.run()
    [memory] = await stores.statements()
    assert memory == told.memory
    assert (status.routed_count, status.linked_count, status.skipped_counts) == (0, 0, {"known": 1})


async def test_a_statement_saved_again_directly_no_longer_belongs_to_the_bridge(stores: BridgedStores) -> None:
    stores.happen(happening("e1", "Ada likes tea", importance=0.7))
    await stores.run()
    request = SaveSemantic(
        memory=SemanticMemory("", "Ada likes tea", scope=ADA, importance=0.8), request_id="told directly"
    )
    told = await stores.semantic.save(request)
    [memory] = await stores.statements()
    assert told.duplicate
    assert told.memory is not None
    assert (told.memory.memory_id, told.memory.revision) == (memory.memory_id, memory.revision)
    assert (memory.metadata, memory.importance) == ({}, 0.8)
    again = await stores.semantic.save(request)
    assert again.receipt is not None
    assert (again.receipt.replayed, again.memory) == (True, memory)
    stores.forget("e1")
    await stores.run()
    assert await stores.statements() == [memory]


@pytest.mark.parametrize(
    ("other", "skipped"),
    [
        ({"scope": Scope(user="bob")}, {"gone": 1}),
        ({"content": "something else"}, {"gone": 1}),
        ({"ago": timedelta(minutes=1)}, {"gone": 1}),
        ({"event_type": "emotion"}, {"gone": 1, "event_type": 1}),
        ({"importance": 0.1}, {"gone": 1, "importance": 1}),
    ],
)
async def test_a_reused_event_id_stands_for_the_new_event_and_not_for_the_pruned_one(
    stores: BridgedStores, other: dict[str, Any], skipped: dict[str, int]
) -> None:
    stores.happen(happening("e1"))
    stores.forget("e1")
    [second] = stores.happen(happening("e1", **other))
    assert not second.duplicate
    status = await stores.run()
    assert status.skipped_counts == skipped
    assert (status.routed_count, status.linked_count, status.deleted_count) == (2 - sum(skipped.values()), 0, 0)
    assert len(await stores.statements()) == status.routed_count


async def test_long_content_is_truncated_as_the_policy_says(stores: BridgedStores) -> None:
    async with stores.bridge() as bridge:
        stores.happen(happening("e1", "word " * 200))
        await stores.settled(bridge)
        await bridge.update_policy(RoutingPolicy(content_max=20))
        stores.happen(happening("e2", "word " * 200, ago=timedelta(hours=1)))
        await stores.settled(bridge)
    assert contents(await stores.statements()) == ["word " * 101 + "word…", "word word word word…"]


async def test_a_policy_applies_to_later_events_and_survives_restarts(stores: BridgedStores) -> None:
    wanted = RoutingPolicy(event_types=frozenset({"mood"}), min_importance=0.3)
    async with stores.bridge() as bridge:
        assert await bridge.policy() == RoutingPolicy()
        stores.happen(happening("e1", event_type="mood", importance=0.4))
        await stores.settled(bridge)
        assert (await bridge.update_policy(wanted)).policy == wanted
        stores.happen(happening("e2", event_type="mood", importance=0.4))
        await stores.settled(bridge)
    async with stores.bridge() as bridge:
        assert await bridge.policy() == wanted
        stores.happen(happening("e3", event_type="mood", importance=0.4))
        status = await stores.settled(bridge)
    assert contents(await stores.statements()) == ["what happened in e2", "what happened in e3"]
    assert (status.policy, status.skipped_counts) == (wanted, {"importance": 1})


async def test_a_policy_without_event_types_gets_the_default_ones(stores: BridgedStores) -> None:
    async with stores.bridge() as bridge:
        assert (await bridge.update_policy(RoutingPolicy(event_types=frozenset()))).policy == RoutingPolicy()


async def test_conflicts_are_settled_as_the_policy_says(stores: BridgedStores) -> None:
    async with stores.bridge() as bridge:
        await bridge.update_policy(RoutingPolicy(conflict_policy=ConflictPolicy.RESOLVE))
        stores.happen(happening("e1", "Ada lives in the city of Oslo now", importance=0.7))
        stores.happen(happening("e2", "Ada lives in the city of Rome now", importance=0.95))
        await stores.settled(bridge)
    assert [event.type for event in stores.changes(ChangeType.CONFLICT_RESOLVED)] == [ChangeType.CONFLICT_RESOLVED]
    assert len(await stores.statements(hidden=False)) == 1


async def test_the_bridge_waits_while_the_store_is_full_and_drops_nothing(tmp_path: Path) -> None:
    async with open_bridged(tmp_path, capacity=3) as stores, stores.bridge() as bridge:
        stores.happen(*(happening(f"e{n}") for n in range(5)))

        async def is_full() -> bool:
            return (await bridge.status()).message.startswith("the bridge waits: the capacity of 3 statements")

        await eventually(is_full)
        assert contents(await stores.statements()) == [f"what happened in e{n}" for n in range(3)]
        status = await bridge.status()
        assert (status.routed_count, status.queue_depth) == (3, 2)
        # Pruned events make room even though the bridge has not reached their pruning in the log.
        stores.forget("e0", "e2")
        status = await stores.settled(bridge)
        assert contents(await stores.statements()) == [f"what happened in e{n}" for n in (1, 3, 4)]
        assert (status.routed_count, status.deleted_count, status.message) == (5, 2, "")


async def test_an_event_that_cannot_be_embedded_does_not_block_the_others(tmp_path: Path) -> None:
    async with open_bridged(tmp_path, embedder=GatedEmbedder()) as stores:
        stores.happen(*(happening(f"e{n}", "poison" if n == 70 else "") for n in range(100)))
        status = await stores.run()
        assert (status.routed_count, status.skipped_counts) == (99, {"failed": 1})


async def test_the_bridge_waits_while_the_model_fails(tmp_path: Path) -> None:
    class FailingEmbedder(GatedEmbedder):
        is_ill = True

        def token_counts(self, texts: Sequence[str]) -> list[int]:
            return super().token_counts(["indigestible" if self.is_ill else text for text in texts])

    embedder = FailingEmbedder()
    async with open_bridged(tmp_path, embedder=embedder) as stores, stores.bridge() as bridge:
        stores.happen(happening("e1"))

        async def waits() -> bool:
            return bool((await bridge.status()).message)

        await eventually(waits)
        await asyncio.sleep(0.2)
        assert (await bridge.status()).queue_depth == 1
        embedder.is_ill = False
        assert (await stores.settled(bridge)).routed_count == 1


async def test_an_idle_bridge_writes_nothing(stores: BridgedStores) -> None:
    async with stores.bridge() as bridge:
        stores.happen(happening("e1"))
        await stores.settled(bridge)
        kept = stores.kept_position()
        for drink in ("tea", "coffee"):
            await stores.semantic.save(SaveSemantic(memory=SemanticMemory("", f"Ada likes {drink}", scope=ADA)))
            await stores.settled(bridge)
        assert bridge.keep_after() > kept == stores.kept_position()
