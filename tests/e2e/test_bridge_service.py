"""The bridge service over gRPC: each method, what it refuses and by which name, and what it says of itself."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.rpc import error_details_pb2
from mnemon.v1 import bridge_pb2 as pb
from mnemon.v1 import episodic_pb2

from tests.support.episodic_messages import bridge_status, happened, record, told
from tests.support.semantic_messages import contents_known
from tests.support.server import Connection, bare_server, detail, eventually, failure_of, reason, whole_server

DEFAULTS = pb.RoutingPolicy(
    min_importance=0.6,
    event_types=["conversation", "reminder", "task"],
    mode="ROUTING_MODE_ALL",
    content_max=512,
    on_prune="PRUNE_ACTION_DELETE",
    demoted_importance=0.1,
    conflict_policy="CONFLICT_POLICY_IGNORE",
)


@pytest_asyncio.fixture(params=["local", "in_memory"])
async def connection(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Connection]:
    """A server with a bridge that has seen nothing, over either kind of vault."""
    async with whole_server(tmp_path, knowledge_store_backend=request.param) as connected:
        yield connected


@pytest.fixture
def bridge(connection: Connection) -> Any:
    """The stub of its bridge service."""
    return connection.bridge


async def update(bridge: Any, **policy: Any) -> pb.RoutingPolicy:
    """Puts a policy in place; the policy that holds then."""
    request = pb.UpdateRoutingPolicyRequest(policy=pb.RoutingPolicy(**policy))
    return (await bridge.UpdateRoutingPolicy(request)).policy


async def policy_of(bridge: Any) -> pb.RoutingPolicy:
    """The policy that holds."""
    return (await bridge.GetRoutingPolicy(pb.GetRoutingPolicyRequest())).policy


async def until_handled(bridge: Any, count: int) -> pb.GetBridgeStatusResponse:
    """Waits until so many events were routed, and none waits; how the bridge is then."""

    async def is_handled() -> bool:
        status = await bridge_status(bridge)
        return (status.routed_count, status.queue_depth) == (count, 0)

    await eventually(is_handled)
    return await bridge_status(bridge)


async def test_a_new_bridge_runs_by_the_default_policy(bridge: Any) -> None:
    status = await bridge_status(bridge)
    assert (status.state, status.message) == (pb.BRIDGE_STATE_RUNNING, "")
    assert (status.routed_count, status.queue_depth, dict(status.skipped_counts)) == (0, 0, {})
    assert not status.HasField("timeline_lag")
    assert not status.HasField("handled_time")
    assert status.policy == await policy_of(bridge) == DEFAULTS


async def test_a_policy_takes_the_place_of_the_one_before_as_a_whole(bridge: Any) -> None:
    given = {
        "min_importance": 0.0, "event_types": ["emotion", "task"], "mode": "ROUTING_MODE_ANY", "content_max": 16,
        "on_prune": "PRUNE_ACTION_DEMOTE", "demoted_importance": 0.0, "conflict_policy": "CONFLICT_POLICY_DETECT",
    }  # fmt: skip
    assert await update(bridge, **given) == pb.RoutingPolicy(**given) == await policy_of(bridge)
    expected = pb.RoutingPolicy()
    expected.CopyFrom(DEFAULTS)
    expected.content_max = 100
    assert await update(bridge, content_max=100) == expected == (await bridge_status(bridge)).policy


async def test_what_is_wrong_with_a_policy_is_named_at_once_and_changes_nothing(bridge: Any) -> None:
    async def refused(request: pb.UpdateRoutingPolicyRequest) -> set[str]:
        error = await failure_of(bridge.UpdateRoutingPolicy(request))
        assert (error.code(), reason(error)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT")
        return {each.field for each in detail(error, error_details_pb2.BadRequest).field_violations}

    assert await refused(pb.UpdateRoutingPolicyRequest()) == {"policy"}
    values = pb.RoutingPolicy(
        min_importance=1.5, event_types=["t" * 129], content_max=15, demoted_importance=float("nan")
    )
    wrong = {"policy.min_importance", "policy.event_types", "policy.content_max", "policy.demoted_importance"}
    assert await refused(pb.UpdateRoutingPolicyRequest(policy=values)) == wrong
    values.mode = values.on_prune = values.conflict_policy = 9  # type: ignore[assignment]
    assert await refused(pb.UpdateRoutingPolicyRequest(policy=values)) == {
        *wrong, "policy.mode", "policy.on_prune", "policy.conflict_policy",
    }  # fmt: skip
    assert await policy_of(bridge) == DEFAULTS


async def test_while_it_is_paused_events_wait_and_are_handled_once_when_it_goes_on(connection: Connection) -> None:
    bridge, terms = connection.bridge, {"event_type": "task", "importance": 0.9}
    await bridge.PauseBridge(pb.PauseBridgeRequest())
    await record(connection.episodic, happened("a", **terms), happened("b", **terms))
    status = await bridge_status(bridge)
    assert (status.state, status.queue_depth, status.routed_count) == (pb.BRIDGE_STATE_PAUSED, 2, 0)
    assert status.message
    await bridge.ResumeBridge(pb.ResumeBridgeRequest())
    status = await until_handled(bridge, 2)
    assert (status.state, status.message) == (pb.BRIDGE_STATE_RUNNING, "")
    assert (status.HasField("timeline_lag"), status.segment_count, status.handled_time.seconds > 0) == (True, 1, True)
    assert sorted(await contents_known(connection.semantic)) == ["a", "b"]


async def test_what_is_not_routed_is_counted_by_reason(connection: Connection) -> None:
    await record(
        connection.episodic,
        happened("a", event_type="task", importance=0.9),
        happened("b", event_type="emotion", importance=0.9),
        happened("c", event_type="task", importance=0.1),
        happened("", event_type="task", importance=0.9),
    )
    status = await until_handled(connection.bridge, 1)
    assert dict(status.skipped_counts) == {"event_type": 1, "importance": 1, "no_content": 1}
    assert await contents_known(connection.semantic) == ["a"]


async def test_what_was_done_about_pruned_events_is_told_by_the_feed(connection: Connection) -> None:
    [receipt] = await record(connection.episodic, happened("a", event_type="task", importance=0.9))
    await until_handled(connection.bridge, 1)
    await connection.episodic.PruneEvents(episodic_pb2.PruneEventsRequest(event_ids=[receipt.event_id]))

    async def is_reconciled() -> bool:
        return bool(await told(connection.events, "BRIDGE_RECONCILED"))

    await eventually(is_reconciled)
    [event] = await told(connection.events, "BRIDGE_RECONCILED")
    assert (event.scope.user, event.record_id) == ("ada", str(receipt.segment_id))
    assert (list(event.reconciliation.event_ids), event.reconciliation.action) == ([receipt.event_id], "deleted")
    assert len(event.reconciliation.memory_ids) == 1
    assert await contents_known(connection.semantic) == []


async def test_until_a_server_has_its_vaults_only_the_status_answers() -> None:
    async with bare_server() as connection:
        bridge = connection.bridge
        assert (await bridge_status(bridge)).message == "the server is starting"
        for call in (
            bridge.GetRoutingPolicy(pb.GetRoutingPolicyRequest()),
            bridge.UpdateRoutingPolicy(pb.UpdateRoutingPolicyRequest(policy={})),
            bridge.PauseBridge(pb.PauseBridgeRequest()),
            bridge.ResumeBridge(pb.ResumeBridgeRequest()),
        ):
            error = await failure_of(call)
            assert (error.code(), reason(error)) == (grpc.StatusCode.UNAVAILABLE, "NOT_SERVING")


async def test_a_bridge_that_is_switched_off_says_so_and_routes_nothing_until_it_is_on(tmp_path: Path) -> None:
    async with whole_server(tmp_path, bridge_enabled=False) as connection:
        await record(connection.episodic, happened("a", event_type="task", importance=0.9))
        status = await bridge_status(connection.bridge)
        assert (status.state, status.queue_depth) == (pb.BRIDGE_STATE_PAUSED, 1)
        assert "turned off" in status.message
    async with whole_server(tmp_path) as connection:
        await until_handled(connection.bridge, 1)
        assert await contents_known(connection.semantic) == ["a"]
