"""The bridge service over gRPC: each method, what it refuses and under which field, and its status."""

from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from mnemon.v1 import bridge_pb2 as pb
from mnemon.v1 import common_pb2, episodic_pb2

from tests.support.episodic_messages import bridge_status, happened, record, told
from tests.support.semantic_messages import contents_known
from tests.support.server import Connection, bare_server, detail, eventually, failure_of, reason, whole_server

FIELDS = [field.name for field in pb.RoutingPolicy.DESCRIPTOR.fields if field.name != "revision"]


@pytest.fixture
def bridge(connection: Connection) -> Any:
    """The stub of its bridge service."""
    return connection.bridge


def change(policy: dict[str, Any], *mask: str, **fields: Any) -> pb.UpdateRoutingPolicyRequest:
    """A change of the fields in the mask, or of the fields that the policy sets."""
    return pb.UpdateRoutingPolicyRequest(policy=policy, update_mask={"paths": mask or policy}, **fields)


async def update(bridge: Any, *mask: str, **policy: Any) -> pb.RoutingPolicy:
    """Changes the policy. Returns the new one."""
    return (await bridge.UpdateRoutingPolicy(change(policy, *mask))).policy


async def policy_of(bridge: Any) -> pb.RoutingPolicy:
    """The policy in force."""
    return (await bridge.GetRoutingPolicy(pb.GetRoutingPolicyRequest())).policy


async def until_handled(bridge: Any, count: int) -> pb.GetBridgeStatusResponse:
    """Waits until this many events were routed and none is waiting. Returns the status of the bridge."""

    async def is_handled() -> bool:
        status = await bridge_status(bridge)
        return (status.routed_count, status.queue_depth) == (count, 0)

    await eventually(is_handled)
    return await bridge_status(bridge)


async def test_an_update_changes_the_fields_in_the_mask_only(bridge: Any) -> None:
    given = {
        "min_importance": 0.0, "event_types": ["emotion", "task"], "mode": "ROUTING_MODE_ANY", "content_max": 16,
        "on_prune": "PRUNE_ACTION_DEMOTE", "demoted_importance": 0.0, "conflict_policy": "CONFLICT_POLICY_DETECT",
        "extract": "EXTRACT_MODE_OFF",
    }  # fmt: skip
    assert await update(bridge, **given) == pb.RoutingPolicy(**given, revision=2) == await policy_of(bridge)
    expected = pb.RoutingPolicy(**{**given, "content_max": 100}, revision=3)
    changed = await update(bridge, "content_max", content_max=100, min_importance=0.9)
    assert changed == expected == (await bridge_status(bridge)).policy
    # A field that is named in the mask but not set gets its default.
    expected.MergeFrom(pb.RoutingPolicy(min_importance=0.6, content_max=512, revision=4))
    assert await update(bridge, "min_importance", "content_max") == expected


async def test_an_update_of_a_policy_that_changed_since_it_was_read_is_refused(bridge: Any) -> None:
    assert (await update(bridge, content_max=100)).revision == 2
    late = change({"content_max": 200}, expected_revision=1)
    error = await failure_of(bridge.UpdateRoutingPolicy(late))
    assert (error.code(), reason(error)) == (grpc.StatusCode.ABORTED, "REVISION_MISMATCH")
    assert detail(error, error_details_pb2.ErrorInfo).metadata == {"expected_revision": "1", "actual_revision": "2"}
    timely = change({"content_max": 200}, expected_revision=2)
    assert (await bridge.UpdateRoutingPolicy(timely)).policy.revision == 3
    # An update to the same values changes nothing.
    assert (await update(bridge, content_max=200)).revision == (await policy_of(bridge)).revision == 3


