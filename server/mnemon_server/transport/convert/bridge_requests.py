"""Requests to the bridge service as values; see `Reader`. Only a change of the policy needs conversion."""

from collections.abc import Mapping
from itertools import chain

from mnemon.v1 import bridge_pb2 as pb

from mnemon_server.domain.bridge import EVENT_TYPES_DEFAULT, PruneAction, RoutingMode, RoutingPolicy
from mnemon_server.domain.validation import request_id_violations
from mnemon_server.services.bridge.routing import change_violations
from mnemon_server.transport.convert.semantic_requests import CONFLICT_POLICIES
from mnemon_server.transport.convert.shared.reader import Reader, named, require

ROUTING_MODES: Mapping[int, RoutingMode] = {
    pb.ROUTING_MODE_UNSPECIFIED: RoutingMode.ALL,
    pb.ROUTING_MODE_ALL: RoutingMode.ALL,
    pb.ROUTING_MODE_ANY: RoutingMode.ANY,
}
PRUNE_ACTIONS: Mapping[int, PruneAction] = {
    pb.PRUNE_ACTION_UNSPECIFIED: PruneAction.DELETE,
    pb.PRUNE_ACTION_DELETE: PruneAction.DELETE,
    pb.PRUNE_ACTION_DEMOTE: PruneAction.DEMOTE,
}
_DEFAULT = RoutingPolicy()


def read_update(request: pb.UpdateRoutingPolicyRequest) -> RoutingPolicy:
    """The policy from which the fields that the mask names are taken."""
    require(request, "policy")
    mask = request.update_mask.paths
    of_policy, reader = Reader(), Reader()
    policy = _policy(of_policy, request.policy)
    reader.violations += named(of_policy.violations, mask, "policy")
    reader.finish(chain(change_violations(policy, mask), request_id_violations(request.request_id)))
    return policy


def _policy(reader: Reader, message: pb.RoutingPolicy) -> RoutingPolicy:
    """The policy; what is unset has its default."""
    return RoutingPolicy(
        min_importance=message.min_importance if message.HasField("min_importance") else _DEFAULT.min_importance,
        event_types=frozenset(message.event_types) or EVENT_TYPES_DEFAULT,
        mode=reader.enum("policy.mode", message.mode, ROUTING_MODES),
        content_max=message.content_max if message.HasField("content_max") else _DEFAULT.content_max,
        on_prune=reader.enum("policy.on_prune", message.on_prune, PRUNE_ACTIONS),
        demoted_importance=(
            message.demoted_importance if message.HasField("demoted_importance") else _DEFAULT.demoted_importance
        ),
        conflict_policy=reader.enum("policy.conflict_policy", message.conflict_policy, CONFLICT_POLICIES),
    )
