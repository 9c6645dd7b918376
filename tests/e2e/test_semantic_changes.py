"""What the change feed reports about statements, decisions, rules and warnings, live and from the log."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mnemon.v1 import changes_pb2 as pb
from mnemon.v1 import conflicts_pb2, decisions_pb2, rules_pb2, semantic_pb2

from tests.support.semantic_messages import axis, by_id, know, save
from tests.support.server import Connection, failure_of, reason, whole_server

WAIT_S = 60.0
RESOLVE = semantic_pb2.CONFLICT_POLICY_RESOLVE


class Watch:
    """A watch of everything, from now on."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def next(self, count: int) -> list[pb.Change]:
        """The next changes."""
        found: list[pb.Change] = []
        async with asyncio.timeout(WAIT_S):
            while len(found) < count:
                found += (await self._call.read()).batch.changes
        return found


async def watch(connection: Connection, view: int = pb.CHANGE_VIEW_BASIC) -> Watch:
    """A watch that has started."""
    call = connection.changes.WatchChanges(pb.WatchChangesRequest(view=view))
    assert (await call.read()).HasField("started")
    return Watch(call)


async def from_the_log(connection: Connection, view: int = pb.CHANGE_VIEW_BASIC) -> list[pb.Change]:
    """All changes of the log."""
    page = await connection.changes.ListChanges(pb.ListChangesRequest(page_size=1000, view=view))
    assert page.caught_up
    return list(page.changes)


def types(changes: Sequence[pb.Change]) -> list[str]:
    """The type of a change."""
    return [pb.ChangeType.Name(change.type).removeprefix("CHANGE_TYPE_") for change in changes]


async def resolved(connection: Connection) -> semantic_pb2.SaveSemanticMemoryResponse:
    """A statement that superseded another one."""
    await know(connection.semantic, "Ada lives in Berlin now.", importance=0.2)
    request = save("Ada lives in Rome now.", importance=0.9, conflict_policy=RESOLVE, request_id="move")
    return await connection.semantic.SaveSemanticMemory(request)


async def test_a_save_is_reported_and_a_duplicate_is_not(connection: Connection) -> None:
    watching = await watch(connection, pb.CHANGE_VIEW_FULL)
    [first] = await know(connection.semantic, "one")
    await know(connection.semantic, "one", "two")
    one, two = await watching.next(2)
    assert types([one, two]) == ["SEMANTIC_SAVED"] * 2
    assert (one.record_id, one.revision, one.scope.user) == (first.memory_id, 1, "ada")
    assert (one.semantic_memory, two.semantic_memory.content) == (first, "two")
    assert one.WhichOneof("details") is None


async def test_a_resolution_is_reported_with_its_decision_in_one_commit(connection: Connection) -> None:
    watching = await watch(connection)
    saved = await resolved(connection)
    first, *told = await watching.next(5)
    assert types([first]) == ["SEMANTIC_SAVED"]
    assert sorted(types(told)) == ["CONFLICT_DETECTED", "CONFLICT_RESOLVED", "SEMANTIC_PRUNED", "SEMANTIC_SAVED"]
    assert len({change.commit_id for change in told}) == 1
    assert {change.request_id for change in told} == {"move"}
    by_type = dict(zip(types(told), told, strict=True))
    for name in ("CONFLICT_DETECTED", "CONFLICT_RESOLVED"):
        change = by_type[name]
        assert (change.WhichOneof("details"), change.record_id) == ("decision", saved.decision.decision_id)
        assert change.decision.arbitration == saved.decision.arbitration
        assert (change.decision.existing_id, change.decision.result_id) == (
            saved.decision.existing_id, saved.memory.memory_id,
        )  # fmt: skip
        assert not any(signal.keywords for signal in change.decision.signals)
    pruned = by_type["SEMANTIC_PRUNED"]
    assert (pruned.record_id, pruned.prune_reason) == (saved.decision.existing_id, pb.SEMANTIC_PRUNE_REASON_SUPERSEDED)
    assert all(change.WhichOneof("record") is None for change in [first, *told])
    assert await from_the_log(connection) == [first, *told]


async def test_the_full_view_shows_superseded_statements_but_no_deleted_ones(connection: Connection) -> None:
    saved = await resolved(connection)
    changes = await from_the_log(connection, pb.CHANGE_VIEW_FULL)
    of_loser = [change for change in changes if change.record_id == saved.decision.existing_id]
    assert len(of_loser) == 2
    for change in of_loser:
        assert change.semantic_memory.superseded_by == saved.memory.memory_id
        assert change.semantic_memory.content == "Ada lives in Berlin now."
    decided = [change for change in changes if change.HasField("decision")]
    assert len(decided) == 2
    assert all(change.WhichOneof("record") is None for change in decided)
    request = semantic_pb2.DeleteSemanticMemoriesRequest(memory_ids=[saved.memory.memory_id])
    await connection.semantic.DeleteSemanticMemories(request)
    after = await from_the_log(connection, pb.CHANGE_VIEW_FULL)
    assert all(change.WhichOneof("record") is None for change in after)
    deleted = after[len(changes) :]
    assert {(change.record_id, change.prune_reason) for change in deleted} == {
        (memory_id, pb.SEMANTIC_PRUNE_REASON_DELETED)
        for memory_id in (saved.memory.memory_id, saved.decision.existing_id)
    }
    assert "Berlin" not in str(after)


