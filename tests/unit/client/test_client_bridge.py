"""The bridge and the feed: a policy can be sent in part, and a change says what happened to an event."""

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import mnemon
import pytest
from google.protobuf.duration_pb2 import Duration
from mnemon import Client, RoutingPolicy
from mnemon._messages.changes import change_from_pb
from mnemon.v1 import bridge_pb2, changes_pb2, common_pb2, semantic_pb2

from tests.support.timeline_messages import stamp
from tests.unit.client.scripted_server import scripted_server

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def test_a_policy_is_sent_as_a_whole_or_in_part_and_read_with_its_defaults() -> None:
    filled = bridge_pb2.RoutingPolicy(
        min_importance=0.6,
        event_types=["task"],
        mode=bridge_pb2.ROUTING_MODE_ANY,
        content_max=512,
        on_prune=bridge_pb2.PRUNE_ACTION_DEMOTE,
        demoted_importance=0.1,
        conflict_policy=semantic_pb2.CONFLICT_POLICY_DETECT,
        revision=7,
        extract=bridge_pb2.EXTRACT_MODE_OFF,
    )
    answer = bridge_pb2.UpdateRoutingPolicyResponse(policy=filled)
    with scripted_server(lambda *_: answer) as (address, server), Client(address) as client:
        held = client.bridge.update_policy(RoutingPolicy(mode="any", on_prune="demote", conflict_policy="detect"))
        client.bridge.update_policy(held, expected_revision=held.revision, content_max=99)
        client.bridge.update_policy(content_max=99, event_types=(), min_importance=None)

    assert held == RoutingPolicy(0.6, ("task",), "any", 512, "demote", 0.1, "detect")
    sparse, whole, part = server.requests
    assert not any(sparse.policy.HasField(name) for name in ("min_importance", "content_max", "demoted_importance"))
    filled.ClearField("revision")
    filled.content_max = 99
    assert whole.policy == filled
    assert (
        set(sparse.update_mask.paths)
        == set(whole.update_mask.paths)
        == {field.name for field in fields(RoutingPolicy)} - {"revision"}
    )
    assert (sparse.HasField("expected_revision"), whole.expected_revision) == (False, 7)
    assert (part.policy.content_max, part.policy.HasField("min_importance")) == (99, False)
    assert sorted(part.update_mask.paths) == ["content_max", "event_types", "min_importance"]
    assert len({each.request_id for each in server.requests} - {""}) == 3


def test_the_status_of_the_bridge_is_read() -> None:
    answer = bridge_pb2.GetBridgeStatusResponse(
        state=common_pb2.STATE_DEGRADED,
        activity=bridge_pb2.BRIDGE_ACTIVITY_SUSPENDED,
        message="a segment is damaged",
        routed_count=3,
        skipped_counts=[
            {"reason": "SKIP_REASON_EVENT_TYPE", "count": 1},
            {"reason": "SKIP_REASON_IMPORTANCE", "count": 2},
            {"reason": 77, "count": 3},
        ],
        queue_depth=4,
        timeline_lag=Duration(nanos=250_000_000),
    )
    with scripted_server(lambda *_: answer) as (address, _), Client(address) as client:
        status = client.bridge.status()

    assert (status.state, status.activity) == ("degraded", "suspended")
    assert (status.message, status.queue_depth) == ("a segment is damaged", 4)
    assert (status.routed_count, status.skipped_counts) == (3, {"event_type": 1, "importance": 2, "77": 3})
    assert (status.timeline_lag_s, status.handled_time) == (0.25, None)


SAVED = changes_pb2.EpisodicSaved(
    event_type="task", event_time=stamp(NOON), segment_id=1, timeline_lag=Duration(seconds=2), content_hash="ab"
)
RECONCILED = changes_pb2.Reconciliation(
    event_ids=["e-1"], action="PRUNE_ACTION_DELETE", memory_ids=["m-1"], unlinked_memory_ids=["m-2"]
)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            changes_pb2.Change(type=changes_pb2.CHANGE_TYPE_EPISODIC_SAVED, episodic_saved=SAVED),
            mnemon.EpisodicSaved("task", NOON, None, 1, 2.0, 0, "ab"),
        ),
        (
            changes_pb2.Change(
                type=changes_pb2.CHANGE_TYPE_EPISODIC_PRUNED,
                episodic_pruned={
                    "segment_id": 1,
                    "reason": "PRUNE_REASON_RETENTION",
                    "events": [{"event_id": "e-1", "content_hash": "ab"}],
                },
            ),
            mnemon.EpisodicPruned(1, mnemon.PruneReason.RETENTION, (mnemon.PrunedEvent("e-1", "ab"),)),
        ),
        (
            changes_pb2.Change(type=changes_pb2.CHANGE_TYPE_BRIDGE_RECONCILED, reconciliation=RECONCILED),
            mnemon.Reconciliation(("e-1",), mnemon.PruneAction.DELETE, ("m-1",), ("m-2",)),
        ),
        (
            changes_pb2.Change(
                type=changes_pb2.CHANGE_TYPE_BRIDGE_SUSPENDED,
                warning={"severity": "WARNING_SEVERITY_CRITICAL"},
            ),
            mnemon.ServiceWarning("critical", "", ""),
        ),
    ],
)
def test_an_event_of_the_feed_has_its_details(event: changes_pb2.Change, expected: Any) -> None:
    found = change_from_pb(event)

    assert found.details == expected
    assert found.type != mnemon.ChangeType.UNKNOWN
