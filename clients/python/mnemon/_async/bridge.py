"""The asyncio client's methods for the bridge from the timeline to what is known of users."""

from typing import TYPE_CHECKING, Unpack

from mnemon._connection import AsyncConnection
from mnemon._messages import bridge as bridge_convert
from mnemon._messages.semantic_requests import request_id_to_pb
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
        self,
        policy: bridge.RoutingPolicy | None = None,
        *,
        expected_revision: int | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
        **changes: Unpack[bridge.PolicyChanges],
    ) -> bridge.RoutingPolicy:
        """Changes the policy, and returns it with its defaults filled in: `update_routing_policy(min_importance=0.8)`.

        With a whole `policy`, every field is taken from it, where it is not among the `changes`. It holds for events
        that have yet to be handled. `expected_revision`: change only if the policy has this `revision`, otherwise
        RevisionMismatchError.
        """
        request = bridge_convert.update(policy, changes, expected_revision=expected_revision, request_id=request_id)
        response = await self._call(self._bridge.UpdateRoutingPolicy, request, timeout)
        return bridge_convert.policy_from_pb(response.policy)

    async def pause_bridge(self, *, request_id: str | None = None, timeout: float | None = None) -> None:
        """Stops the bridge until it is resumed, over restarts of the server; events wait."""
        request = pb.PauseBridgeRequest(request_id=request_id_to_pb(request_id))
        await self._call(self._bridge.PauseBridge, request, timeout)

    async def resume_bridge(self, *, request_id: str | None = None, timeout: float | None = None) -> None:
        """Lets the bridge go on where it stopped, be it paused or suspended by a warning."""
        request = pb.ResumeBridgeRequest(request_id=request_id_to_pb(request_id))
        await self._call(self._bridge.ResumeBridge, request, timeout)

    @property
    def _bridge(self) -> "BridgeServiceAsyncStub":
        return self._stub(BridgeServiceStub)
