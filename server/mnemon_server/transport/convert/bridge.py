"""The bridge service's requests and answers."""

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from mnemon.v1 import bridge_pb2 as pb
from mnemon.v1 import common_pb2

from mnemon_server.domain.bridge import (
    EVENT_TYPES_DEFAULT,
    BridgeActivity,
    BridgeStatus,
    ExtractionCounts,
    PruneAction,
    RoutingMode,
    RoutingPolicy,
)
from mnemon_server.domain.bridge.extraction import ExtractionPreview, ExtractMode, PreviewRequest, Refusal, Turn
from mnemon_server.domain.validation import request_id_violations
from mnemon_server.services.bridge.conversations import DEFAULT_ROLE
from mnemon_server.services.bridge.preview import preview_violations
from mnemon_server.services.bridge.routing import Skip, change_violations
from mnemon_server.transport.convert.semantic import CONFLICT_POLICIES
from mnemon_server.transport.convert.shared.fields import filled
from mnemon_server.transport.convert.shared.reader import Reader, named, require
from mnemon_server.wire.enums import members_of, numbers_of
from mnemon_server.wire.values import scope_of

_STATES_TO_PB = {
    BridgeActivity.RUNNING: common_pb2.STATE_READY,
    BridgeActivity.SUSPENDED: common_pb2.STATE_DEGRADED,
    BridgeActivity.PAUSED: common_pb2.STATE_UNAVAILABLE,
}
_SKIPS_TO_PB: Mapping[Any, Any] = numbers_of(pb.SkipReason, Skip)
_REFUSALS_TO_PB: Mapping[Any, Any] = numbers_of(pb.ExtractionRefusal, Refusal)


def policy_to_pb(policy: RoutingPolicy) -> pb.RoutingPolicy:
    """The policy, with all of its fields set."""
    return filled(pb.RoutingPolicy(), policy, event_types=sorted(policy.event_types))


def status_to_pb(status: BridgeStatus) -> pb.GetBridgeStatusResponse:
    """The status of the bridge, and what it has done."""
    extracts = status.policy.extract is not ExtractMode.OFF or status.extraction != ExtractionCounts()
    return filled(
        pb.GetBridgeStatusResponse(),
        status,
        state=_state_of(status),
        skipped_counts=[
            pb.SkipCount(reason=_SKIPS_TO_PB.get(reason, pb.SKIP_REASON_UNSPECIFIED), count=count)
            for reason, count in sorted(status.skipped_counts.items())
        ],
        policy=policy_to_pb(status.policy),
        extraction=_extraction_to_pb(status) if extracts else None,
    )


def preview_to_pb(preview: ExtractionPreview) -> pb.PreviewExtractionResponse:
    """The statements that would be saved."""
    message = filled(
        pb.PreviewExtractionResponse(),
        preview,
        statements=(),
        refusal_message=preview.message,
        token_count=preview.tokens,
    )
    for each in preview.statements:
        saved = each.saved
        target, decision = message.statements.add(), saved.decision
        filled(target, each.extracted, memory=saved.memory, duplicate=saved.duplicate, decision=decision)
    return message


def _extraction_to_pb(status: BridgeStatus) -> pb.ExtractionStatus:
    counts = status.extraction
    return pb.ExtractionStatus(
        message=status.extraction_message,
        waiting_count=counts.waiting,
        extracted_count=counts.messages,
        statement_count=counts.statements,
        refused_counts=[
            pb.ExtractionRefusalCount(
                reason=_REFUSALS_TO_PB.get(reason, pb.EXTRACTION_REFUSAL_UNSPECIFIED), count=count
            )
            for reason, count in sorted(counts.refused.items())
        ],
        call_count=counts.calls,
        token_count=counts.tokens,
    )


def _state_of(status: BridgeStatus) -> common_pb2.State.ValueType:
    state = _STATES_TO_PB[status.activity]
    return common_pb2.STATE_DEGRADED if status.is_waiting and state == common_pb2.STATE_READY else state


ROUTING_MODES = members_of(pb.RoutingMode, RoutingMode, RoutingMode.ALL)
PRUNE_ACTIONS = members_of(pb.PruneAction, PruneAction, PruneAction.DELETE)
EXTRACT_MODES = members_of(pb.ExtractMode, ExtractMode, ExtractMode.OFF)
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


def read_preview(request: pb.PreviewExtractionRequest) -> PreviewRequest:
    """Which messages are previewed, and by which extractor."""
    reader = Reader()
    now = datetime.now(UTC)
    asked = PreviewRequest(
        scope=scope_of(request),
        conversation=request.conversation_id,
        last=request.last,
        messages=[
            Turn(
                message_id=each.message_id,
                role=each.role or DEFAULT_ROLE,
                name=each.name,
                content=each.content,
                time=reader.time(f"messages[{number}].message_time", each, "message_time") or now,
            )
            for number, each in enumerate(request.messages)
        ],
        mode=reader.enum("extract", request.extract, EXTRACT_MODES),
    )
    reader.finish(preview_violations(asked))
    return asked


def _policy(reader: Reader, message: pb.RoutingPolicy) -> RoutingPolicy:
    """The policy; unset fields have their defaults."""
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
        extract=reader.enum("policy.extract", message.extract, EXTRACT_MODES),
    )
