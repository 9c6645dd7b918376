"""Watching through a real server: no change is missed, whatever happens to the connection, the server or the reader."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from mnemon import (
    AsyncClient,
    Change,
    ChangeType,
    Client,
    CursorExpiredError,
    InvalidArgumentError,
    InvalidCursorError,
    Memory,
    Scope,
    ServerUnreachableError,
    _channel,
)
from mnemon.v1 import changes_pb2 as pb
from mnemon.v1.changes_pb2_grpc import ChangeServiceStub

from tests.support.cutting_proxy import CuttingProxy
from tests.support.server import (
    Connection,
    reason,
    server_process,
    stream_end,
    until,
    wait_until,
    whole_server,
)
from tests.support.watch_trial import WatchTrial

LOCAL = ("--knowledge-store-backend", "local")
SMALL_WINDOW: list[tuple[str, str | int]] = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1 << 16)]
"""Left to itself, gRPC takes in many megabytes for a reader that does not read."""


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address) as client:
        yield client


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[Connection]:
    async with whole_server(tmp_path, stream_write_timeout_s=0.5) as connection:
        yield connection


def test_a_watch_gets_what_is_written_in_its_block(client: Client) -> None:
    with client.watch() as watch:
        client.documents.put("note", "Ada prefers window seats.", scope=Scope(user="ada"), request_id="r-1")
        memory = client.remember("Ada prefers tea.", user="ada")
        client.memories.update(memory.memory_id, content="Ada prefers green tea.")
        client.documents.delete("note")

        changes = [next(watch) for _ in range(4)]

    assert [(change.type, change.record_id) for change in changes] == [
        (ChangeType.KNOWLEDGE_INDEXED, "note"),
        (ChangeType.MEMORY_CREATED, memory.memory_id),
        (ChangeType.MEMORY_UPDATED, memory.memory_id),
        (ChangeType.KNOWLEDGE_DELETED, "note"),
    ]
    assert changes[0].request_id == "r-1"
    assert changes[0].scope == Scope(user="ada")
    assert changes[2].revision == 2
    assert "content" in changes[2].changed_fields
    assert [change.sequence for change in changes] == sorted({change.sequence for change in changes})


def test_a_watch_can_begin_at_a_time_a_cursor_or_the_beginning(client: Client) -> None:
    client.documents.put("early", "text")
    between = datetime.now(UTC)
    page = client.changes.list_page(between - timedelta(days=1), page_size=1000)
    client.documents.put("late", "text")

    with client.watch("earliest") as watch:
        assert next(watch) == next(client.changes.list())
    with client.watch(between) as watch:
        assert next(watch).record_id == "late"
    with client.watch(page.cursor) as watch:
        assert next(watch).record_id == "late"
    assert [change.record_id for change in client.changes.list(page.cursor)] == ["late"]


def test_filters_and_the_full_view_reach_the_server(client: Client) -> None:
    with client.watch(types=["memory:created"], scope=Scope(user="grace"), full=True) as watch:
        client.documents.put("hers", "text", scope=Scope(user="grace"))
        client.remember("of somebody else", user="ada")
        memory = client.remember("Grace reads at night.", user="grace")
        change = next(watch)

    assert isinstance(change.record, Memory)
    assert (change.record_id, change.record.content) == (memory.memory_id, "Grace reads at night.")
    found = list(client.changes.list(ids=[memory.memory_id]))
    assert [(each.record_id, each.record) for each in found] == [(memory.memory_id, None)]


def test_invalid_arguments_are_refused_and_the_field_is_named(client: Client) -> None:
    with pytest.raises(InvalidCursorError) as caught:
        next(client.watch("no-cursor"))
    assert [violation.field for violation in caught.value.violations] == ["since"]
    with pytest.raises(InvalidCursorError):
        list(client.changes.list("no-cursor"))
    with pytest.raises(InvalidArgumentError, match="start_time: must not be in the future"):
        next(client.watch(datetime.now(UTC) + timedelta(days=1)))
    with pytest.raises(InvalidArgumentError, match=r"types: must be among 'knowledge:indexed', .*, not 'memory'"):
        client.watch(types=["memory"])
    with pytest.raises(InvalidArgumentError, match="ids: must be several values, such as a list"):
        client.watch(ids="abc")
    with pytest.raises(InvalidArgumentError, match="heartbeat_interval"):
        next(client.watch(heartbeat=1))


def test_closing_the_client_ends_a_watch_that_waits_in_another_thread(address: str) -> None:
    client = Client(address)
    seen: list[Change] = []
    watch = client.watch("earliest")
    reader = threading.Thread(target=lambda: seen.extend(watch))
    client.documents.put("closing", "text")
    reader.start()
    wait_until(lambda: seen and watch.caught_up)
    client.close()
    reader.join(60)

    assert not reader.is_alive()
    with pytest.raises(RuntimeError, match="the client is closed"):
        client.watch()


def test_a_server_that_was_never_reached_is_reported_soon() -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(ServerUnreachableError):
        next(client.watch())


def test_a_cursor_of_events_that_were_trimmed_has_expired(tmp_path: Path) -> None:
    with server_process(tmp_path, *LOCAL) as running, Client(running.address()) as client:
        pages = []
        for name in "abcdef":
            client.documents.put(name, "text")
            pages.append(client.changes.list_page(page_size=1000))
        running.end()
    with (
        server_process(tmp_path, *LOCAL, "--change-retention-max", "3") as running,
        Client(running.address()) as client,
    ):
        # It trims when it opens the vault, in the background.
        wait_until(lambda: len(list(client.changes.list())) == 3)

        for page in pages[:2]:
            with pytest.raises(CursorExpiredError):
                next(client.watch(page.cursor))
        assert [change.record_id for change in client.changes.list(pages[2].cursor)] == ["d", "e", "f"]
        with client.watch("earliest") as watch:
            assert [next(watch).record_id for _ in range(3)] == ["d", "e", "f"]


async def test_an_async_watch_ends_on_close_and_when_its_reader_is_cancelled(address: str) -> None:
    async with AsyncClient(address) as client:
        await client.documents.put("async", "text")
        watch, other = client.watch("earliest"), client.watch("earliest")
        seen: list[Change] = []

        async def follow(changes: Any) -> str:
            async for change in changes:
                seen.append(change)  # noqa: PERF401 - it must be seen while the watch goes on
            return "ended"

        reading, cancelled = asyncio.create_task(follow(watch)), asyncio.create_task(follow(other))
        await until(lambda: seen and watch.caught_up and other.caught_up)
        await watch.close()
        cancelled.cancel()

        assert await reading == "ended"
        with pytest.raises(asyncio.CancelledError):
            await cancelled


def test_a_connection_that_no_longer_carries_data_is_abandoned(address: str) -> None:
    with (
        CuttingProxy(address) as proxy,
        Client(proxy.address) as near,
        Client(address) as client,
        near.watch(heartbeat=5) as watch,
    ):
        client.documents.put("before", "text")
        assert next(watch).record_id == "before"
        proxy.swallow()
        client.documents.put("after", "text")

        assert next(watch).record_id == "after"


async def test_a_stalled_reader_is_ended_in_time_and_can_resume(connection: Connection) -> None:
    address = str(connection.server.address)
    async with AsyncClient(address) as client, grpc.aio.insecure_channel(address, SMALL_WINDOW) as channel:
        await fill(client)
        stub: Any = ChangeServiceStub(channel)
        began = asyncio.get_running_loop().time()
        call = stub.WatchChanges(pb.WatchChangesRequest(earliest=True, view=pb.CHANGE_VIEW_FULL))
        started = await call.read()
        await until(lambda: connection.server.open_streams == 0)
        took = asyncio.get_running_loop().time() - began
        messages, error = await stream_end(call)

        assert (error.code(), reason(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "SLOW_READER")
        assert took >= 0.5
        assert started.HasField("started")
        seen = [change.record_id for message in messages for change in message.batch.changes]
        rest = [
            change.record_id
            async for change in client.changes.list(messages[-1].cursor if messages else started.cursor)
        ]
        assert seen + rest == [change.record_id async for change in client.changes.list()]


async def test_the_clients_watch_survives_its_own_slowness(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_channel, "CHANNEL_OPTIONS", [*_channel.CHANNEL_OPTIONS, *SMALL_WINDOW])
    async with AsyncClient(str(connection.server.address)) as client:
        await fill(client)
        expected = [change async for change in client.changes.list(full=True)]
        async with client.watch("earliest", full=True) as watch:
            seen = [await anext(watch)]
            await until(lambda: connection.server.open_streams == 0)
            while len(seen) < len(expected):
                seen.append(await anext(watch))

        assert seen == expected


async def fill(client: AsyncClient) -> None:
    """Leaves more data than fits into the buffers between the server and a reader that reads nothing."""
    metadata = {f"key{i}": "x" * 60_000 for i in range(10)}
    for i in range(40):
        await client.documents.put(f"large-{i}", "text", metadata)


def test_watchers_disconnected_at_random_from_a_server_that_restarts_miss_nothing(tmp_path: Path) -> None:
    WatchTrial(tmp_path, seed=1).run(disconnects=15, restarts=2, report=lambda _: None)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_watchers_miss_nothing_in_two_hundred_disconnects_and_twenty_restarts(tmp_path: Path) -> None:
    WatchTrial(tmp_path, seed=2).run(disconnects=200, restarts=20, report=lambda _: None)
