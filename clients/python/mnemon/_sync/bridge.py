# Generated from _async/bridge.py by `make generate`: change that file instead.
"""The blocking client's object for the bridge."""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from mnemon._messages.calls import extraction_messages_to_pb, update_policy
from mnemon._messages.recall import fields_to_pb
from mnemon._messages.translation import read, request
from mnemon._sync.service import Service, Stub
from mnemon._values import bridge
from mnemon._values.documents import ScopeFields
from mnemon.v1 import bridge_pb2 as pb
from mnemon.v1.bridge_pb2_grpc import BridgeServiceStub


class Bridge(Service):
    """The bridge, as `client.bridge`.

    It saves events as statements if its policy allows it, and takes them back when their events are pruned.
    """

    _stub = Stub(BridgeServiceStub)

    def status(self, *, timeout: float | None = None) -> bridge.BridgeStatus:
        """Returns the state of the bridge and what it has done."""
        answer = self._call(self._stub.GetBridgeStatus, pb.GetBridgeStatusRequest(), timeout)
        return read(bridge.BridgeStatus, answer)

    def policy(self, *, timeout: float | None = None) -> bridge.RoutingPolicy:
        """Returns the current policy, with its defaults filled in."""
        response = self._call(self._stub.GetRoutingPolicy, pb.GetRoutingPolicyRequest(), timeout)
        return read(bridge.RoutingPolicy, response.policy)

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
        asked = update_policy(policy, changes, expected_revision=expected_revision, request_id=request_id)
        response = self._call(self._stub.UpdateRoutingPolicy, asked, timeout)
        return read(bridge.RoutingPolicy, response.policy)

    def preview_extraction(
        self,
        *,
        conversation_id: str = "",
        last: int = 0,
        messages: Sequence[Mapping[str, Any]] = (),
        extract: str | None = None,
        timeout: float | None = None,
        **scope: Unpack[ScopeFields],
    ) -> bridge.ExtractionPreview:
        """Asks the extractor for the statements in some messages, and returns what would be saved. It saves nothing.

        The messages are the `last` ones of a stored conversation (0: as many as are extracted together), or else
        `messages` such as {"role": "user", "content": "I moved to Oslo."}, which may have a name and a time. `scope` is
        whose they are, for example: `user="ada"`. `extract` is "model" or "service", by default what the policy says,
        or the one that the server has. Raises ConfigurationError if the server has no such extractor, and
        ToolUnreachableError if it cannot be asked now.
        """
        asked = request(
            pb.PreviewExtractionRequest,
            scope=fields_to_pb(scope),
            conversation_id=conversation_id,
            last=last,
            messages=extraction_messages_to_pb(messages),
            extract=extract,
        )
        return read(bridge.ExtractionPreview, self._call(self._stub.PreviewExtraction, asked, timeout))

    def pause(self, *, request_id: str | None = None, timeout: float | None = None) -> None:
        """Stops the bridge until `resume`, also across restarts of the server. Events wait."""
        asked = request(pb.PauseBridgeRequest, request_id=request_id)
        self._call(self._stub.PauseBridge, asked, timeout)

    def resume(self, *, request_id: str | None = None, timeout: float | None = None) -> None:
        """Lets the bridge continue where it stopped, whether it was paused or suspended by a warning."""
        asked = request(pb.ResumeBridgeRequest, request_id=request_id)
        self._call(self._stub.ResumeBridge, asked, timeout)
