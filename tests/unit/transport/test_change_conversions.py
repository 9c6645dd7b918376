"""Changes and queries of the log are converted to messages without loss, and shared batches are encoded once."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import changes_pb2 as pb
from mnemon_server.domain.changes import Change, ChangeFilter, ChangeType
from mnemon_server.domain.conflicts import ArbitrationAction, ArbitrationResult, ArbitrationStrategy, Decision
from mnemon_server.domain.feed import ChangePage, Cursor, Edge, ListQuery, Progress, Started, WatchQuery
from mnemon_server.domain.records import Scope
from mnemon_server.services.semantic.decisions import decision_to_json
from mnemon_server.transport.convert import changes as convert
from mnemon_server.transport.convert import changes as requests

from tests.support.python_calls import python_calls

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
FIELDS: dict[str, Any] = {
    "sequence": 7,
    "commit": 6,
    "time": NOW,
    "type": ChangeType.MEMORY_UPDATED,
    "record_id": "m-1",
    "revision": 3,
    "scope": Scope(user="ada"),
    "request_id": "once",
    "changed": ("content", "metadata.topic"),
}
CHANGE = Change(**FIELDS)


def change_with(**fields: Any) -> Change:
    """The change, with other values of some fields."""
    return Change(**{**FIELDS, **fields})


@pytest.mark.parametrize("type_", list(ChangeType))
def test_every_type_of_event_has_a_number(type_: ChangeType) -> None:
    [change] = convert.page_to_pb(ChangePage("c", (change_with(type=type_),), (), caught_up=True)).changes
    assert pb.ChangeType.Name(change.type) == f"CHANGE_TYPE_{type_.name}"


def test_an_event_without_a_scope_has_none() -> None:
    [change] = convert.page_to_pb(ChangePage("c", (change_with(scope=Scope()),), (), caught_up=False)).changes
    assert not change.HasField("scope")


def test_neighbouring_events_keep_their_own_fields() -> None:
    def plain(**fields: Any) -> Change:
        return change_with(**{"request_id": "", "changed": (), **fields})

    changes = (
        CHANGE,
        plain(),
        plain(sequence=8, commit=8, record_id="m-2", revision=1, request_id="twice"),
        plain(sequence=9),
        plain(sequence=10, scope=Scope(agent="claude")),
        plain(sequence=11, type=ChangeType.MEMORY_PURGED),
        plain(sequence=12, time=NOW + timedelta(seconds=1)),
        CHANGE,
    )
    alone = [convert.page_to_pb(ChangePage("c", (change,), (), caught_up=True)).changes[0] for change in changes]
    assert list(convert.page_to_pb(ChangePage("c", changes, (), caught_up=True)).changes) == alone
    assert len({message.SerializeToString() for message in alone}) == len(set(changes))


DECISION = Decision(
    decision_id="d-1",
    scope=Scope(user="ada"),
    candidate_id="s-1",
    existing_id="s-2",
    result_id="",
    rule="household",
    signals=(),
    conflict_count=1,
    arbitration=ArbitrationResult(
        action=ArbitrationAction.REJECT, strategy=ArbitrationStrategy.DEFAULT, confidence=0.5, reason="as configured"
    ),
)
WARNING = '{"severity": "warning", "message": "full", "remediation": "delete some"}'
FACT_CHANGE = '{"namespace": ["user", "ada"], "key": "seat"}'
DETAILS = [
    (ChangeType.CONFLICT_DETECTED, decision_to_json(DECISION), "decision"),
    (ChangeType.CONFLICT_RESOLVED, decision_to_json(DECISION), "decision"),
    (ChangeType.CONFLICT_MERGED, decision_to_json(DECISION), "decision"),
    (ChangeType.CONFLICT_REVERTED, decision_to_json(DECISION), "decision"),
    (ChangeType.RULE_REGISTERED, '{"name": "household", "priority": 5}', "rule"),
    (ChangeType.RULE_UPDATED, '{"name": "household", "priority": 5}', "rule"),
    (ChangeType.RULE_DELETED, '{"name": "household", "priority": 5}', "rule"),
    (ChangeType.SEMANTIC_WARNING, WARNING, "warning"),
    (ChangeType.SEMANTIC_HEALTHY, WARNING, "warning"),
    (ChangeType.SEMANTIC_PRUNED, '{"prune_reason": "merged"}', "prune_reason"),
    (ChangeType.EPISODIC_WARNING, WARNING, "warning"),
    (ChangeType.EPISODIC_HEALTHY, WARNING, "warning"),
    (ChangeType.BRIDGE_SUSPENDED, WARNING, "warning"),
    (ChangeType.BRIDGE_RESUMED, WARNING, "warning"),
    (ChangeType.FACT_CREATED, FACT_CHANGE, "fact_change"),
    (ChangeType.FACT_UPDATED, FACT_CHANGE, "fact_change"),
    (ChangeType.FACT_DELETED, FACT_CHANGE, "fact_change"),
]


@pytest.mark.parametrize(("type_", "details", "field"), DETAILS)
def test_details_have_the_fields_that_their_type_promises(type_: ChangeType, details: str, field: str) -> None:
    change = change_with(type=type_, details=details)
    [message] = convert.page_to_pb(ChangePage("c", (change,), (), caught_up=True)).changes
    assert message.WhichOneof("details") == field
    said = {
        "decision": (message.decision.decision_id, message.decision.arbitration.reason) == ("d-1", "as configured"),
        "rule": (message.rule.name, message.rule.priority, message.rule.HasField("enabled")) == ("household", 5, False),
        "warning": (message.warning.severity, message.warning.message, message.warning.remediation)
        == (pb.WARNING_SEVERITY_WARNING, "full", "delete some"),
        "prune_reason": message.prune_reason == pb.SEMANTIC_PRUNE_REASON_MERGED,
        "fact_change": message.fact_change == pb.FactChange(namespace=["user", "ada"], key="seat"),
    }
    assert said[field]


def details_of(type_: ChangeType, details: str) -> pb.Change:
    """The message for a change with these details."""
    [message] = convert.page_to_pb(
        ChangePage("c", (change_with(type=type_, details=details),), (), caught_up=True)
    ).changes
    return message


def test_a_recorded_event_has_the_fields_that_routing_needs() -> None:
    said = {
        "event_type": "task",
        "event_time": 1_700_000_000_123_456,
        "importance": 0.75,
        "segment_id": 2**40,
        "lag_us": 90_000_250,
        "segment_count": 3,
        "content_hash": "ab" * 32,
    }
    message = details_of(ChangeType.EPISODIC_SAVED, json.dumps(said))
    assert message.episodic_saved == pb.EpisodicSaved(
        event_type="task",
        event_time=Timestamp(seconds=1_700_000_000, nanos=123_456_000),
        importance=0.75,
        segment_id=2**40,
        timeline_lag=Duration(seconds=90, nanos=250_000),
        segment_count=3,
        content_hash="ab" * 32,
    )
    assert not message.episodic_saved.HasField("content")
    told = details_of(ChangeType.EPISODIC_SAVED, json.dumps({**said, "content": "茶"}))
    assert told.episodic_saved.content == "茶"
    early = details_of(ChangeType.EPISODIC_SAVED, json.dumps({**said, "importance": None, "event_time": -1}))
    assert not early.episodic_saved.HasField("importance")
    assert early.episodic_saved.event_time == Timestamp(seconds=-1, nanos=999_999_000)
    nought = details_of(ChangeType.EPISODIC_SAVED, json.dumps({**said, "importance": 0, "lag_us": 0}))
    assert nought.episodic_saved.HasField("importance")
    assert nought.episodic_saved.timeline_lag == Duration()


def test_details_are_only_written_for_their_own_event_type() -> None:
    def pruned(sequence: int, reason: str) -> Change:
        details = f'{{"prune_reason": "{reason}"}}' if reason else ""
        return change_with(
            type=ChangeType.SEMANTIC_PRUNED, request_id="", changed=(), sequence=sequence, details=details
        )

    reasons = ["", "merged", "", "", "deleted", "superseded", ""]
    changes = tuple(pruned(sequence, reason) for sequence, reason in enumerate(reasons, 1))
    told = convert.page_to_pb(ChangePage("c", changes, (), caught_up=True)).changes
    assert [pb.SemanticPruneReason.Name(change.prune_reason)[len("SEMANTIC_PRUNE_REASON_") :] for change in told] == [
        reason.upper() or "UNSPECIFIED" for reason in reasons
    ]
    assert [change.HasField("prune_reason") for change in told] == [bool(reason) for reason in reasons]


def test_event_ids_differ_even_if_the_log_was_rolled_back_and_continued() -> None:
    other = change_with(time=NOW + timedelta(microseconds=1))
    after = change_with(sequence=8)
    changes = convert.page_to_pb(ChangePage("c", (CHANGE, other, after), (), caught_up=True)).changes
    again = convert.page_to_pb(ChangePage("c", (CHANGE,), (), caught_up=True)).changes
    assert len({change.change_id for change in changes}) == 3
    assert changes[0].change_id == again[0].change_id


def test_messages_without_events_have_their_own_kind() -> None:
    started = convert.watch_message_to_pb(Started("a", 7.5, NOW))
    assert (started.WhichOneof("payload"), started.cursor) == ("started", "a")
    assert started.started.heartbeat_interval == Duration(seconds=7, nanos=500_000_000)
    assert started.started.retained_since.ToDatetime(UTC) == NOW
    assert not convert.watch_message_to_pb(Started("a", 15.0, None)).started.HasField("retained_since")
    progress = convert.watch_message_to_pb(Progress("b", NOW, caught_up=True))
    assert (progress.WhichOneof("payload"), progress.cursor, progress.progress.caught_up) == ("progress", "b", True)
    assert progress.progress.head_time.ToDatetime(UTC) == NOW
    empty = convert.watch_message_to_pb(Progress("b", None, caught_up=False))
    assert (empty.WhichOneof("payload"), empty.progress.HasField("head_time")) == ("progress", False)


def test_queries_are_read_with_their_defaults() -> None:
    assert requests.read_watch(pb.WatchChangesRequest()) == WatchQuery()
    assert requests.read_list(pb.ListChangesRequest()) == ListQuery()
    assert (WatchQuery().start, ListQuery().start) == (Edge.NOW, Edge.EARLIEST)


def test_queries_are_read_completely() -> None:
    where = pb.ChangeFilter(types=[pb.CHANGE_TYPE_MEMORY_PURGED], scope={"agent": "claude"}, record_ids=["a", "b"])
    where.conversation = "c"
    meant = ChangeFilter(frozenset({ChangeType.MEMORY_PURGED}), Scope(agent="claude"), frozenset({"a", "b"}), "c")
    watch = pb.WatchChangesRequest(
        cursor="c", filter=where, heartbeat_interval=Duration(seconds=7), max_batch_size=9, view=pb.CHANGE_VIEW_FULL
    )
    query = WatchQuery(start=Cursor("c"), where=meant, heartbeat_s=7.0, batch_max=9, full=True)
    assert requests.read_watch(watch) == query
    page = pb.ListChangesRequest(start_time=Timestamp(seconds=60), filter=where, page_size=5)
    start = datetime(1970, 1, 1, 0, 1, tzinfo=UTC)
    assert requests.read_list(page) == ListQuery(start=start, where=meant, limit=5)
    assert requests.read_watch(pb.WatchChangesRequest(earliest=True)).start is Edge.EARLIEST


def test_values_above_the_maximum_are_limited_to_it() -> None:
    assert requests.read_watch(pb.WatchChangesRequest(max_batch_size=5000)).batch_max == 1000
    assert requests.read_list(pb.ListChangesRequest(page_size=5000)).limit == 1000


def test_converting_an_event_takes_few_calls() -> None:
    changes = (change_with(request_id="", changed=()),) * 1000
    page = ChangePage("c", changes, (), caught_up=True)
    assert python_calls(lambda: convert.page_to_pb(page)) / len(changes) < 10
