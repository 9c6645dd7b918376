"""Memories and requests about them are converted to messages and back without loss."""

from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import common_pb2, errors_pb2
from mnemon.v1 import memory_pb2 as pb
from mnemon_server.domain.documents import HealthStatus, Passage
from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.filters import Condition, Operator
from mnemon_server.domain.memories import (
    CreateMemory,
    DecayPolicy,
    Explanation,
    ForecastPage,
    Memory,
    MemoryFilter,
    MemoryForecast,
    MemoryMatch,
    MemoryPage,
    MemoryQuery,
    MemoryReceipt,
    MemorySearchAnswer,
    MemoryStatus,
    ScorePart,
    UpdateMemory,
)
from mnemon_server.domain.records import AckLevel, Scope, SearchDiagnostics, SearchMode, WriteOutcome, WriteReceipt
from mnemon_server.transport.convert import memories as convert
from mnemon_server.transport.convert import memories as requests
from mnemon_server.transport.convert.shared.results import with_receipts
from mnemon_server.transport.status import Failure

CREATED, UPDATED, REINFORCED, DELETED = (datetime(2026, 1, day, 3, 4, 5, 678, UTC) for day in (1, 2, 3, 4))
MEMORY = Memory(
    memory_id="m-1",
    content="Ada prefers window seats.",
    scope=Scope("ada", "home", "butler", "claude", "trip"),
    personality="engineer",
    type="preference",
    is_global=True,
    decay_policy=DecayPolicy.REINFORCEABLE,
    metadata={"topic": "travel", "rank": 5, "sure": 0.5, "open": False, "tags": ("a", "b"), "seen": CREATED},
    confidence=0.75,
    revision=4,
    create_time=CREATED,
    update_time=UPDATED,
    reinforce_time=REINFORCED,
    delete_time=DELETED,
)
RECEIPT = WriteReceipt("m-1", WriteOutcome.CREATED, 1, CREATED)
DIAGNOSTICS = SearchDiagnostics(mode=SearchMode.HYBRID, exact=True, scanned=9)


def message_of(memory: Memory) -> pb.Memory:
    """The memory as it is received."""
    message = pb.Memory()
    convert.fill_memory(message, memory)
    return pb.Memory.FromString(message.SerializeToString())


def test_a_memory_is_written_completely() -> None:
    message = message_of(MEMORY)
    assert (message.memory_id, message.content) == ("m-1", "Ada prefers window seats.")
    scope = message.scope
    assert (scope.user, scope.household, scope.persona, scope.agent, scope.project) == (
        "ada", "home", "butler", "claude", "trip",
    )  # fmt: skip
    assert (message.personality, message.type, message.is_global) == ("engineer", "preference", True)
    assert message.decay_policy == pb.DECAY_POLICY_REINFORCEABLE
    assert (message.confidence, message.revision) == (0.75, 4)
    times = (message.create_time, message.update_time, message.reinforce_time, message.delete_time)
    assert tuple(time.ToDatetime(UTC) for time in times) == (CREATED, UPDATED, REINFORCED, DELETED)
    assert requests.read_create(pb.CreateMemoryRequest(memory=message)).memory.metadata == MEMORY.metadata


def test_missing_fields_of_a_memory_are_left_out() -> None:
    message = message_of(Memory("m-1", "text"))
    assert not any(message.HasField(field) for field in ("scope", "reinforce_time", "delete_time"))
    assert (message.decay_policy, message.confidence, len(message.metadata)) == (pb.DECAY_POLICY_STABLE, 1.0, 0)


def test_fields_that_only_the_server_sets_are_ignored_in_requests() -> None:
    came = requests.read_create(pb.CreateMemoryRequest(memory=message_of(MEMORY))).memory
    assert (came.confidence, came.revision, came.reinforce_time, came.delete_time) == (1.0, 0, None, None)
    assert came.create_time == Memory("", "").create_time


@pytest.mark.parametrize("policy", list(DecayPolicy))
def test_every_decay_policy_comes_back(policy: DecayPolicy) -> None:
    message = message_of(Memory("m", "text", decay_policy=policy))
    assert pb.DecayPolicy.Name(message.decay_policy) == f"DECAY_POLICY_{policy.name}"
    assert requests.read_create(pb.CreateMemoryRequest(memory=message)).memory.decay_policy is policy


