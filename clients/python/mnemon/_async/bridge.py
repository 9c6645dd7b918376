"""The asyncio client's methods for the bridge from the timeline to what is known of users."""
# ruff: noqa: ASYNC109 -- a deadline goes to the server with the call, which asyncio.timeout would not do

from typing import TYPE_CHECKING

from mnemon._connection import AsyncConnection
from mnemon._messages import bridge as bridge_convert
from mnemon._values import bridge
from mnemon.v1 import bridge_pb2 as pb
from mnemon.v1.bridge_pb2_grpc import BridgeServiceStub

if TYPE_CHECKING:
    from mnemon.v1.bridge_pb2_grpc import BridgeServiceAsyncStub


class AsyncBridgeMethods(AsyncConnection):
    """The bridge, which saves events as statements where a policy lets them through, and takes back what was pruned."""

    async def bridge_status(self, *, timeout: float | None = None) -> bridge.BridgeStatus:
        """Says how the bridge is, and what it did."""
        request = pb.GetBridgeStatusRequest()
        return bridge_convert.status_from_pb(await self._call(self._bridge.GetBridgeStatus, request, timeout))

    async def routing_policy(self, *, timeout: float | None = None) -> bridge.RoutingPolicy:
        """Returns the policy that holds now, with its defaults filled in."""
        response = await self._call(self._bridge.GetRoutingPolicy, pb.GetRoutingPolicyRequest(), timeout)
        return bridge_convert.policy_from_pb(response.policy)

    async def update_routing_policy(
        self, policy: bridge.RoutingPolicy, *, timeout: float | None = None
    ) -> bridge.RoutingPolicy:
        """Puts another policy in its place, as a whole, and returns it with its defaults filled in.

        It holds for events that have yet to be handled. To change one field:
        `await client.update_routing_policy(dataclasses.replace(await client.routing_policy(), min_importance=0.8))`.
        """
        response = await self._call(self._bridge.UpdateRoutingPolicy, bridge_convert.update(policy), timeout)
        return bridge_convert.policy_from_pb(response.policy)

    async def pause_bridge(self, *, timeout: float | None = None) -> None:
        """Stops the bridge until it is resumed, over restarts of the server; events wait."""
        await self._call(self._bridge.PauseBridge, pb.PauseBridgeRequest(), timeout)

    async def resume_bridge(self, *, timeout: float | None = None) -> None:
        """Lets the bridge go on where it stopped, be it paused or suspended by a warning."""
        await self._call(self._bridge.ResumeBridge, pb.ResumeBridgeRequest(), timeout)

    @property
    def _bridge(self) -> "BridgeServiceAsyncStub":
        return self._stub(BridgeServiceStub)
