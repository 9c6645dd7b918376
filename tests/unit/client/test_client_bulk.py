"""A bulk stream keeps order, lets a bad document fail alone, and resumes where it broke."""

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import mnemon
import pytest
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2
from mnemon._bulk import BATCH_BYTES_MAX, BATCH_ITEMS_MAX, BATCHES_IN_FLIGHT_MAX
from mnemon.v1 import knowledge_store_pb2 as pb

from tests.unit.client.scripted_server import BROKEN, failing, receipts, scripted_server, silent


def notes(count: int) -> list[tuple[str, str]]:
    return [(f"note-{number}", f"text {number}") for number in range(count)]


def test_results_come_in_the_order_of_the_documents() -> None:
    with scripted_server(receipts) as (address, store), mnemon.Client(address) as client:
        results = list(client.documents.put_many(notes(300)))

    assert [result.doc_id for result in results] == [f"note-{number}" for number in range(300)]
    assert all(result.receipt and result.error is None for result in results)
    assert store.streams == 1


def test_batches_are_bounded_by_count_and_by_bytes() -> None:
    large = [(f"large-{number}", "x" * 200_000) for number in range(5)]
    with scripted_server(receipts) as (address, store), mnemon.Client(address) as client:
        results = list(client.documents.put_many([*notes(130), *large]))

    assert len(results) == 135
    assert max(len(request.requests) for request in store.requests) == BATCH_ITEMS_MAX
    assert max(request.ByteSize() for request in store.requests) <= BATCH_BYTES_MAX + 4096


def test_the_documents_are_read_lazily() -> None:
    taken = 0

    def endless() -> Iterator[tuple[str, str]]:
        nonlocal taken
        while True:
            taken += 1
            yield f"note-{taken}", "text"

    with scripted_server(receipts) as (address, _), mnemon.Client(address) as client:
        results = client.documents.put_many(endless())
        first = next(results)
        results.close()

    assert first.doc_id == "note-1"
    assert taken <= BATCH_ITEMS_MAX * (BATCHES_IN_FLIGHT_MAX + 1)


def test_without_documents_no_stream_is_opened() -> None:
    with scripted_server(receipts) as (address, store), mnemon.Client(address) as client:
        assert list(client.documents.put_many([])) == []

    assert store.streams == 0


def test_a_document_that_cannot_be_sent_fails_alone_and_in_its_place() -> None:
    documents: list[Any] = [
        ("good", "text"),
        ("null", "text", {"topic": None}),
        ("surrogate", "\ud800"),
        ("huge", "x" * (17 << 20)),
        "not a document",
        mnemon.Document("fine", "text"),
    ]
    with scripted_server(receipts) as (address, _), mnemon.Client(address) as client:
        results = list(client.documents.put_many(documents))

    assert [result.doc_id for result in results] == ["good", "null", "surrogate", "huge", "not a document", "fine"]
    assert [type(result.error) for result in results] == [
        type(None),
        mnemon.InvalidArgumentError,
        mnemon.InvalidArgumentError,
        mnemon.MessageTooLargeError,
        mnemon.InvalidArgumentError,
        type(None),
    ]
    assert "metadata.topic" in str(results[1].error)


def test_a_broken_stream_is_resumed_with_the_same_request_ids() -> None:
    with scripted_server(receipts, BROKEN, BROKEN, receipts) as (address, store), mnemon.Client(address) as client:
        results = list(client.documents.put_many(notes(200)))

    assert [result.doc_id for result in results] == [doc_id for doc_id, _ in notes(200)]
    assert store.streams == 3
    ids: dict[str, set[str]] = {}
    for request in store.requests:
        for each in request.requests:
            ids.setdefault(each.document.doc_id, set()).add(each.request_id)
    assert all(len(found) == 1 for found in ids.values())
    assert len(set.union(*ids.values())) == 200


async def test_the_asyncio_client_resumes_too_and_reads_asynchronous_documents() -> None:
    async def documents() -> AsyncIterator[tuple[str, str]]:
        for note in notes(200):
            yield note

    with scripted_server(receipts, BROKEN, receipts) as (address, store):
        async with mnemon.AsyncClient(address) as client:
            results = [result async for result in client.documents.put_many(documents())]

    assert [result.doc_id for result in results] == [doc_id for doc_id, _ in notes(200)]
    assert store.streams == 2


@pytest.mark.parametrize("source_blocks_s", [0.0, 0.05])
async def test_the_asyncio_client_gets_the_servers_error_of_a_stream_that_it_was_writing_to(
    source_blocks_s: float,
) -> None:
    async def documents() -> AsyncIterator[tuple[str, str]]:
        for number, note in enumerate(notes(200)):
            if number == 100:
                time.sleep(source_blocks_s)  # noqa: ASYNC251 -- so that the next message meets a stream that has ended
            yield note

    for _ in range(10):
        with scripted_server(failing(grpc.StatusCode.PERMISSION_DENIED, "not you")) as (address, store):
            async with mnemon.AsyncClient(address) as client:
                with pytest.raises(mnemon.PermissionDeniedError, match="not you"):
                    [result async for result in client.documents.put_many(documents())]

        assert store.streams == 1


