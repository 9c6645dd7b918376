"""The scenarios of the bridge from the timeline to semantic memory, over a real channel against a real server."""

import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mnemon.v1 import bridge_pb2, changes_pb2, semantic_pb2
from mnemon.v1 import episodic_pb2 as pb

from tests.bench.conversations import Turn, load_conversations
from tests.support.episodic_messages import (
    bridge_status,
    compact,
    happened,
    record,
    timeline_status,
    told,
)
from tests.support.semantic_messages import contents_known
from tests.support.server import Connection, eventually, whole_server
from tests.support.timeline_messages import remember

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)
CONVERSATIONS = Path(__file__).resolve().parents[3] / "shared" / "data"


async def caught_up(connection: Connection) -> bridge_pb2.GetBridgeStatusResponse:
    """The status of the bridge once it has handled everything."""

    async def is_caught_up() -> bool:
        return (await bridge_status(connection.bridge)).queue_depth == 0

    await eventually(is_caught_up)
    return await bridge_status(connection.bridge)


async def known(connection: Connection, user: str = "ada") -> set[str]:
    """The statements about a user."""
    await caught_up(connection)
    where = semantic_pb2.SemanticMemoryFilter(scope={"user": user})
    return set(await contents_known(connection.semantic, filter=where))


def skipped(status: bridge_pb2.GetBridgeStatusResponse) -> dict[str, int]:
    """Counts of events that were not routed, by reason."""
    return {bridge_pb2.SkipReason.Name(each.reason)[12:].lower(): each.count for each in status.skipped_counts}


async def change_policy(bridge: Any, policy: bridge_pb2.RoutingPolicy) -> None:
    """Changes fields of the policy."""
    mask = {"paths": [field.name for field, _ in policy.ListFields()]}
    await bridge.UpdateRoutingPolicy(bridge_pb2.UpdateRoutingPolicyRequest(policy=policy, update_mask=mask))


async def test_saved_event_fan_out(connection: Connection) -> None:
    when = NOW - timedelta(seconds=90)
    important = {"importance": 0.6, "event_type": "task", "scope": {"persona": "butler"}}
    [receipt, *_] = await record(
        connection.episodic,
        happened("Ada must call the bank.", when, **important),
        happened("Ada laughed.", when, **{**important, "event_type": "emotion"}),
        happened("Ada had tea.", when, **{**important, "importance": 0.59}),
        happened("Ada said something.", when, event_type="task"),
        happened("word " * 400, when, importance=0.9),
    )
    status = await caught_up(connection)
    assert (status.routed_count, skipped(status)) == (2, {"event_type": 1, "importance": 2})
    assert status.timeline_lag.seconds >= 90
    assert status.segment_count == 1
    statements = (
        await connection.semantic.ListSemanticMemories(semantic_pb2.ListSemanticMemoriesRequest(page_size=10))
    ).memories
    assert {statement.content for statement in statements if "bank" in statement.content} == {"Ada must call the bank."}
    [shortened] = [statement for statement in statements if "word" in statement.content]
    assert 400 < len(shortened.content) <= 512
    [linked] = [statement for statement in statements if "bank" in statement.content]
    assert (linked.scope.persona, linked.importance) == ("butler", 0.6)
    assert list(linked.metadata["episodic_event_ids"].string_list_value.values) == [receipt.event_id]
    assert linked.create_time.ToDatetime(UTC) == when

    saved = (await told(connection.changes, "EPISODIC_SAVED", full=True))[0]
    assert (saved.scope.user, saved.scope.persona, saved.record_id) == ("ada", "butler", receipt.event_id)
    details = saved.episodic_saved
    assert (details.event_type, details.importance, details.segment_id) == ("task", 0.6, receipt.segment_id)
    assert details.event_time.ToDatetime(UTC) == when
    assert (details.timeline_lag.seconds >= 90, details.segment_count) == (True, 1)
    assert details.content_hash == hashlib.sha256(b"Ada must call the bank.").hexdigest()
    assert saved.episodic_event.content == "Ada must call the bank."


