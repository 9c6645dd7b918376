"""Checks of the bridge service's requests.

What a policy may say, the service checks itself; it is asked here only where a choice is none that it knows.
"""

from mnemon.v1 import bridge_pb2 as pb

from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.validation import refuse
from mnemon_server.services.bridge.routing import policy_violations
from mnemon_server.transport.convert import bridge as convert
from mnemon_server.transport.convert.semantic import CONFLICT_POLICIES
from mnemon_server.transport.convert.shared.reading import others, unknown


def check_update_routing_policy(request: pb.UpdateRoutingPolicyRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    if not request.HasField("policy"):
        raise InvalidArgumentError.of("policy", "is required")
    policy = request.policy
    found = [
        *unknown("policy.mode", policy.mode, convert.ROUTING_MODES),
        *unknown("policy.on_prune", policy.on_prune, convert.PRUNE_ACTIONS),
        *unknown("policy.conflict_policy", policy.conflict_policy, CONFLICT_POLICIES),
    ]
    if found:
        refuse(others(found, policy_violations(convert.policy_from_pb(policy))))