def test_a_stream_that_never_gets_an_answer_soon_gives_up() -> None:
    with (
        scripted_server(BROKEN) as (address, store),
        mnemon.Client(address) as client,
        pytest.raises(mnemon.UnavailableError, match="connection lost"),
    ):
        list(client.documents.put_many(notes(3)))

    assert store.streams == 4


def test_an_error_that_a_retry_cannot_fix_is_raised_at_once() -> None:
    line = failing(grpc.StatusCode.PERMISSION_DENIED, "not you")
    with (
        scripted_server(receipts, line) as (address, store),
        mnemon.Client(address) as client,
        pytest.raises(mnemon.PermissionDeniedError, match="not you"),
    ):
        list(client.documents.put_many(notes(100)))

    assert store.streams == 1


@pytest.mark.parametrize("reason", ["TOO_MANY_REQUESTS", "SLOW_READER"])
def test_a_throttled_stream_waits_as_told_and_continues(reason: str) -> None:
    retry = error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(nanos=10_000_000))
    line = failing(grpc.StatusCode.RESOURCE_EXHAUSTED, reason=reason, details=[retry])
    with scripted_server(line, receipts) as (address, _), mnemon.Client(address) as client:
        assert len(list(client.documents.put_many(notes(3)))) == 3


BUSY = failing(grpc.StatusCode.RESOURCE_EXHAUSTED, reason="TOO_MANY_REQUESTS")
LONG = error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=3_600))
BUSY_FOR_LONG = failing(grpc.StatusCode.RESOURCE_EXHAUSTED, reason="TOO_MANY_REQUESTS", details=[LONG])


def test_a_stream_that_a_busy_server_refuses_is_repeated_longer_than_a_broken_one() -> None:
    with scripted_server(*[BUSY] * 5, receipts) as (address, store), mnemon.Client(address) as client:
        assert len(list(client.documents.put_many(notes(3)))) == 3

    assert store.streams == 6


async def test_the_asyncio_client_repeats_it_too() -> None:
    with scripted_server(*[BUSY] * 5, receipts) as (address, store):
        async with mnemon.AsyncClient(address) as client:
            assert len([result async for result in client.documents.put_many(notes(3))]) == 3

    assert store.streams == 6


def test_a_server_that_stays_busy_is_reported_within_the_time_of_an_answer() -> None:
    with (
        scripted_server(BUSY, BUSY_FOR_LONG) as (address, store),
        mnemon.Client(address) as client,
        pytest.raises(mnemon.ResourceExhaustedError),
    ):
        list(client.documents.put_many(notes(3), timeout=60))

    assert store.streams == 2


def test_an_error_of_the_documents_reaches_the_caller() -> None:
    def documents() -> Iterator[tuple[str, str]]:
        yield from notes(70)
        raise mnemon.UnavailableError("the source is gone")

    with (
        scripted_server(receipts) as (address, store),
        mnemon.Client(address) as client,
        pytest.raises(mnemon.UnavailableError, match="the source is gone"),
    ):
        list(client.documents.put_many(documents()))

    assert store.streams <= 1


def test_the_client_does_not_wait_forever_for_a_silent_server() -> None:
    with (
        scripted_server(silent) as (address, _),
        mnemon.Client(address) as client,
        pytest.raises(mnemon.DeadlineExceededError, match=r"answered no batch within 0\.2 s"),
    ):
        list(client.documents.put_many(notes(3), timeout=0.2))


async def test_the_asyncio_client_does_not_wait_forever_either() -> None:
    with scripted_server(silent) as (address, _):
        async with mnemon.AsyncClient(address) as client:
            with pytest.raises(mnemon.DeadlineExceededError, match=r"answered no batch within 0\.2 s"):
                [result async for result in client.documents.put_many(notes(3), timeout=0.2)]


def test_an_answer_of_the_wrong_length_is_an_error_and_no_result_is_lost() -> None:
    def short(request: pb.BulkIndexDocumentsRequest, context: grpc.ServicerContext) -> pb.BulkIndexDocumentsResponse:
        return pb.BulkIndexDocumentsResponse(results=receipts(request, context).results[:1])

    with (
        scripted_server(short) as (address, _),
        mnemon.Client(address) as client,
        pytest.raises(mnemon.InternalError, match="fewer documents"),
    ):
        list(client.documents.put_many(notes(3)))
