"""Invalid requests about statements, conflicts and rules are refused, and every invalid field is named."""

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import common_pb2, conflicts_pb2, decisions_pb2, rules_pb2
from mnemon.v1 import semantic_pb2 as pb
from mnemon_server.transport.convert import conflicts, rules
from mnemon_server.transport.convert import semantic as requests
from mnemon_server.transport.convert.shared.reader import read_page_size

from tests.support.refusals import refused_fields

NO_TIME = Timestamp(seconds=10**13)
UNSET = common_pb2.MetadataValue()
BAD_MEMORY = pb.SemanticMemory(content="fine", scope={"user": "ada"}, metadata={"unset": UNSET}, create_time=NO_TIME)
GOOD_MEMORY = pb.SemanticMemory(content="fine", scope={"user": "ada"})
FILTERED = [
    (requests.read_list, pb.ListSemanticMemoriesRequest),
    (requests.read_search, pb.SearchSimilarRequest),
    (requests.read_deletion, pb.DeleteSemanticMemoriesRequest),
]


@pytest.mark.parametrize(
    ("read", "request_", "field"),
    [
        (requests.read_save, pb.SaveSemanticMemoryRequest(), "memory"),
        (conflicts.read_preview, conflicts_pb2.PreviewResolutionRequest(), "memory"),
        (rules.read_rule, rules_pb2.RegisterRuleRequest(), "rule"),
        (rules.read_rule, rules_pb2.UpdateRuleRequest(), "rule"),
        (rules.read_pair, rules_pb2.FindMatchingRuleRequest(), "candidate"),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_the_subject_of_a_request_is_required(read: Any, request_: Any, field: str) -> None:
    assert refused_fields(read, request_) == [field]


def test_an_unknown_view_of_a_statement_is_refused() -> None:
    assert refused_fields(requests.read_view, pb.GetSemanticMemoryRequest(memory_id="m", view="VIEW_FULL")) == []
    assert refused_fields(requests.read_view, pb.GetSemanticMemoryRequest(view=9)) == ["memory_id", "view"]


def test_every_invalid_field_of_a_statement_is_named_at_once() -> None:
    memory = pb.SemanticMemory(
        content=" ",
        summary="s" * 65_537,
        scope={"persona": "p" * 257},
        importance=float("nan"),
        keywords=["", "fine"],
        source="s" * 257,
        metadata={"unset": UNSET, "not a key": common_pb2.MetadataValue(int_value=1)},
        create_time=NO_TIME,
    )
    request = pb.SaveSemanticMemoryRequest(
        memory=memory, embedding=[float("inf")], conflict_policy=9, rule="r" * 129, request_id="r" * 129
    )
    assert refused_fields(requests.read_save, request) == [
        "conflict_policy",
        "embedding",
        "memory.content",
        "memory.create_time",
        "memory.importance",
        "memory.keywords[0]",
        "memory.metadata",
        "memory.metadata.unset",
        "memory.scope.persona",
        "memory.scope.user",
        "memory.source",
        "memory.summary",
        "request_id",
        "rule",
    ]


def test_fields_of_a_statement_that_only_the_server_sets_are_not_checked() -> None:
    memory = pb.SemanticMemory(content="a", scope={"user": "ada"}, memory_id="\0", update_time=NO_TIME, revision=-1)
    assert refused_fields(requests.read_save, pb.SaveSemanticMemoryRequest(memory=memory)) == []


@pytest.mark.parametrize(("read", "kind"), FILTERED)
def test_invalid_times_and_parts_of_a_filter_are_named_with_the_other_fields(read: Any, kind: Any) -> None:
    assert refused_fields(read, kind(filter=pb.SemanticMemoryFilter(created={"start_time": Timestamp()}))) == []
    message = pb.SemanticMemoryFilter(
        scope={"user": "u" * 257},
        created={"start_time": NO_TIME, "end_time": Timestamp(nanos=-1)},
        filter={},
    )
    found = refused_fields(read, kind(filter=message))
    assert found == ["filter.created.end_time", "filter.created.start_time", "filter.filter", "filter.scope.user"]


@pytest.mark.parametrize(("read", "kind"), FILTERED)
def test_an_invalid_filter_does_not_count_as_no_filter(read: Any, kind: Any) -> None:
    assert refused_fields(read, kind(filter=pb.SemanticMemoryFilter(filter={}))) == ["filter.filter"]


def test_other_errors_of_a_search_are_named_with_an_invalid_filter() -> None:
    request = pb.SearchSimilarRequest(
        vector=[float("nan")], limit=101, min_score=2.0, view=9, filter=pb.SemanticMemoryFilter(filter={})
    )
    assert refused_fields(requests.read_search, request) == [
        "filter.filter", "limit", "min_score", "vector", "view",
    ]  # fmt: skip


def test_a_negative_page_size_is_refused() -> None:
    assert refused_fields(requests.read_list, pb.ListSemanticMemoriesRequest(page_size=-1)) == ["page_size"]
    assert refused_fields(rules.read_list, rules_pb2.ListRulesRequest(page_size=-1, order=9)) == [
        "order", "page_size",
    ]  # fmt: skip
    request = conflicts_pb2.ListDecisionsRequest(page_size=-1)
    assert refused_fields(read_page_size, request) == ["page_size"]


def test_given_statements_are_checked_under_their_own_path() -> None:
    bad, good = (conflicts_pb2.MemoryReference(memory=memory) for memory in (BAD_MEMORY, GOOD_MEMORY))
    by_id, nothing = conflicts_pb2.MemoryReference(memory_id="s-1"), conflicts_pb2.MemoryReference()
    detect = conflicts.read_detection
    assert refused_fields(detect, conflicts_pb2.DetectConflictsRequest(candidate=bad)) == [
        "candidate.memory.create_time", "candidate.memory.metadata.unset",
    ]  # fmt: skip
    assert refused_fields(detect, conflicts_pb2.DetectConflictsRequest(candidate=by_id)) == []
    arbitrate = conflicts_pb2.ArbitrateConflictRequest(candidate=good, existing=nothing)
    assert refused_fields(conflicts.read_arbitration, arbitrate) == ["existing"]
    assert refused_fields(conflicts.read_merge, conflicts_pb2.MergeMemoriesRequest(first=by_id)) == ["second"]
    preview = conflicts_pb2.PreviewResolutionRequest(memory=BAD_MEMORY)
    assert refused_fields(conflicts.read_preview, preview) == [
        "memory.create_time", "memory.metadata.unset",
    ]  # fmt: skip
    match = rules_pb2.FindMatchingRuleRequest(candidate=BAD_MEMORY)
    assert refused_fields(rules.read_pair, match) == [
        "candidate.create_time", "candidate.metadata.unset",
    ]  # fmt: skip


def test_other_errors_of_a_statement_are_named_with_invalid_values() -> None:
    bad = pb.SemanticMemory(content=" ", metadata={"unset": UNSET}, embedding=[float("nan")])
    candidate = conflicts_pb2.MemoryReference(memory=bad)
    detect = conflicts_pb2.DetectConflictsRequest(candidate=candidate, detection={"signals": [9]})
    assert refused_fields(conflicts.read_detection, detect) == [
        "candidate.memory.content", "candidate.memory.embedding", "candidate.memory.metadata.unset",
        "candidate.memory.scope.user", "detection.signals[0]",
    ]  # fmt: skip
    preview = conflicts_pb2.PreviewResolutionRequest(memory=bad)
    assert refused_fields(conflicts.read_preview, preview) == [
        "memory.content", "memory.metadata.unset", "memory.scope.user",
    ]  # fmt: skip


def test_unknown_values_of_a_rule_are_named_by_their_path() -> None:
    rule = rules_pb2.MergeRuleConfig(
        name="a",
        detection=decisions_pb2.DetectionConfig(signals=[1, 0, 9], time_window=Duration(seconds=-1)),
        arbitration=decisions_pb2.ArbitrationConfig(default_strategy=9),
        merge=decisions_pb2.MergeConfig(content_strategy=8, importance_boost=0.5),
    )
    expected = ["detection.time_window", "detection.signals[1]", "detection.signals[2]",
                "arbitration.default_strategy", "merge.content_strategy"]  # fmt: skip
    register = rules_pb2.RegisterRuleRequest(rule=rule)
    assert refused_fields(rules.read_rule, register) == sorted(f"rule.{path}" for path in expected)
    load = rules_pb2.LoadRulesRequest(rules=[rules_pb2.MergeRuleConfig(name="fine"), rule])
    assert refused_fields(rules.read_load, load) == sorted(f"rules[1].{path}" for path in expected)
    candidate = conflicts_pb2.MemoryReference(memory_id="s-1")
    detect = conflicts_pb2.DetectConflictsRequest(candidate=candidate, detection=rule.detection)
    assert refused_fields(conflicts.read_detection, detect) == sorted(expected[:3])
    arbitrate = conflicts_pb2.ArbitrateConflictRequest(
        candidate=candidate, existing=candidate, arbitration=rule.arbitration
    )
    assert refused_fields(conflicts.read_arbitration, arbitrate) == expected[3:4]
    merge = conflicts_pb2.MergeMemoriesRequest(first=candidate, second=candidate, merge=rule.merge)
    assert refused_fields(conflicts.read_merge, merge) == expected[4:]


@pytest.mark.parametrize(
    "window", [Duration(nanos=1_000_000_000), Duration(seconds=10**12), Duration(seconds=1, nanos=-1)]
)
def test_an_invalid_duration_is_refused(window: Duration) -> None:
    rule = rules_pb2.MergeRuleConfig(name="a", detection=decisions_pb2.DetectionConfig(time_window=window))
    assert refused_fields(rules.read_rule, rules_pb2.UpdateRuleRequest(rule=rule)) == ["rule.detection.time_window"]


def test_too_many_rules_at_once_are_refused() -> None:
    many = [rules_pb2.MergeRuleConfig(name=f"rule {i}") for i in range(1001)]
    assert refused_fields(rules.read_load, rules_pb2.LoadRulesRequest(rules=many)) == ["rules"]
    assert refused_fields(rules.read_load, rules_pb2.LoadRulesRequest(rules=many[:1000])) == []
