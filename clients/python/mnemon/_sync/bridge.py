"""The blocking client's methods for the bridge from the timeline to what is known of users."""

from mnemon._connection import Connection
from mnemon._messages import bridge as bridge_convert
from mnemon._values import bridge
from mnemon.v1 import bridge_pb2 as pb
from mnemon.v1.bridge_pb2_grpc import BridgeServiceStub


class BridgeMethods(Connection):
    """The bridge, which saves events as statements where a policy lets them through, and takes back what was pruned."""

    def bridge_status(self, *, timeout: float | None = None) -> bridge.BridgeStatus:
        """Says how the bridge is, and what it did."""
        request = pb.GetBridgeStatusRequest()
        return bridge_convert.status_from_pb(self._call(self._bridge.GetBridgeStatus, request, timeout))

    def routing_policy(self, *, timeout: float | None = None) -> bridge.RoutingPolicy:
        """Returns the policy that holds now, with its defaults filled in."""
        response = self._call(self._bridge.GetRoutingPolicy, pb.GetRoutingPolicyRequest(), timeout)
        return bridge_convert.policy_from_pb(response.policy)

    def update_routing_policy(
        self, policy: bridge.RoutingPolicy, *, timeout: float | None = None
    ) -> bridge.RoutingPolicy:
        """Puts another policy in its place, as a whole, and returns it with its defaults filled in.

        It holds for events that have yet to be handled. To change one field:
        `client.update_routing_policy(dataclasses.replace(client.routing_policy(), min_importance=0.8))`.
        """
        response = self._call(self._bridge.UpdateRoutingPolicy, bridge_convert.update(policy), timeout)
        return bridge_convert.policy_from_pb(response.policy)

    def pause_bridge(self, *, timeout: float | None = None) -> None:
        """Stops the bridge until it is resumed, over restarts of the server; events wait."""
        self._call(self._bridge.PauseBridge, pb.PauseBridgeRequest(), timeout)

    def resume_bridge(self, *, timeout: float | None = None) -> None:
        """Lets the bridge go on where it stopped, be it paused or suspended by a warning."""
        self._call(self._bridge.ResumeBridge, pb.ResumeBridgeRequest(), timeout)

    @property
    def _bridge(self) -> BridgeServiceStub:
        return self._stub(BridgeServiceStub)