def test_a_request_with_only_content_has_the_defaults() -> None:
    request = requests.read_create(pb.CreateMemoryRequest(memory=pb.Memory(content="test")))
    assert request == CreateMemory(memory=Memory("", "test"))
    assert (request.memory.decay_policy, request.embedding, request.ack) == (DecayPolicy.STABLE, None, AckLevel.DURABLE)


def test_a_vector_is_read_as_it_was_sent() -> None:
    request = pb.CreateMemoryRequest(memory=pb.Memory(content="test"), embedding=[0.5, -0.25, 0.0])
    assert list(requests.read_create(request).embedding or ()) == [0.5, -0.25, 0.0]


def test_an_update_is_read_completely() -> None:
    message = pb.UpdateMemoryRequest(
        memory=pb.Memory(memory_id="m-1", type="fact"),
        update_mask=FieldMask(paths=["type", "metadata.topic"]),
        expected_revision=0,
        request_id="once",
        ack=common_pb2.ACK_LEVEL_SEARCHABLE,
    )
    assert requests.read_update(message) == UpdateMemory(
        memory=Memory("m-1", "", type="fact"),
        mask=("type", "metadata.topic"),
        expected_revision=0,
        request_id="once",
        ack=AckLevel.SEARCHABLE,
    )
    message.ClearField("expected_revision")
    assert requests.read_update(message).expected_revision is None


def test_a_search_has_defaults_only_for_unset_fields() -> None:
    assert requests.read_search(pb.SearchMemoriesRequest()) == MemoryQuery()
    assert (MemoryQuery().limit, MemoryQuery().where.min_confidence, MemoryQuery().mode) == (10, None, None)
    zeros = requests.read_search(pb.SearchMemoriesRequest(limit=0, filter={"min_confidence": 0.0}))
    assert (zeros.limit, zeros.where.min_confidence) == (10, 0.0)


@pytest.mark.parametrize("mode", list(SearchMode))
def test_every_search_mode_is_read(mode: SearchMode) -> None:
    number = common_pb2.SearchMode.Value(f"SEARCH_MODE_{mode.name}")
    assert requests.read_search(pb.SearchMemoriesRequest(mode=number)).mode is mode


@pytest.mark.parametrize(("sent", "meant"), [({}, None), ({"is_global": False}, False), ({"is_global": True}, True)])
def test_the_filter_on_global_has_three_states(sent: dict[str, Any], *, meant: bool | None) -> None:
    assert requests.read_count(pb.CountMemoriesRequest(filter=sent)).is_global is meant


def test_a_filter_is_read_completely() -> None:
    message = pb.MemoryFilter(
        scope={"agent": "claude"},
        personality="engineer",
        type="preference",
        metadata={"n": common_pb2.MetadataValue(int_value=5)},
        created={"start_time": Timestamp(seconds=1), "end_time": Timestamp(seconds=2)},
        reinforced={"start_time": Timestamp(seconds=3), "end_time": Timestamp(seconds=4)},
        min_confidence=0.5,
        filter={"condition": {"field": "content", "comparator": common_pb2.COMPARATOR_CONTAINS,
                              "values": [{"string_value": "seat"}]}},
    )  # fmt: skip
    times = [datetime(1970, 1, 1, 0, 0, second, tzinfo=UTC) for second in range(5)]
    assert requests.read_count(pb.CountMemoriesRequest(filter=message)) == MemoryFilter(
        scope=Scope(agent="claude"),
        personality="engineer",
        type="preference",
        metadata={"n": 5},
        created_from=times[1],
        created_to=times[2],
        reinforced_from=times[3],
        reinforced_to=times[4],
        min_confidence=0.5,
        expression=Condition("content", Operator.CONTAINS, ("seat",)),
    )
    assert not requests.read_count(pb.CountMemoriesRequest())


def test_an_acknowledgement_holds_the_receipt_and_the_memory_if_there_is_one() -> None:
    whole = convert.fill_change(pb.CreateMemoryResponse(), MemoryReceipt(RECEIPT, MEMORY))
    assert (whole.receipt.id, whole.memory.content) == ("m-1", MEMORY.content)
    bare = convert.fill_change(pb.UpdateMemoryResponse(), MemoryReceipt(RECEIPT, None))
    assert (bare.receipt.revision, bare.HasField("memory")) == (1, False)


