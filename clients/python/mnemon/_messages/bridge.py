"""Converts the values of the bridge to protobuf messages, and back."""

from dataclasses import replace

from google.protobuf.field_mask_pb2 import FieldMask

from mnemon._arguments import check_whole
from mnemon._enums import members_by_number, numbers_by_member, value_names
from mnemon._messages import documents as convert
from mnemon._messages.semantic import share_to_pb, texts_to_pb
from mnemon._messages.semantic_requests import request_id_to_pb
from mnemon._messages.timeline import seconds_from_pb
from mnemon._values import bridge
from mnemon._values.semantic import ConflictPolicy
from mnemon.v1 import bridge_pb2 as pb
from mnemon.v1 import common_pb2, semantic_pb2

_FIELDS = [
    "min_importance",
    "event_types",
    "mode",
    "content_max",
    "on_prune",
    "demoted_importance",
    "conflict_policy",
]
_ENUMS = pb.DESCRIPTOR.enum_types_by_name
_CONFLICT_POLICY = semantic_pb2.DESCRIPTOR.enum_types_by_name["ConflictPolicy"]
_STATES = members_by_number(bridge.BridgeState, common_pb2.State.DESCRIPTOR)
_ACTIVITIES = members_by_number(bridge.BridgeActivity, _ENUMS["BridgeActivity"])
_SKIP_REASONS = {number: name.lower() for number, name in value_names(_ENUMS["SkipReason"]).items()}
_MODES, _MODES_TO_PB = (
    members_by_number(bridge.RoutingMode, _ENUMS["RoutingMode"]),
    numbers_by_member(bridge.RoutingMode, _ENUMS["RoutingMode"]),
)
_ACTIONS, _ACTIONS_TO_PB = (
    members_by_number(bridge.PruneAction, _ENUMS["PruneAction"]),
    numbers_by_member(bridge.PruneAction, _ENUMS["PruneAction"]),
)
_POLICIES, _POLICIES_TO_PB = (
    members_by_number(ConflictPolicy, _CONFLICT_POLICY),
    numbers_by_member(ConflictPolicy, _CONFLICT_POLICY),
)


def update(
    policy: bridge.RoutingPolicy | None,
    changes: bridge.PolicyChanges,
    *,
    expected_revision: int | None,
    request_id: str | None,
) -> pb.UpdateRoutingPolicyRequest:
    """A change as a message: of all fields with a whole policy, otherwise of the given ones."""
    changed = replace(policy or bridge.RoutingPolicy(), **changes)
    return pb.UpdateRoutingPolicyRequest(
        policy=_policy_to_pb(changed),
        update_mask=FieldMask(paths=sorted(changes) if policy is None else _FIELDS),
        expected_revision=expected_revision,
        request_id=request_id_to_pb(request_id),
    )


def _policy_to_pb(policy: bridge.RoutingPolicy) -> pb.RoutingPolicy:
    return pb.RoutingPolicy(
        min_importance=share_to_pb("min_importance", policy.min_importance),
        event_types=texts_to_pb("event_types", policy.event_types),
        mode=_MODES_TO_PB[convert.choice("mode", policy.mode, bridge.RoutingMode)],
        content_max=check_whole("content_max", policy.content_max),
        on_prune=_ACTIONS_TO_PB[convert.choice("on_prune", policy.on_prune, bridge.PruneAction)],
        demoted_importance=share_to_pb("demoted_importance", policy.demoted_importance),
        conflict_policy=_POLICIES_TO_PB[convert.choice("conflict_policy", policy.conflict_policy, ConflictPolicy)],
    )


def policy_from_pb(policy: pb.RoutingPolicy) -> bridge.RoutingPolicy:
    """The policy of a message. A choice that a later server adds is shown by its number."""
    return bridge.RoutingPolicy(
        min_importance=policy.min_importance if policy.HasField("min_importance") else None,
        event_types=tuple(policy.event_types),
        mode=_MODES.get(policy.mode, str(policy.mode)),
        content_max=policy.content_max if policy.HasField("content_max") else None,
        on_prune=_ACTIONS.get(policy.on_prune, str(policy.on_prune)),
        demoted_importance=policy.demoted_importance if policy.HasField("demoted_importance") else None,
        conflict_policy=_POLICIES.get(policy.conflict_policy, str(policy.conflict_policy)),
        revision=policy.revision,
    )


def status_from_pb(response: pb.GetBridgeStatusResponse) -> bridge.BridgeStatus:
    """The state of the bridge."""
    return bridge.BridgeStatus(
        state=_STATES.get(response.state, bridge.BridgeState.UNKNOWN),
        message=response.message,
        activity=_ACTIVITIES.get(response.activity, bridge.BridgeActivity.UNKNOWN),
        routed_count=response.routed_count,
        skipped_counts={
            _SKIP_REASONS.get(skipped.reason, str(skipped.reason)): skipped.count for skipped in response.skipped_counts
        },
        linked_count=response.linked_count,
        deleted_count=response.deleted_count,
        demoted_count=response.demoted_count,
        queue_depth=response.queue_depth,
        timeline_lag_s=seconds_from_pb(response, "timeline_lag"),
        segment_count=response.segment_count,
        handled_time=convert.time_from_pb(response, "handled_time"),
        policy=policy_from_pb(response.policy),
    )