async def test_a_merge_and_its_undo_are_reported_with_their_decision(connection: Connection) -> None:
    first, second = await know(connection.semantic, "Ada has a cat.", "Ada has a dog.")
    watching = await watch(connection)
    request = conflicts_pb2.MergeMemoriesRequest(first=by_id(first.memory_id), second=by_id(second.memory_id))
    merged = await connection.conflicts.MergeMemories(request)
    told = await watching.next(4)
    assert sorted(types(told)) == ["CONFLICT_MERGED", "SEMANTIC_PRUNED", "SEMANTIC_PRUNED", "SEMANTIC_SAVED"]
    [decided] = [change for change in told if change.HasField("decision")]
    assert decided.decision == merged.decision
    assert decided.decision.merge == merged.statistics
    assert {change.prune_reason for change in told if change.HasField("prune_reason")} == {
        pb.SEMANTIC_PRUNE_REASON_MERGED
    }

    undo = conflicts_pb2.UnmergeMemoryRequest(decision_id=merged.decision.decision_id)
    undone = await connection.conflicts.UnmergeMemory(undo)
    told = await watching.next(4)
    assert sorted(types(told)) == ["CONFLICT_REVERTED", "SEMANTIC_PRUNED", "SEMANTIC_SAVED", "SEMANTIC_SAVED"]
    [reverted] = [change for change in told if change.HasField("decision")]
    assert reverted.decision == undone.decision
    assert reverted.decision.HasField("revert_time")
    [removed] = [change for change in told if change.HasField("prune_reason")]
    assert (removed.record_id, removed.prune_reason) == (merged.memory.memory_id, pb.SEMANTIC_PRUNE_REASON_UNMERGED)


async def test_rules_are_reported_as_they_are_written(connection: Connection) -> None:
    watching = await watch(connection, pb.CHANGE_VIEW_FULL)
    rule = rules_pb2.MergeRuleConfig(name="guests", priority=5, arbitration={"weights": {"recency": 0.5}})
    await connection.rules.RegisterRule(rules_pb2.RegisterRuleRequest(rule=rule))
    update = rules_pb2.MergeRuleConfig(
        name="guests", merge={"content_strategy": decisions_pb2.CONTENT_STRATEGY_REPLACE}
    )
    updated = await connection.rules.UpdateRule(rules_pb2.UpdateRuleRequest(rule=update))
    await connection.rules.DeleteRule(rules_pb2.DeleteRuleRequest(name="guests"))
    told = await watching.next(3)
    assert types(told) == ["RULE_REGISTERED", "RULE_UPDATED", "RULE_DELETED"]
    updated.rule.ClearField("revision")
    assert [change.rule for change in told] == [rule, updated.rule, updated.rule]
    assert {(change.record_id, change.WhichOneof("record")) for change in told} == {("guests", None)}


async def test_details_of_long_rules_come_in_messages_that_can_be_sent(connection: Connection) -> None:
    # Each has about 60 KiB as JSON, and all changes of them together more than a message may hold.
    words = [f"user {i:>245}" for i in range(240)]
    rules = [rules_pb2.MergeRuleConfig(name=f"rule {i}", conditions={"users": words}) for i in range(15)]
    for priority in range(20):
        for rule in rules:
            rule.priority = priority
        await connection.rules.LoadRules(rules_pb2.LoadRulesRequest(rules=rules))
    found: list[pb.Change] = []
    request = pb.ListChangesRequest(page_size=1000)
    while True:
        page = await connection.changes.ListChanges(request)
        assert page.ByteSize() < 4 << 20
        found += page.changes
        if page.caught_up:
            break
        request.cursor = page.cursor
    told = [(change.rule.name, change.rule.priority) for change in found]
    assert told == [(rule.name, priority) for priority in range(20) for rule in rules]


async def test_reaching_the_capacity_is_reported_and_so_is_new_room(tmp_path: Path) -> None:
    async with whole_server(tmp_path, semantic_capacity=2) as server:
        watching = await watch(server)
        first, _ = [(await know(server.semantic, f"fact {i}", embedding=axis(1.0, float(i))))[0] for i in range(2)]
        refused = await failure_of(know(server.semantic, "one too many"))
        assert reason(refused) == "THROTTLED"
        *saved, warning = await watching.next(3)
        assert types(saved) == ["SEMANTIC_SAVED"] * 2
        assert (types([warning]), warning.record_id) == (["SEMANTIC_WARNING"], "semantic-index")
        assert warning.warning.severity == pb.WARNING_SEVERITY_WARNING
        assert "capacity of 2" in warning.warning.message
        assert "delete" in warning.warning.remediation
        await server.semantic.DeleteSemanticMemories(
            semantic_pb2.DeleteSemanticMemoriesRequest(memory_ids=[first.memory_id])
        )
        pruned, healthy = await watching.next(2)
        assert types([pruned, healthy]) == ["SEMANTIC_PRUNED", "SEMANTIC_HEALTHY"]
        assert (healthy.warning.severity, healthy.record_id) == (pb.WARNING_SEVERITY_INFO, "semantic-index")
        await know(server.semantic, "there is room again")


@pytest.mark.parametrize("name", ["SEMANTIC_SAVED", "CONFLICT_RESOLVED"])
async def test_events_can_be_filtered_by_their_new_types(connection: Connection, name: str) -> None:
    await resolved(connection)
    where = pb.ChangeFilter(types=[pb.ChangeType.Value(f"CHANGE_TYPE_{name}")])
    page = await connection.changes.ListChanges(pb.ListChangesRequest(filter=where))
    assert set(types(page.changes)) == {name}
