"""Memories keep their types, changes name what they change, and a repeated write happens once."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import mnemon
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemon import Client, Memory
from mnemon._bulk import BATCH_ITEMS_MAX
from mnemon._messages import records
from mnemon._messages.translation import read
from mnemon.v1 import common_pb2, errors_pb2
from mnemon.v1 import memory_pb2 as pb

from tests.unit.client.scripted_server import failing, scripted_server

UNAVAILABLE = failing(grpc.StatusCode.UNAVAILABLE, "starting", reason="NOT_SERVING")
BROKEN = failing(grpc.StatusCode.UNAVAILABLE, "connection lost")
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.one_of(TEXTS, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))


def stored(request: pb.CreateMemoryRequest, context: grpc.ServicerContext) -> pb.CreateMemoryResponse:
    """A line that stores any memory."""
    response = pb.CreateMemoryResponse(memory=request.memory)
    response.memory.memory_id, response.memory.confidence, response.memory.revision = "m-1", 1.0, 1
    return response


def all_stored(request: pb.BulkCreateMemoriesRequest, context: grpc.ServicerContext) -> pb.BulkCreateMemoriesResponse:
    """A line that stores every memory of a batch. The ids name the contents."""
    receipts = (
        common_pb2.WriteReceipt(id=f"id of {each.memory.content}", outcome=common_pb2.WRITE_OUTCOME_CREATED)
        for each in request.requests
    )
    return pb.BulkCreateMemoriesResponse(results=[pb.CreateMemoryResult(receipt=receipt) for receipt in receipts])


@given(
    st.builds(
        Memory,
        content=TEXTS,
        type=TEXTS,
        agent=TEXTS,
        project=TEXTS,
        personality=TEXTS,
        user=TEXTS,
        household=TEXTS,
        persona=TEXTS,
        is_global=st.booleans(),
        decay=st.sampled_from(mnemon.DecayPolicy),
        metadata=st.dictionaries(TEXTS, VALUES, max_size=3),
    )
)
def test_a_memory_comes_back_with_its_types(memory: Memory) -> None:
    sent = records.memory_to_pb(memory)
    back = read(Memory, pb.Memory.FromString(sent.SerializeToString()))

    # Confidence is set by the server.
    assert (back.confidence, memory.confidence) == (0.0, 1.0)
    assert {**back.to_dict(), "confidence": 1.0} == memory.to_dict()
    assert [type(back.metadata[key]) for key in memory.metadata] == [type(value) for value in memory.metadata.values()]


def test_the_fields_set_by_the_server_are_read() -> None:
    sent = pb.Memory(memory_id="m-1", content="text", confidence=0.25, revision=3)
    for field in ("create_time", "update_time", "reinforce_time", "delete_time"):
        getattr(sent, field).FromDatetime(NOON)

    memory = read(Memory, sent)

    assert (memory.memory_id, memory.confidence, memory.revision, memory.decay) == ("m-1", 0.25, 3, "stable")
    assert memory.create_time == memory.update_time == memory.reinforce_time == memory.delete_time == NOON
    assert read(Memory, pb.Memory(content="text")).reinforce_time is None


def test_a_decay_policy_of_a_later_server_is_read_by_its_number() -> None:
    assert read(Memory, pb.Memory(decay_policy=9)).decay == "9"  # type: ignore[arg-type]


def test_remember_sends_its_arguments_and_returns_the_stored_memory() -> None:
    with scripted_server(stored) as (address, server), Client(address) as client:
        memory = client.remember(
            "Ada likes tea.",
            type="preference",
            user="ada",
            is_global=True,
            decay="reinforceable",
            metadata={"n": 5},
            embedding=[0.5, 1],
            ack="searchable",
        )

    [request] = server.requests
    assert list(request.embedding) == [0.5, 1.0]
    assert request.ack == common_pb2.ACK_LEVEL_SEARCHABLE
    assert memory == Memory(
        "Ada likes tea.",
        memory_id="m-1",
        type="preference",
        user="ada",
        is_global=True,
        decay="reinforceable",
        metadata={"n": 5},
        revision=1,
    )


def _writes(client: Client) -> Iterator[Any]:
    yield lambda: client.remember("text")
    yield lambda: client.memories.update("m-1", content="text")
    yield lambda: client.memories.reinforce("m-1")
    yield lambda: client.memories.delete("m-1")
    yield lambda: client.memories.undelete("m-1")
    yield lambda: client.memories.purge(type="x")


@pytest.mark.parametrize(
    ("number", "response"),
    [
        (0, pb.CreateMemoryResponse()),
        (1, pb.UpdateMemoryResponse()),
        (2, pb.ReinforceMemoryResponse()),
        (3, pb.DeleteMemoryResponse()),
        (4, pb.UndeleteMemoryResponse()),
        (5, pb.PurgeMemoriesResponse()),
    ],
)
def test_a_retried_write_has_the_same_request_id(number: int, response: Any) -> None:
    with scripted_server(UNAVAILABLE, lambda *_: response) as (address, server), Client(address) as client:
        list(_writes(client))[number]()

    first, again = server.requests
    assert first.request_id == again.request_id != ""


def test_two_writes_have_two_request_ids_unless_the_caller_names_one() -> None:
    with scripted_server(stored) as (address, server), Client(address) as client:
        for request_id in (None, None, "mine", "mine"):
            client.remember("text", request_id=request_id)

    ids = [request.request_id for request in server.requests]
    assert ids[2:] == ["mine", "mine"]
    assert len({*ids}) == 3


def test_an_update_names_only_what_was_given() -> None:
    with scripted_server(lambda *_: pb.UpdateMemoryResponse()) as (address, server), Client(address) as client:
        client.memories.update("m-1", content="new", agent="", is_global=False, decay="contextual", expected_revision=4)
        client.memories.update("m-1", metadata={})
        client.memories.update("m-1", set_metadata={"topic": "tea"}, remove_metadata=["year"])

    fields, whole, keys = server.requests
    assert set(fields.update_mask.paths) == {"content", "scope.agent", "is_global", "decay_policy"}
    assert (fields.memory.memory_id, fields.memory.content, fields.expected_revision) == ("m-1", "new", 4)
    assert fields.memory.decay_policy == pb.DECAY_POLICY_CONTEXTUAL
    assert list(whole.update_mask.paths) == ["metadata"]
    assert not whole.memory.metadata
    assert (list(keys.update_mask.paths), list(keys.remove_metadata)) == ([], ["year"])
    assert {key: value.string_value for key, value in keys.set_metadata.items()} == {"topic": "tea"}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({}, "update_mask"),
        ({"metadata": {}, "set_metadata": {"a": 1}}, "set_metadata"),
        ({"metadata": {}, "remove_metadata": ["a"]}, "remove_metadata"),
        ({"set_metadata": {"a": 1}, "remove_metadata": ["a"]}, "set_metadata.a"),
        ({"remove_metadata": "topic"}, "remove_metadata"),
        ({"decay": "never"}, "decay"),
        ({"content": "\ud800"}, "content"),
        ({"content": "x", "embedding": []}, "embedding"),
        ({"content": "x", "embedding": ["a"]}, "embedding"),
        ({"is_global": 1}, "is_global"),
    ],
)
def test_a_contradictory_update_is_refused_and_the_argument_named(changes: dict[str, Any], field: str) -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(mnemon.InvalidArgumentError) as raised:
        client.memories.update("m-1", **changes)

    assert raised.value.violations[0].field == field


def test_recall_sends_every_argument() -> None:
    with scripted_server(lambda *_: pb.SearchMemoriesResponse()) as (address, server), Client(address) as client:
        client.memories.search("tea")
        client.memories.search(
            vector=[1.0, 0.0],
            limit=3,
            min_confidence=0.0,
            mode="vector",
            min_score=0.5,
            view="ids",
            explain=True,
            type="preference",
        )

    plain, full = server.requests
    assert (plain.query, plain.limit, plain.mode) == ("tea", 10, 0)
    assert plain.filter == pb.MemoryFilter(scope={}, min_confidence=0.3)
    assert (full.query, list(full.vector), full.limit, full.min_score, full.explain) == ("", [1.0, 0.0], 3, 0.5, True)
    assert full.filter.HasField("min_confidence") and full.filter.min_confidence == 0.0
    assert full.view == common_pb2.VIEW_IDS
    assert full.mode == common_pb2.SEARCH_MODE_VECTOR
    assert full.filter.type == "preference"


def _found(*_: Any) -> pb.SearchMemoriesResponse:
    explanation = pb.MatchExplanation(
        parts=[pb.ScorePart(name="vector", score=0.5, weight=0.6, contribution=0.3)],
        matched_terms=["tea"],
        confidence="fresh",
        passage_start=1,
        passage_end=4,
    )
    match = pb.MemoryMatch(
        memory=pb.Memory(memory_id="m-1", content="Tea.", confidence=0.9, metadata={}),
        score={"relevance": 0.5, "vector": 0.0},
        distance=1.0,
        explanation=explanation,
    )
    diagnostics = common_pb2.SearchDiagnostics(mode=common_pb2.SEARCH_MODE_HYBRID, exact=True, total_candidates=7)
    less = pb.MemoryMatch(score={"relevance": 0.25})
    return pb.SearchMemoriesResponse(results=[match, less], diagnostics=diagnostics)


def test_an_answer_is_a_sequence_of_its_results_with_diagnostics() -> None:
    with scripted_server(_found) as (address, _), Client(address) as client:
        answer = client.memories.search("tea")

    first, second = answer
    assert (len(answer), answer[0], answer[1:]) == (2, first, (second,))
    assert (first.memory_id, first.content, first.confidence, first.score) == ("m-1", "Tea.", 0.9, 0.5)
    assert (first.similarity, first.distance, first.keyword_score) == (0.0, 1.0, None)
    assert (second.similarity, second.explanation) == (None, None)
    assert first.explanation == mnemon.MatchExplanation(
        (mnemon.ScorePart("vector", 0.5, 0.6, 0.3),), ("tea",), "fresh", 1, 4
    )
    assert (answer.diagnostics.mode, answer.diagnostics.exact) == (mnemon.SearchMode.HYBRID, True)
    written = json.loads(answer.to_json())
    assert written["results"][0]["memory_id"] == "m-1"
    assert written["results"][0]["explanation"]["parts"][0]["name"] == "vector"


def test_a_list_reads_every_page_with_the_same_filter() -> None:
    def page(request: pb.ListMemoriesRequest, context: grpc.ServicerContext) -> pb.ListMemoriesResponse:
        number = int(request.page_token or 0)
        following = str(number + 1) if number < 2 else ""
        return pb.ListMemoriesResponse(memories=[pb.Memory(memory_id=f"m-{number}")], next_page_token=following)

    with scripted_server(page) as (address, server), Client(address) as client:
        found = [memory.memory_id for memory in client.memories.list(type="x", show_deleted=True, page_size=1)]

    assert found == ["m-0", "m-1", "m-2"]
    assert {(each.filter.type, each.show_deleted, each.page_size) for each in server.requests} == {("x", True, 1)}


def test_a_forecast_requests_every_page_for_the_same_time() -> None:
    def page(request: pb.ForecastMemoriesRequest, context: grpc.ServicerContext) -> pb.ForecastMemoriesResponse:
        forecast = pb.MemoryForecast(memory=pb.Memory(memory_id="m"), confidence_then=0.125)
        forecast.fade_time.FromDatetime(NOON)
        return pb.ForecastMemoriesResponse(forecasts=[forecast], next_page_token="" if request.page_token else "next")

    before = datetime.now(UTC)
    with scripted_server(page) as (address, server), Client(address) as client:
        found = list(client.memories.forecast(timedelta(days=30), user="ada"))

    assert [(each.memory.memory_id, each.confidence_then, each.fade_time) for each in found] == [("m", 0.125, NOON)] * 2
    first, second = (request.by_time.ToDatetime(UTC) for request in server.requests)
    assert first == second
    assert before <= first - timedelta(days=30) <= datetime.now(UTC)
    assert {request.filter.scope.user for request in server.requests} == {"ada"}


@pytest.mark.parametrize("by", [datetime(2026, 5, 1), "2026-05-01", None])
def test_a_forecast_needs_a_time_with_a_zone(by: Any) -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(mnemon.InvalidArgumentError, match="time zone") as raised:
        list(client.memories.forecast(by))

    assert raised.value.violations[0].field == "by"


@pytest.mark.parametrize(
    ("state", "word"),
    [(0, "unknown"), (1, "starting"), (2, "healthy"), (3, "unhealthy"), (4, "unhealthy"), (9, "unknown")],
)
def test_a_status_is_one_of_the_known_values(state: Any, word: str) -> None:
    with scripted_server(lambda *_: pb.GetStatusResponse(state=state)) as (address, _), Client(address) as client:
        assert client.memories.status().status == word


def test_a_bulk_keeps_the_order_and_a_bad_memory_fails_alone() -> None:
    items: list[Any] = ["one", Memory("two", user="ada"), "\ud800", 3, ("four", [0.5]), (Memory("five"), [])]
    with scripted_server(all_stored) as (address, server), Client(address) as client:
        results = list(client.memories.add_many(items, scope=mnemon.Scope(user="bob", agent="a")))

    assert [result.position for result in results] == list(range(6))
    assert [result.memory_id for result in results] == ["id of one", "id of two", "", "", "id of four", ""]
    assert [type(result.error) for result in results[2:4]] == [mnemon.InvalidArgumentError] * 2
    one, two, four = server.requests[0].requests
    assert (one.memory.scope.user, one.memory.scope.agent) == ("bob", "a")
    assert (two.memory.scope.user, two.memory.scope.agent) == ("ada", "")
    assert list(four.embedding) == [0.5]


def test_an_item_refused_by_the_server_has_its_error() -> None:
    error = common_pb2.ItemError(
        code=3, message="content: must not be blank", reason=errors_pb2.ERROR_REASON_INVALID_ARGUMENT
    )
    line = pb.BulkCreateMemoriesResponse(results=[pb.CreateMemoryResult(error=error)])
    with scripted_server(lambda *_: line) as (address, _), Client(address) as client:
        [result] = client.memories.add_many([" "])

    assert isinstance(result.error, mnemon.InvalidArgumentError)
    assert result.to_dict()["error"]["message"] == "content: must not be blank"


def test_a_broken_bulk_is_resumed_with_the_same_request_ids() -> None:
    texts = [f"text {number}" for number in range(3 * BATCH_ITEMS_MAX)]
    with scripted_server(all_stored, BROKEN, all_stored) as (address, server), Client(address) as client:
        results = list(client.memories.add_many(texts))

    assert [result.memory_id for result in results] == [f"id of {text}" for text in texts]
    assert [result.position for result in results] == list(range(len(texts)))
    assert server.streams == 2
    ids: dict[str, set[str]] = {}
    for request in server.requests:
        for each in request.requests:
            ids.setdefault(each.memory.content, set()).add(each.request_id)
    assert all(len(found) == 1 for found in ids.values())
    assert len(set.union(*ids.values())) == len(texts)


def test_a_missing_memory_is_not_found() -> None:
    line = failing(grpc.StatusCode.NOT_FOUND, "no such memory", reason="MEMORY_NOT_FOUND")
    with (
        scripted_server(line) as (address, _),
        Client(address) as client,
        pytest.raises(mnemon.MemoryNotFoundError, match="no such memory"),
    ):
        client.memories.get("m-1")


def test_a_memory_can_be_sent_as_it_was_read() -> None:
    read = Memory("text", memory_id="m-1", confidence=0.5, revision=7, create_time=NOON)
    request = records.create_memory_like(read, scope=None, ack="durable")

    assert (request.memory.content, request.memory.revision, request.memory.confidence) == ("text", 0, 0.0)