async def test_a_repeated_call_gets_the_first_answer_and_changes_nothing(bridge: Any) -> None:
    asked = change({"content_max": 100}, request_id="policy")
    first = await bridge.UpdateRoutingPolicy(asked)
    await update(bridge, content_max=200)
    again = await bridge.UpdateRoutingPolicy(asked)
    assert (again.policy, first.replayed, again.replayed) == (first.policy, False, True)
    assert (await policy_of(bridge)).content_max == 200

    pause, resume = pb.PauseBridgeRequest(request_id="pause"), pb.ResumeBridgeRequest(request_id="resume")
    assert not (await bridge.PauseBridge(pause)).replayed
    assert not (await bridge.ResumeBridge(resume)).replayed
    assert (await bridge.PauseBridge(pause)).replayed
    assert (await bridge_status(bridge)).activity == pb.BRIDGE_ACTIVITY_RUNNING
    await bridge.PauseBridge(pb.PauseBridgeRequest())
    assert (await bridge.ResumeBridge(resume)).replayed
    assert (await bridge_status(bridge)).activity == pb.BRIDGE_ACTIVITY_PAUSED

    for call in (
        bridge.UpdateRoutingPolicy(change({"content_max": 300}, request_id="policy")),
        bridge.UpdateRoutingPolicy(change({"content_max": 100}, request_id="policy", expected_revision=2)),
        bridge.PauseBridge(pb.PauseBridgeRequest(request_id="resume")),
        bridge.ResumeBridge(pb.ResumeBridgeRequest(request_id="pause")),
    ):
        error = await failure_of(call)
        assert (error.code(), reason(error)) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")


async def test_events_wait_while_the_bridge_is_paused_and_are_handled_once_afterwards(connection: Connection) -> None:
    bridge, terms = connection.bridge, {"event_type": "task", "importance": 0.9}
    await bridge.PauseBridge(pb.PauseBridgeRequest())
    await record(connection.episodic, happened("a", **terms), happened("b", **terms))
    status = await bridge_status(bridge)
    assert (status.activity, status.queue_depth, status.routed_count) == (pb.BRIDGE_ACTIVITY_PAUSED, 2, 0)
    assert status.state == common_pb2.STATE_UNAVAILABLE
    assert status.message
    await bridge.ResumeBridge(pb.ResumeBridgeRequest())
    status = await until_handled(bridge, 2)
    assert (status.activity, status.message) == (pb.BRIDGE_ACTIVITY_RUNNING, "")
    assert (status.HasField("timeline_lag"), status.segment_count, status.handled_time.seconds > 0) == (True, 1, True)
    assert sorted(await contents_known(connection.semantic)) == ["a", "b"]


async def test_the_feed_says_what_was_done_about_pruned_events(connection: Connection) -> None:
    [receipt] = await record(connection.episodic, happened("a", event_type="task", importance=0.9))
    await until_handled(connection.bridge, 1)
    await connection.episodic.PruneEvents(episodic_pb2.PruneEventsRequest(event_ids=[receipt.event_id]))

    async def is_reconciled() -> bool:
        return bool(await told(connection.changes, "BRIDGE_RECONCILED"))

    await eventually(is_reconciled)
    [event] = await told(connection.changes, "BRIDGE_RECONCILED")
    assert (event.scope.user, event.record_id) == ("ada", str(receipt.segment_id))
    assert (list(event.reconciliation.event_ids), event.reconciliation.action) == (
        [receipt.event_id],
        pb.PRUNE_ACTION_DELETE,
    )
    assert len(event.reconciliation.memory_ids) == 1
    assert await contents_known(connection.semantic) == []


async def test_only_the_status_answers_until_the_vaults_are_open() -> None:
    async with bare_server() as connection:
        bridge = connection.bridge
        status = await bridge_status(bridge)
        assert (status.state, status.message) == (common_pb2.STATE_STARTING, "the server is starting")
        for call in (
            bridge.GetRoutingPolicy(pb.GetRoutingPolicyRequest()),
            bridge.UpdateRoutingPolicy(change({}, *FIELDS)),
            bridge.PauseBridge(pb.PauseBridgeRequest()),
            bridge.ResumeBridge(pb.ResumeBridgeRequest()),
        ):
            error = await failure_of(call)
            assert (error.code(), reason(error)) == (grpc.StatusCode.UNAVAILABLE, "NOT_SERVING")


async def test_a_disabled_bridge_says_so_and_routes_nothing_until_it_is_enabled(tmp_path: Path) -> None:
    async with whole_server(tmp_path, bridge_enabled=False) as connection:
        await record(connection.episodic, happened("a", event_type="task", importance=0.9))
        status = await bridge_status(connection.bridge)
        assert (status.activity, status.queue_depth) == (pb.BRIDGE_ACTIVITY_PAUSED, 1)
        assert "turned off" in status.message
    async with whole_server(tmp_path) as connection:
        await until_handled(connection.bridge, 1)
        assert await contents_known(connection.semantic) == ["a"]
