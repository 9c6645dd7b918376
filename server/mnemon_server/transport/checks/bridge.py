"""Checks of the bridge service's requests.

What a change may say, the service checks itself; it is asked here only where a choice is unknown.
"""

from mnemon.v1 import bridge_pb2 as pb

from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.validation import refuse
from mnemon_server.services.bridge.routing import change_violations
from mnemon_server.transport.convert import bridge as convert
from mnemon_server.transport.convert.semantic_requests import CONFLICT_POLICIES
from mnemon_server.transport.convert.shared.reading import others, unknown

_CHOICES = {
    "mode": convert.ROUTING_MODES,
    "on_prune": convert.PRUNE_ACTIONS,
    "conflict_policy": CONFLICT_POLICIES,
}


def check_update_routing_policy(request: pb.UpdateRoutingPolicyRequest) -> None:
    """Raises InvalidArgumentError with everything that is wrong."""
    if not request.HasField("policy"):
        raise InvalidArgumentError.of("policy", "is required")
    mask = request.update_mask.paths
    found = [
        violation
        for name, known in _CHOICES.items()
        if name in mask
        for violation in unknown(f"policy.{name}", getattr(request.policy, name), known)
    ]
    if found:
        refuse(others(found, change_violations(convert.policy_from_pb(request.policy), mask)))
