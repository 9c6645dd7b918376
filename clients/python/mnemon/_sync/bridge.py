# Generated from _async/bridge.py by `make generate`: change that file instead.
"""The blocking client's object for the bridge."""

from typing import Unpack

from mnemon._messages import bridge as bridge_convert
from mnemon._messages.semantic_requests import request_id_to_pb
from mnemon._sync.service import Service
from mnemon._values import bridge
from mnemon.v1 import bridge_pb2 as pb
from mnemon.v1.bridge_pb2_grpc import BridgeServiceStub


class Bridge(Service):
    """The bridge, as `client.bridge`.

    It saves events as statements if its policy allows it, and takes them back when their events are pruned.
    """

    def status(self, *, timeout: float | None = None) -> bridge.BridgeStatus:
        """Returns the state of the bridge and what it has done."""
        request = pb.GetBridgeStatusRequest()
        return bridge_convert.status_from_pb(self._call(self._stub.GetBridgeStatus, request, timeout))

    def policy(self, *, timeout: float | None = None) -> bridge.RoutingPolicy:
        """Returns the current policy, with its defaults filled in."""
        response = self._call(self._stub.GetRoutingPolicy, pb.GetRoutingPolicyRequest(), timeout)
        return bridge_convert.policy_from_pb(response.policy)

    def update_policy(
        self,
        policy: bridge.RoutingPolicy | None = None,
        *,
        expected_revision: int | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
        **changes: Unpack[bridge.PolicyChanges],
    ) -> bridge.RoutingPolicy:
        """Changes the policy, and returns it with its defaults filled in: `update_policy(min_importance=0.8)`.

        A whole `policy` replaces every field that `changes` does not name. The new policy applies to events that are
        not yet handled. With `expected_revision`, it changes only if the policy has this `revision`; otherwise it
        raises RevisionMismatchError.
        """
        request = bridge_convert.update(policy, changes, expected_revision=expected_revision, request_id=request_id)
        response = self._call(self._stub.UpdateRoutingPolicy, request, timeout)
        return bridge_convert.policy_from_pb(response.policy)

    def pause(self, *, request_id: str | None = None, timeout: float | None = None) -> None:
        """Stops the bridge until `resume`, also across restarts of the server. Events wait."""
        request = pb.PauseBridgeRequest(request_id=request_id_to_pb(request_id))
        self._call(self._stub.PauseBridge, request, timeout)

    def resume(self, *, request_id: str | None = None, timeout: float | None = None) -> None:
        """Lets the bridge continue where it stopped, whether it was paused or suspended by a warning."""
        request = pb.ResumeBridgeRequest(request_id=request_id_to_pb(request_id))
        self._call(self._stub.ResumeBridge, request, timeout)

    @property
    def _stub(self) -> BridgeServiceStub:
        return self._connection.stub(BridgeServiceStub)
