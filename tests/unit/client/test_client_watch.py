"""How the client's watch behaves towards a server whose every message a test writes."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from mnemon import AsyncClient, Change, ChangeType, Client, CursorExpiredError, Scope, ServerUnreachableError
from mnemon.v1 import changes_pb2 as pb
from mnemon.v1 import common_pb2
from mnemon.v1.changes_pb2_grpc import ChangeServiceServicer, add_ChangeServiceServicer_to_server

from tests.unit.client.scripted_server import failing

Line = pb.WatchChangesResponse | Callable[[Any, grpc.ServicerContext], Any]


@dataclass
class ScriptedFeed(ChangeServiceServicer):
    """Each stream gets the next list of messages and then stays silent. A message that is a function is called."""

    streams: list[list[Line]]
    requests: list[pb.WatchChangesRequest] = field(default_factory=list)

    def WatchChanges(self, request: Any, context: grpc.ServicerContext) -> Iterator[pb.WatchChangesResponse]:  # noqa: N802
        self.requests.append(request)
        for line in self.streams[min(len(self.requests), len(self.streams)) - 1]:
            if isinstance(line, pb.WatchChangesResponse):
                yield line
            else:
                line(request, context)
                return
        gone = threading.Event()
        if context.add_callback(gone.set):
            gone.wait()


@contextmanager
def scripted_feed(*streams: list[Line]) -> Iterator[tuple[str, ScriptedFeed]]:
    server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
    feed = ScriptedFeed(list(streams))
    add_ChangeServiceServicer_to_server(feed, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}", feed
    finally:
        server.stop(0).wait()


def started(cursor: str = "c0", heartbeat_s: float = 30.0) -> pb.WatchChangesResponse:
    interval = Duration()
    interval.FromMilliseconds(int(heartbeat_s * 1000))
    return pb.WatchChangesResponse(cursor=cursor, started=pb.WatchStarted(heartbeat_interval=interval))


def batch(cursor: str, *sequences: int, caught_up: bool = False) -> pb.WatchChangesResponse:
    found = [pb.Change(sequence=each, record_id=f"r{each}", type=pb.CHANGE_TYPE_MEMORY_CREATED) for each in sequences]
    return pb.WatchChangesResponse(cursor=cursor, batch=pb.ChangeBatch(changes=found, caught_up=caught_up))


def progress(cursor: str) -> pb.WatchChangesResponse:
    return pb.WatchChangesResponse(cursor=cursor, progress=pb.WatchProgress(caught_up=True))


def ends_in_order(request: Any, context: grpc.ServicerContext) -> None:
    """The stream ends with OK."""


SHUTTING_DOWN = failing(grpc.StatusCode.UNAVAILABLE, reason="NOT_SERVING")
SLOW_READER = failing(grpc.StatusCode.RESOURCE_EXHAUSTED, reason="SLOW_READER")


def sequences(changes: list[Change]) -> list[int]:
    return [change.sequence for change in changes]


def test_every_field_of_an_event_is_read() -> None:
    change = pb.Change(
        change_id="e",
        sequence=7,
        commit_id="k",
        type=pb.CHANGE_TYPE_MEMORY_UPDATED,
        record_id="m",
        revision=3,
        scope=common_pb2.Scope(user="u", project="p"),
        request_id="r",
        changed_fields=["content", "metadata.x"],
    )
    change.commit_time.FromDatetime(datetime(2026, 2, 28, 23, 59, 59, 123456, tzinfo=UTC))
    newer = pb.Change(sequence=8, record_id="n")
    newer.type = 99  # type: ignore[assignment]
    with (
        scripted_feed([started(), pb.WatchChangesResponse(batch=pb.ChangeBatch(changes=[change, newer]))]) as (
            address,
            _,
        ),
        Client(address) as client,
        client.watch() as watch,
    ):
        first, second = next(watch), next(watch)

    assert first == Change(
        change_id="e",
        sequence=7,
        commit_id="k",
        commit_time=datetime(2026, 2, 28, 23, 59, 59, 123456, tzinfo=UTC),
        type=ChangeType.MEMORY_UPDATED,
        record_id="m",
        revision=3,
        scope=Scope(user="u", project="p"),
        request_id="r",
        changed_fields=("content", "metadata.x"),
    )
    assert first.to_dict()["commit_time"] == "2026-02-28T23:59:59.123456+00:00"
    assert (second.type, second.commit_time, second.scope) == (ChangeType.UNKNOWN, None, Scope())


@pytest.mark.parametrize("end", [SHUTTING_DOWN, SLOW_READER, ends_in_order, failing(grpc.StatusCode.INTERNAL)])
def test_a_stream_that_ends_is_resumed_after_its_last_message_without_duplicates(end: Line) -> None:
    first = [started(), batch("c1", 1, 2), progress("c2"), end]
    second = [started("c2"), batch("c3", 2, 3, 5), batch("c4", 5), batch("c5", 6)]
    with (
        scripted_feed(first, second) as (address, feed),
        Client(address) as client,
        client.watch("earliest", ids=["x"]) as watch,
    ):
        changes = [next(watch) for _ in range(5)]

    assert sequences(changes) == [1, 2, 3, 5, 6]
    assert feed.requests[0].earliest
    assert [request.cursor for request in feed.requests] == ["", "c2"]
    assert all(request.filter.record_ids == ["x"] for request in feed.requests)


async def test_the_async_watch_resumes_in_the_same_way() -> None:
    first = [started(), batch("c1", 1, 2), SHUTTING_DOWN]
    second = [started("c1"), batch("c2", 2, 3), ends_in_order]
    third = [started("c2"), progress("c3"), batch("c4", 4)]
    with scripted_feed(first, second, third) as (address, feed):
        async with AsyncClient(address) as client, client.watch() as watch:
            changes = [await anext(watch) for _ in range(4)]

    assert sequences(changes) == [1, 2, 3, 4]
    assert [request.WhichOneof("start") for request in feed.requests] == [None, "cursor", "cursor"]
    assert [request.cursor for request in feed.requests] == ["", "c1", "c2"]


def test_the_cursor_is_never_ahead_of_the_delivered_changes() -> None:
    with (
        scripted_feed([started(), batch("c1", 1, 2), batch("c2", 3, 4, caught_up=True)]) as (address, _),
        Client(address) as client,
        client.watch() as watch,
    ):
        cursors = [(watch.cursor, watch.caught_up)]
        for _ in range(4):
            next(watch)
            cursors.append((watch.cursor, watch.caught_up))

    assert cursors == [("c0", False), ("c0", False), ("c1", False), ("c1", False), ("c2", True)]


SILENT, OTHER = [started(heartbeat_s=0.4), batch("c1", 1)], [started("c1"), batch("c2", 1, 2)]
"""The second has both changes: if the machine stalls, the client may leave the first before it has read anything."""


def test_a_silent_server_is_left_after_two_and_a_half_heartbeats() -> None:
    with scripted_feed(SILENT, OTHER) as (address, feed), Client(address) as client, client.watch() as watch:
        assert sequences([next(watch), next(watch)]) == [1, 2]

    assert len(feed.requests) > 1


async def test_the_async_watch_leaves_a_silent_server_too() -> None:
    with scripted_feed(SILENT, OTHER) as (address, feed):
        async with AsyncClient(address) as client, client.watch() as watch:
            assert sequences([await anext(watch), await anext(watch)]) == [1, 2]

    assert len(feed.requests) > 1


def test_the_readers_own_time_does_not_count_as_silence() -> None:
    with (
        scripted_feed([started(heartbeat_s=1.0), batch("c1", 1, 2), batch("c2", 3)]) as (address, feed),
        Client(address) as client,
        client.watch() as watch,
    ):
        first = next(watch)
        # Longer than the permitted silence, while messages are ready.
        threading.Event().wait(2.7)
        rest = [next(watch), next(watch)]

    assert sequences([first, *rest]) == [1, 2, 3]
    assert len(feed.requests) == 1


def test_an_error_that_a_retry_cannot_fix_is_raised_at_once() -> None:
    expired = failing(grpc.StatusCode.OUT_OF_RANGE, "gone", reason="CURSOR_EXPIRED")
    with (
        scripted_feed([started(), batch("c1", 1), SHUTTING_DOWN], [expired]) as (address, feed),
        Client(address) as client,
        client.watch("c") as watch,
    ):
        assert next(watch).sequence == 1
        with pytest.raises(CursorExpiredError, match="gone"):
            next(watch)
        assert next(watch, None) is None

    assert [request.cursor for request in feed.requests] == ["c", "c1"]


def test_a_server_that_never_confirmed_a_watch_is_tried_four_times() -> None:
    with scripted_feed([SHUTTING_DOWN]) as (address, feed), Client(address) as client:
        with pytest.raises(Exception, match="no"):
            next(client.watch())
        assert len(feed.requests) == 4
    with Client(address) as client, pytest.raises(ServerUnreachableError):
        next(client.watch())


def test_leaving_the_block_ends_the_watch() -> None:
    with scripted_feed([started(), batch("c1", 1)]) as (address, _), Client(address) as client:
        with client.watch() as watch:
            pass
        assert next(watch, None) is None
        with pytest.raises(RuntimeError, match="has ended"), watch:
            pass


def test_breaking_out_of_a_loop_leaves_no_stream_behind() -> None:
    reached, ended = threading.Event(), threading.Event()

    def tell_the_end(request: Any, context: grpc.ServicerContext) -> None:
        assert context.add_callback(ended.set)
        reached.set()
        ended.wait(60)

    with scripted_feed([started(), batch("c1", 1, 2), tell_the_end]) as (address, _), Client(address) as client:
        for _ in client.watch():
            assert reached.wait(60)
            break

        assert ended.wait(60)


async def test_an_async_watch_whose_client_closes_ends() -> None:
    with scripted_feed([started(), batch("c1", 1)]) as (address, _):
        client = AsyncClient(address)
        watch = client.watch()
        assert (await anext(watch)).sequence == 1
        reading = asyncio.ensure_future(anext(watch, None))
        await asyncio.sleep(0)
        await client.close()

        assert await reading is None
