"""Memories keep their types, changes name what they change, and a repeated write happens once."""

from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import mnemon
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemon import Client, Memory
from mnemon._messages import records
from mnemon._messages.translation import read
from mnemon.v1 import common_pb2
from mnemon.v1 import memory_pb2 as pb

from tests.unit.client.scripted_server import scripted_server

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


def test_a_decay_policy_of_a_later_server_is_read_by_its_number() -> None:
    assert read(Memory, pb.Memory(decay_policy=9)).decay == "9"  # type: ignore[arg-type]


def test_two_writes_have_two_request_ids_unless_the_caller_names_one() -> None:
    with scripted_server(stored) as (address, server), Client(address) as client:
        for request_id in (None, None, "mine", "mine"):
            client.remember("text", request_id=request_id)

    ids = [request.request_id for request in server.requests]
    assert ids[2:] == ["mine", "mine"]
    assert len({*ids}) == 3


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


def test_a_forecast_needs_a_time_with_a_zone() -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(mnemon.InvalidArgumentError, match="time zone") as raised:
        list(client.memories.forecast(datetime(2026, 5, 1)))

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


def test_a_memory_can_be_sent_as_it_was_read() -> None:
    read = Memory("text", memory_id="m-1", confidence=0.5, revision=7, create_time=NOON)
    request = records.create_memory_like(read, scope=None, ack="durable")

    assert (request.memory.content, request.memory.revision, request.memory.confidence) == ("text", 0, 0.0)
