"""Conversion of what an event says beyond what all events say."""

import json
from collections.abc import Callable, Mapping

from mnemon.v1 import events_pb2 as pb

from mnemon_server.domain.events import Event, EventType
from mnemon_server.services.conflicts.decisions import decision_from_json
from mnemon_server.transport.convert.decisions import fill_decision
from mnemon_server.transport.convert.rules import fill_rule


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
}
