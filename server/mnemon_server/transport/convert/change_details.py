"""Conversion of what an event says beyond what all events say."""

import json
from collections.abc import Callable, Mapping

from mnemon.v1 import events_pb2 as pb

from mnemon_server.domain.changes import Event, EventType
from mnemon_server.domain.clock import from_microseconds
from mnemon_server.services.semantic.decisions import decision_from_json
from mnemon_server.transport.convert.decisions import fill_decision
from mnemon_server.transport.convert.rules import fill_rule
from mnemon_server.wire.values import fill_time


def fill_details(target: pb.Event, event: Event) -> None:
    """Writes the details of an event that has some."""
    if (fill := _FILLERS.get(event.type)) is not None:
        fill(target, event.details)


def _fill_decision(target: pb.Event, details: str) -> None:
    fill_decision(target.decision, decision_from_json(details))


def _fill_rule(target: pb.Event, details: str) -> None:
    fill_rule(target.rule, json.loads(details))


def _fill_warning(target: pb.Event, details: str) -> None:
    said = json.loads(details)
    target.warning.severity = said["severity"]
    target.warning.message = said["message"]
    target.warning.remediation = said["remediation"]


def _fill_prune_reason(target: pb.Event, details: str) -> None:
    target.prune_reason = json.loads(details)["prune_reason"]


def _fill_episodic_saved(target: pb.Event, details: str) -> None:
    said = json.loads(details)
    saved = target.episodic_saved
    saved.event_type = said["event_type"]
    fill_time(saved.event_time, from_microseconds(said["event_time"]))
    if said["importance"] is not None:
        saved.importance = said["importance"]
    saved.segment_id = said["segment_id"]
    saved.timeline_lag.FromMicroseconds(said["lag_us"])
    saved.segment_count = said["segment_count"]
    saved.content_hash = said["content_hash"]


def _fill_episodic_pruned(target: pb.Event, details: str) -> None:
    said = json.loads(details)
    target.episodic_pruned.segment_id = said["segment_id"]
    target.episodic_pruned.reason = said["reason"]
    for event_id, content_hash in said["events"]:
        target.episodic_pruned.events.add(event_id=event_id, content_hash=content_hash)


def _fill_reconciliation(target: pb.Event, details: str) -> None:
    said = json.loads(details)
    target.reconciliation.event_ids.extend(said["event_ids"])
    target.reconciliation.action = said["action"]
    target.reconciliation.memory_ids.extend(said["memory_ids"])
    target.reconciliation.unlinked_memory_ids.extend(said["unlinked_memory_ids"])


def _fill_fact_change(target: pb.Event, details: str) -> None:
    said = json.loads(details)
    target.fact_change.namespace.extend(said["namespace"])
    target.fact_change.key = said["key"]
    target.fact_change.reason = said.get("reason", "")


_FILLERS: Mapping[EventType, Callable[[pb.Event, str], None]] = {
    EventType.SEMANTIC_PRUNED: _fill_prune_reason,
    EventType.SEMANTIC_WARNING: _fill_warning,
    EventType.SEMANTIC_HEALTHY: _fill_warning,
    EventType.CONFLICT_DETECTED: _fill_decision,
    EventType.CONFLICT_RESOLVED: _fill_decision,
    EventType.CONFLICT_MERGED: _fill_decision,
    EventType.CONFLICT_REVERTED: _fill_decision,
    EventType.RULE_REGISTERED: _fill_rule,
    EventType.RULE_UPDATED: _fill_rule,
    EventType.RULE_DELETED: _fill_rule,
    EventType.EPISODIC_SAVED: _fill_episodic_saved,
    EventType.EPISODIC_PRUNED: _fill_episodic_pruned,
    EventType.EPISODIC_WARNING: _fill_warning,
    EventType.EPISODIC_HEALTHY: _fill_warning,
    EventType.BRIDGE_SUSPENDED: _fill_warning,
    EventType.BRIDGE_RESUMED: _fill_warning,
    EventType.BRIDGE_RECONCILED: _fill_reconciliation,
    EventType.FACT_CREATED: _fill_fact_change,
    EventType.FACT_UPDATED: _fill_fact_change,
    EventType.FACT_DELETED: _fill_fact_change,
}
