"""A statement goes when the last event that said it is pruned, and no other statement goes with it."""

import pytest
from mnemon_server.domain.bridge import PruneAction, RoutingPolicy
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import DECISIONS
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import Scope
from mnemon_server.domain.semantic import MemoryRef, SaveSemantic, SemanticMemory

from tests.support.bridge_stores import BridgedStores, contents, details, happening, links
from tests.support.semantic_stores import ADA


async def tell(stores: BridgedStores, content: str, **fields: object) -> SemanticMemory:
    """Saves a statement directly."""
    saved = await stores.semantic.save(SaveSemantic(memory=SemanticMemory("", content, scope=ADA, **fields)))  # type: ignore[arg-type]
    assert saved.memory is not None
    return saved.memory


async def merge(stores: BridgedStores, first: str, second: str) -> SemanticMemory:
    """Merges the statements with two contents."""
    ids = {memory.content: memory.memory_id for memory in await stores.statements(hidden=False)}
    merged = await stores.conflicts.merge(MemoryRef(memory_id=ids[first]), MemoryRef(memory_id=ids[second]))
    return merged.memory


async def bridged(stores: BridgedStores, **said: str) -> None:
    """Records events and lets the bridge handle them."""
    stores.happen(*(happening(event_id, content) for event_id, content in said.items()))
    await stores.run()


async def test_a_statement_goes_with_its_event_and_leaves_an_audit_record(stores: BridgedStores) -> None:
    scope = Scope(user="ada", persona="work", agent="a")
    stores.happen(happening("e1", scope=scope), happening("e2", scope=scope))
    await stores.run()
    gone, stays = await stores.statements()
    stores.forget("e1")
    status = await stores.run()
    assert await stores.statements() == [stays]
    assert (status.deleted_count, status.demoted_count) == (1, 0)
    [pruned] = stores.changes(ChangeType.EPISODIC_PRUNED)
    [audit] = stores.changes(ChangeType.BRIDGE_RECONCILED)
    assert (audit.record_id, audit.scope) == (pruned.record_id, scope)
    assert details(audit) == {
        "event_ids": ["e1"],
        "action": "deleted",
        "memory_ids": [gone.memory_id],
        "unlinked_memory_ids": [],
    }
    [removed] = stores.changes(ChangeType.SEMANTIC_PRUNED)
    assert (removed.record_id, details(removed), removed.commit) == (
        gone.memory_id,
        {"prune_reason": "deleted"},
        min(audit.commit, removed.sequence),
    )


async def test_a_statement_stays_while_another_event_says_the_same(stores: BridgedStores) -> None:
    stores.happen(happening("e1", "Ada likes tea"))
    stores.happen(happening("e2", "Ada likes tea", event_type="conversation"))
    await stores.run()
    [memory] = await stores.statements()
    stores.forget("e1")
    await stores.run()
    assert await stores.known() == {"Ada likes tea": ("e2",)}
    assert details(stores.changes(ChangeType.BRIDGE_RECONCILED)[0])["unlinked_memory_ids"] == [memory.memory_id]
    stores.forget("e2")
    await stores.run()
    assert await stores.known() == {}


async def test_pruning_an_event_without_linked_statements_leaves_no_record(stores: BridgedStores) -> None:
    stores.happen(happening("e1", importance=0.1), happening("e2"))
    await stores.run()
    stores.forget("e1")
    status = await stores.run()
    assert stores.changes(ChangeType.BRIDGE_RECONCILED) == []
    assert (status.queue_depth, len(await stores.statements())) == (0, 1)


async def test_statements_of_other_users_are_not_touched_whatever_their_links(stores: BridgedStores) -> None:
    for scope in (Scope(user="bob"), Scope(user="ada", persona="work")):
        memory = SemanticMemory("", "tells of e1", scope=scope, metadata={"episodic_event_ids": ("e1",)})
        await stores.semantic.save(SaveSemantic(memory=memory))
    stores.happen(happening("e1"))
    await stores.run()
    stores.forget("e1")
    await stores.run()
    assert contents(await stores.statements()) == ["tells of e1", "tells of e1"]


async def test_demoting_lowers_the_importance_and_marks_the_statement(stores: BridgedStores) -> None:
    async with stores.bridge() as bridge:
        await bridge.update_policy(RoutingPolicy(on_prune=PruneAction.DEMOTE, demoted_importance=0.2))
        stores.happen(happening("e1", "Ada likes tea"))
        await stores.settled(bridge)
        stores.forget("e1")
        status = await stores.settled(bridge)
        [memory] = await stores.statements()
        assert (memory.importance, memory.metadata["episodic_pruned"], links(memory)) == (0.2, True, ())
        assert (status.deleted_count, status.demoted_count) == (0, 1)
        assert details(stores.changes(ChangeType.BRIDGE_RECONCILED)[0])["action"] == "demoted"
        stores.happen(happening("e2", "Ada likes tea", importance=0.8))
        await stores.settled(bridge)
    [memory] = await stores.statements()
    assert (memory.importance, memory.metadata) == (0.8, {"episodic_event_ids": ("e2",)})


