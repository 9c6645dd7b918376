"""Routing policies and the bridge's status are converted between messages and values without loss."""

from dataclasses import replace
from functools import partial

import pytest
from google.protobuf.duration_pb2 import Duration
from mnemon.v1 import bridge_pb2 as pb
from mnemon.v1 import common_pb2
from mnemon_server.domain.bridge import BridgeActivity, BridgeStatus, PruneAction, RoutingMode, RoutingPolicy
from mnemon_server.domain.semantic import ConflictPolicy
from mnemon_server.services.bridge.routing import POLICY_FIELDS
from mnemon_server.transport.convert import bridge as convert
from mnemon_server.transport.convert import bridge as requests

from tests.support.refusals import refused_fields
from tests.support.timeline_messages import NOON, stamp

POLICY = RoutingPolicy(
    min_importance=0.0,
    event_types=frozenset({"task", "emotion"}),
    mode=RoutingMode.ANY,
    content_max=64,
    on_prune=PruneAction.DEMOTE,
    demoted_importance=0.0,
    conflict_policy=ConflictPolicy.RESOLVE,
)
DEFAULTS = pb.RoutingPolicy(
    min_importance=0.6,
    event_types=["conversation", "reminder", "task"],
    mode="ROUTING_MODE_ALL",
    content_max=512,
    on_prune="PRUNE_ACTION_DELETE",
    demoted_importance=0.1,
    conflict_policy="CONFLICT_POLICY_IGNORE",
    revision=1,
    extract="EXTRACT_MODE_OFF",
)


def read(policy: pb.RoutingPolicy) -> RoutingPolicy:
    """The policy of a request to change all fields."""
    return requests.read_update(pb.UpdateRoutingPolicyRequest(policy=policy, update_mask={"paths": POLICY_FIELDS}))


def test_missing_fields_of_a_policy_have_their_defaults_and_are_reported() -> None:
    assert read(pb.RoutingPolicy()) == RoutingPolicy()
    assert convert.policy_to_pb(RoutingPolicy()) == DEFAULTS


def test_a_policy_comes_back_unchanged_including_zeros() -> None:
    assert read(convert.policy_to_pb(POLICY)) == POLICY
    assert read(DEFAULTS) == RoutingPolicy()


@pytest.mark.parametrize("mode", list(RoutingMode))
@pytest.mark.parametrize("action", list(PruneAction))
@pytest.mark.parametrize("conflicts", list(ConflictPolicy))
def test_every_enum_value_of_a_policy_has_a_number(
    mode: RoutingMode, action: PruneAction, conflicts: ConflictPolicy
) -> None:
    message = convert.policy_to_pb(replace(POLICY, mode=mode, on_prune=action, conflict_policy=conflicts))
    assert pb.RoutingMode.Name(message.mode) == f"ROUTING_MODE_{mode.name}"
    assert pb.PruneAction.Name(message.on_prune) == f"PRUNE_ACTION_{action.name}"
    assert read(message).conflict_policy is conflicts


@pytest.mark.parametrize(
    ("activity", "state"),
    [
        (BridgeActivity.RUNNING, common_pb2.STATE_READY),
        (BridgeActivity.SUSPENDED, common_pb2.STATE_DEGRADED),
        (BridgeActivity.PAUSED, common_pb2.STATE_UNAVAILABLE),
    ],
)
def test_the_status_of_the_bridge_is_written_completely(activity: BridgeActivity, state: int) -> None:
    counts = {
        "routed_count": 1, "linked_count": 2, "deleted_count": 3, "demoted_count": 4, "queue_depth": 5,
        "segment_count": 6,
    }  # fmt: skip
    status = BridgeStatus(
        activity=activity, message="waiting", skipped_counts={"importance": 7, "gone": 1, "of a later server": 2},
        timeline_lag_s=1.5, handled_time=NOON, policy=POLICY, **counts,
    )  # fmt: skip
    assert convert.status_to_pb(status) == pb.GetBridgeStatusResponse(
        state=common_pb2.State.Name(state), message="waiting", activity=f"BRIDGE_ACTIVITY_{activity.name}",
        skipped_counts=[
            {"reason": "SKIP_REASON_GONE", "count": 1},
            {"reason": "SKIP_REASON_IMPORTANCE", "count": 7},
            {"reason": "SKIP_REASON_UNSPECIFIED", "count": 2},
        ],
        timeline_lag=Duration(seconds=1, nanos=500_000_000), handled_time=stamp(NOON),
        policy=convert.policy_to_pb(POLICY), **counts,
    )  # fmt: skip
    fresh = convert.status_to_pb(BridgeStatus(activity=activity))
    assert (fresh.HasField("timeline_lag"), fresh.HasField("handled_time"), fresh.policy) == (False, False, DEFAULTS)
    waiting = convert.status_to_pb(BridgeStatus(activity=activity, is_waiting=True))
    assert waiting.state == (common_pb2.STATE_DEGRADED if activity is BridgeActivity.RUNNING else state)


def test_a_policy_is_required_and_may_hold_only_known_values() -> None:
    fields = partial(refused_fields, requests.read_update)
    assert fields(pb.UpdateRoutingPolicyRequest()) == ["policy"]
    assert fields(pb.UpdateRoutingPolicyRequest(policy={}, update_mask={"paths": ["mode"]})) == []
    unknown = pb.RoutingPolicy(mode=9, on_prune=9, conflict_policy=9)  # type: ignore[arg-type]
    mask = {"paths": ["mode", "on_prune", "conflict_policy"]}
    assert fields(pb.UpdateRoutingPolicyRequest(policy=unknown, update_mask={"paths": ["content_max"]})) == []
    assert fields(pb.UpdateRoutingPolicyRequest(policy=unknown, update_mask=mask)) == [
        "policy.conflict_policy", "policy.mode", "policy.on_prune",
    ]  # fmt: skip
    unknown.content_max = 1
    mask["paths"].append("content_max")
    long = pb.UpdateRoutingPolicyRequest(policy=unknown, update_mask=mask, request_id="r" * 129)
    assert fields(long) == [
        "policy.conflict_policy", "policy.content_max", "policy.mode", "policy.on_prune", "request_id",
    ]  # fmt: skip