async def test_a_policy_can_be_changed_while_it_runs_and_survives_a_restart(tmp_path: Path) -> None:
    async with whole_server(tmp_path) as connection:
        policy = bridge_pb2.RoutingPolicy(
            min_importance=0.9, event_types=["emotion"], mode=bridge_pb2.ROUTING_MODE_ANY, content_max=16
        )
        await change_policy(connection.bridge, policy)
        await record(
            connection.episodic,
            happened("one", event_type="emotion"),
            happened("two", event_type="task", importance=0.8),
            happened("three", event_type="task", importance=0.9),
            happened("four is a rather long story", event_type="emotion"),
        )
        statements = await known(connection)
        assert {"one", "three"} < statements
        assert all(len(statement) <= 16 for statement in statements)
        assert "two" not in statements
    async with whole_server(tmp_path) as connection:
        answer = await connection.bridge.GetRoutingPolicy(bridge_pb2.GetRoutingPolicyRequest())
        assert (answer.policy.min_importance, list(answer.policy.event_types)) == (0.9, ["emotion"])


async def test_pruned_event_reconciliation(connection: Connection) -> None:
    terms = {"importance": 0.9, "event_type": "task"}
    receipts = await record(
        connection.episodic,
        happened("call the bank", NOW - DAY, **terms),
        happened("buy tea", NOW - DAY, **terms),
        happened("buy tea", NOW - 2 * DAY, **terms),
        happened("call the bank", NOW - DAY, user="bob", **terms),
    )
    # The bridge leaves alone what a user said, even if an event says the same.
    said = semantic_pb2.SemanticMemory(content="water the plants", scope={"user": "ada"})
    await connection.semantic.SaveSemanticMemory(semantic_pb2.SaveSemanticMemoryRequest(memory=said))
    receipts += await record(connection.episodic, happened("water the plants", NOW - DAY, **terms))
    assert await known(connection) == {"call the bank", "buy tea", "water the plants"}
    bank, tea, tea_before, _, plants = (receipt.event_id for receipt in receipts)
    pruned = await connection.episodic.PruneEvents(pb.PruneEventsRequest(event_ids=[bank, tea, plants]))
    assert pruned.pruned_count == 3

    # Another event still says "buy tea".
    async def is_reconciled() -> bool:
        return await known(connection) == {"buy tea", "water the plants"}

    await eventually(is_reconciled)
    assert await known(connection, "bob") == {"call the bank"}
    [told_pruned] = await told(connection.changes, "EPISODIC_PRUNED")
    assert told_pruned.episodic_pruned.reason == pb.PRUNE_REASON_REQUESTED
    assert {one.event_id for one in told_pruned.episodic_pruned.events} == {bank, tea, plants}
    audit = await told(connection.changes, "BRIDGE_RECONCILED")
    assert {event_id for one in audit for event_id in one.reconciliation.event_ids} == {bank, tea}
    assert [len(one.reconciliation.memory_ids) for one in audit if one.reconciliation.memory_ids] == [1]
    assert (await bridge_status(connection.bridge)).deleted_count == 1
    await connection.episodic.PruneEvents(pb.PruneEventsRequest(event_ids=[tea_before]))

    async def is_gone() -> bool:
        return await known(connection) == {"water the plants"}

    await eventually(is_gone)


async def test_pruned_events_demote_their_statements_where_the_policy_says_so(connection: Connection) -> None:
    policy = bridge_pb2.RoutingPolicy(on_prune=bridge_pb2.PRUNE_ACTION_DEMOTE, demoted_importance=0.2)
    await change_policy(connection.bridge, policy)
    [receipt] = await record(connection.episodic, happened("call the bank", importance=0.9, event_type="task"))
    assert await known(connection) == {"call the bank"}
    await connection.episodic.PruneEvents(pb.PruneEventsRequest(event_ids=[receipt.event_id]))

    async def is_demoted() -> bool:
        page = await connection.semantic.ListSemanticMemories(semantic_pb2.ListSemanticMemoriesRequest(page_size=5))
        return [statement.importance for statement in page.memories] == [0.2]

    await eventually(is_demoted)
    [audit] = await told(connection.changes, "BRIDGE_RECONCILED")
    assert audit.reconciliation.action == bridge_pb2.PRUNE_ACTION_DEMOTE