async def test_many_events_can_be_pruned_at_once(stores: BridgedStores) -> None:
    stores.happen(*(happening(f"e{n}") for n in range(300)))
    await stores.run()
    stores.forget(*(f"e{n}" for n in range(280)))
    status = await stores.run()
    assert (status.deleted_count, len(await stores.statements())) == (280, 20)


async def test_a_merge_keeps_the_links_of_both(stores: BridgedStores) -> None:
    await bridged(stores, e1="Ada likes tea", e2="Ada plays chess")
    merged = await merge(stores, "Ada likes tea", "Ada plays chess")
    assert links(merged) == ("e1", "e2")


@pytest.mark.parametrize("pruned", ["e1", "e2"])
async def test_a_merged_statement_goes_with_either_event_and_the_other_statement_returns(
    stores: BridgedStores, pruned: str
) -> None:
    await bridged(stores, e1="Ada likes tea", e2="Ada plays chess")
    await merge(stores, "Ada likes tea", "Ada plays chess")
    stores.forget(pruned)
    await stores.run()
    left = {"e1": {"Ada plays chess": ("e2",)}, "e2": {"Ada likes tea": ("e1",)}}[pruned]
    assert await stores.known() == left
    assert len(await stores.statements()) == 1
    assert stores.vault.collection(DECISIONS).count_documents(RecordFilter(hidden=None)) == 0


async def test_a_statement_saved_directly_survives_its_merge(stores: BridgedStores) -> None:
    await tell(stores, "Ada likes tea")
    await bridged(stores, e1="Ada plays chess")
    await merge(stores, "Ada likes tea", "Ada plays chess")
    stores.forget("e1")
    await stores.run()
    assert await stores.known() == {"Ada likes tea": ()}
    assert len(await stores.statements()) == 1


async def test_a_merge_of_merges_is_undone_as_a_whole_and_the_rest_returns(stores: BridgedStores) -> None:
    await bridged(stores, e1="Ada likes tea", e2="Ada plays chess", e3="Ada has a dog")
    await tell(stores, "Ada speaks Danish")
    merged = await merge(stores, "Ada likes tea", "Ada plays chess")
    merged = await merge(stores, merged.content, "Ada has a dog")
    merged = await merge(stores, merged.content, "Ada speaks Danish")
    assert links(merged) == ("e1", "e2", "e3")
    stores.forget("e2")
    await stores.run()
    assert await stores.known() == {"Ada likes tea": ("e1",), "Ada has a dog": ("e3",), "Ada speaks Danish": ()}
    assert len(await stores.statements()) == 3


async def test_a_merged_text_that_events_also_said_stays_until_they_are_pruned(stores: BridgedStores) -> None:
    await bridged(stores, e1="Ada likes tea", e2="Ada plays chess")
    merged = await merge(stores, "Ada likes tea", "Ada plays chess")
    stores.happen(happening("e3", merged.content), happening("e4", merged.content, event_type="reminder"))
    stores.forget("e1")
    await stores.run()
    assert await stores.known() == {merged.content: ("e3", "e4")}
    assert sorted(contents(await stores.statements())) == sorted([merged.content, "Ada plays chess"])
    stores.forget("e3")
    await stores.run()
    assert await stores.known() == {merged.content: ("e4",)}
    stores.forget("e4")
    await stores.run()
    assert await stores.known() == {"Ada plays chess": ("e2",)}


async def test_a_merged_text_that_was_also_saved_directly_stays(stores: BridgedStores) -> None:
    await bridged(stores, e1="Ada likes tea", e2="Ada plays chess")
    merged = await merge(stores, "Ada likes tea", "Ada plays chess")
    await tell(stores, merged.content)
    stores.forget("e1", "e2")
    await stores.run()
    assert await stores.known() == {merged.content: ()}
    assert len(await stores.statements()) == 1


async def test_a_merge_without_history_is_traced_too(stores: BridgedStores) -> None:
    await bridged(stores, e1="Ada likes tea", e2="Ada plays chess")
    ids = [memory.memory_id for memory in await stores.statements()]
    await stores.conflicts.merge(
        MemoryRef(memory_id=ids[0]), MemoryRef(memory_id=ids[1]), merge={"keep_history": False}
    )
    stores.forget("e1")
    await stores.run()
    assert await stores.known() == {"Ada plays chess": ("e2",)}


async def test_a_merged_text_goes_if_a_caller_deleted_one_of_its_parts(stores: BridgedStores) -> None:
    await bridged(stores, e1="Ada likes tea", e2="Ada plays chess")
    await merge(stores, "Ada likes tea", "Ada plays chess")
    [tea] = [one for one in await stores.statements() if one.content == "Ada likes tea"]
    await stores.semantic.delete([tea.memory_id])
    stores.forget("e2")
    await stores.run()
    assert await stores.statements() == []