def test_results_of_a_bulk_stream_are_receipts_and_errors_in_order() -> None:
    failure = Failure.of(InvalidArgumentError.of("memory.content", "must not be blank"))
    first, second = with_receipts(pb.BulkCreateMemoriesResponse(), [failure, RECEIPT]).results
    assert (first.error.reason, first.error.violations[0].field) == (
        errors_pb2.ERROR_REASON_INVALID_ARGUMENT,
        "memory.content",
    )
    assert (second.WhichOneof("outcome"), second.receipt.id) == ("receipt", "m-1")


async def test_a_page_holds_its_memories_and_the_token_of_the_next() -> None:
    page = await convert.page_to_pb(MemoryPage((MEMORY, Memory("m-2", "x")), 7), "token")
    assert ([memory.memory_id for memory in page.memories], page.next_page_token) == (["m-1", "m-2"], "token")


async def test_a_forecast_says_when_and_how_far_each_memory_fades() -> None:
    forecast = MemoryForecast(MEMORY, confidence_then=0.25, fade_time=DELETED)
    page = await convert.forecast_to_pb(ForecastPage((forecast,), None), "")
    [message] = page.forecasts
    assert (message.memory.memory_id, message.confidence_then) == ("m-1", 0.25)
    assert message.fade_time.ToDatetime(UTC) == DELETED


async def test_a_match_that_was_not_compared_has_no_scores_and_a_score_of_zero_is_kept() -> None:
    bare = MemoryMatch(MEMORY, 0.5)
    whole = MemoryMatch(MEMORY, 0.25, similarity=0.0, distance=0.0, keyword_score=0.0)
    answer = await convert.answer_to_pb(MemorySearchAnswer((bare, whole), DIAGNOSTICS))
    assert (answer.diagnostics.returned, answer.diagnostics.scanned) == (2, 9)
    first, second = answer.results
    assert (first.score, first.HasField("distance")) == (common_pb2.Score(relevance=0.5), False)
    assert (second.score, second.HasField("distance")) == (common_pb2.Score(relevance=0.25, vector=0, keyword=0), True)
    assert not second.HasField("explanation")


async def test_an_explanation_adds_up() -> None:
    parts = (ScorePart("vector", 0.5, 0.6), ScorePart("keyword", 0.25, 0.4))
    explanation = Explanation(parts, ("seat", "window"), "Confidence is 1.")
    match = MemoryMatch(MEMORY, 0.4, passage=Passage(1, 4, 9), explanation=explanation)
    answer = await convert.answer_to_pb(MemorySearchAnswer((match,), DIAGNOSTICS))
    said = answer.results[0].explanation
    assert [(part.name, part.score, part.weight) for part in said.parts] == [
        ("vector", 0.5, 0.6),
        ("keyword", 0.25, 0.4),
    ]
    assert sum(part.contribution for part in said.parts) == pytest.approx(answer.results[0].score.relevance)
    assert (list(said.matched_terms), said.confidence) == (["seat", "window"], "Confidence is 1.")
    assert (said.passage_start, said.passage_end) == (4, 9)


def test_the_status_has_every_field() -> None:
    status = MemoryStatus(
        status=HealthStatus.UNHEALTHY, error="e", backend="chromadb", host="h", collection="c",
        memory_count=1, deleted_count=2, flat_count=3, graph_count=4, dead_count=5, index_bytes=6,
        snapshot_time=CREATED, pending=7, removal_pending_count=8, removal_out_of_reach_count=9,
    )  # fmt: skip
    message = convert.status_to_pb(status)
    assert (message.state, message.message, message.backend) == (common_pb2.STATE_UNAVAILABLE, "e", "chromadb")
    assert (message.host, message.collection, message.memory_count, message.deleted_count) == ("h", "c", 1, 2)
    index = message.index
    assert (index.flat_count, index.graph_count, index.dead_count) == (3, 4, 5)
    assert (index.memory_bytes, index.pending_count) == (6, 7)
    assert (index.removal_pending_count, index.removal_out_of_reach_count) == (8, 9)
    assert index.snapshot_time.ToDatetime(UTC) == CREATED
    for status, state in (("healthy", "READY"), ("starting", "STARTING"), ("degraded", "DEGRADED")):
        message = convert.status_to_pb(MemoryStatus(status=HealthStatus(status), backend="", host="", collection=""))
        assert common_pb2.State.Name(message.state) == f"STATE_{state}"
        assert not message.index.HasField("snapshot_time")