async def test_warning_escalation(tmp_path: Path) -> None:
    terms = {"importance": 0.9, "event_type": "task"}
    async with whole_server(tmp_path, timeline_segment_max_events=10) as connection:
        await record(connection.episodic, *(happened(f"before {n}", NOW - n * DAY, **terms) for n in range(10)))
        await compact(connection.episodic)
        assert len(await known(connection)) == 10
    [segment] = sorted((tmp_path / "tenants" / "default" / "timeline").glob("*.segment"))[:1]
    damaged = bytearray(segment.read_bytes())
    damaged[200] ^= 1
    segment.write_bytes(damaged)
    async with whole_server(tmp_path, timeline_segment_max_events=10) as connection:

        async def is_told() -> bool:
            return bool(await told(connection.changes, "EPISODIC_WARNING"))

        await eventually(is_told, 60.0)
        [warning] = await told(connection.changes, "EPISODIC_WARNING")

        async def is_suspended() -> bool:
            return bool(await told(connection.changes, "BRIDGE_SUSPENDED"))

        await eventually(is_suspended)
        [forwarded] = await told(connection.changes, "BRIDGE_SUSPENDED")
        assert forwarded.warning == warning.warning
        assert warning.warning.severity >= changes_pb2.WARNING_SEVERITY_WARNING
        assert warning.warning.remediation

        async def is_accounted_for() -> bool:
            # Page 1 leads to all others. The events are lost, unless records.db still has their rows.
            status = await timeline_status(connection.episodic)
            lost = sum(each.event_count for each in status.lost)
            is_whole = "no event was lost" in warning.warning.message
            return (lost, status.event_count) == ((0, 10) if is_whole else (10, 0))

        await eventually(is_accounted_for, 60.0)

        # It recovers: no event that is recorded meanwhile is dropped.
        await record(connection.episodic, *(happened(f"after {n}", NOW - n * DAY, **terms) for n in range(5)))
        await record(connection.episodic, happened("now", datetime.now(UTC), **terms))

        async def has_caught_up() -> bool:
            return {"now", *(f"after {n}" for n in range(5))} <= await known(connection)

        await eventually(has_caught_up)
        assert (await bridge_status(connection.bridge)).activity == bridge_pb2.BRIDGE_ACTIVITY_RUNNING
        assert await told(connection.changes, "BRIDGE_RESUMED")


async def test_a_paused_bridge_loses_and_doubles_nothing_over_a_restart(tmp_path: Path) -> None:
    terms = {"importance": 0.9, "event_type": "task"}
    async with whole_server(tmp_path) as connection:
        await connection.bridge.PauseBridge(bridge_pb2.PauseBridgeRequest())
        await record(connection.episodic, *(happened(f"event {n}", **terms) for n in range(20)))
        status = await bridge_status(connection.bridge)
        assert (status.activity, status.queue_depth) == (bridge_pb2.BRIDGE_ACTIVITY_PAUSED, 20)
        assert not await contents_known(connection.semantic)
    async with whole_server(tmp_path) as connection:
        assert (await bridge_status(connection.bridge)).activity == bridge_pb2.BRIDGE_ACTIVITY_PAUSED
        await connection.bridge.ResumeBridge(bridge_pb2.ResumeBridgeRequest())
        assert await known(connection) == {f"event {n}" for n in range(20)}
        assert (await bridge_status(connection.bridge)).routed_count == 20


def said(turn: Turn, user: str) -> Any:
    """A turn of a conversation as an event."""
    when = datetime.strptime(turn.time, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
    when += timedelta(seconds=int(turn.id.split(":")[1]))
    importance = 0.9 if "?" not in turn.text else 0.3
    return happened(f"{turn.speaker}: {turn.text}", when, user=user, importance=importance)


@pytest.mark.skipif(not CONVERSATIONS.is_dir(), reason=f"there are no conversations in {CONVERSATIONS.name}")
async def test_a_conversation_becomes_knowledge_and_is_gone_from_both_after_retention(tmp_path: Path) -> None:
    conversation = load_conversations(CONVERSATIONS)[0]
    turns = conversation.turns[:150]
    async with whole_server(tmp_path, timeline_segment_max_events=60, embedding_model="hashing") as connection:
        await remember(connection.episodic, [said(turn, "ada") for turn in turns])
        expected = {f"{turn.speaker}: {turn.text}"[:512] for turn in turns if "?" not in turn.text}
        assert await known(connection) == expected
        asked = semantic_pb2.SearchSimilarRequest(query=next(iter(expected)), min_score=0.99, limit=1)
        assert (await connection.semantic.SearchSimilar(asked)).results
    async with whole_server(
        tmp_path, timeline_segment_max_events=60, timeline_retention_days=30, timeline_prune_share_max=1.0
    ) as connection:

        async def is_gone() -> bool:
            return (await timeline_status(connection.episodic)).event_count == 0 and not await known(connection)

        await eventually(is_gone, 90.0)
        pruned = await told(connection.changes, "EPISODIC_PRUNED")
        assert sum(len(event.episodic_pruned.events) for event in pruned) == len(turns)
        audit = await told(connection.changes, "BRIDGE_RECONCILED")
        assert sum(len(one.reconciliation.memory_ids) for one in audit) == len(expected)
        assert not (await connection.semantic.SearchSimilar(asked)).results
