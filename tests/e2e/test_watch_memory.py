"""The server's memory stays flat however many watchers read too slowly, and the others are still served."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from mnemon import AsyncClient, Document, Scope
from mnemon.v1 import changes_pb2 as pb
from mnemon.v1.changes_pb2_grpc import ChangeServiceStub

from tests.support.server import reason, server_process, until

DOCUMENTS = 20
LARGE_DOCUMENTS = 8
SCOPE = Scope(*(["x" * 250] * 5))
"""Makes a change nearly two kilobytes, so that a reader that stalls has soon left much unread."""
STALL_S = 2.5
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
SMALL_WINDOW = [*OWN_CONNECTION, ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1 << 16)]
"""Left to itself, gRPC takes in megabytes for a reader that does not read."""
SLOW_READER = (grpc.StatusCode.RESOURCE_EXHAUSTED, "SLOW_READER")
CAUGHT_UP = (grpc.StatusCode.OK, "")
GROWTH_KIB_MAX = 48 << 10
# 24 MiB are shared, and the C library keeps some more: up to 65 MiB were seen in all.
UNREAD_KIB_MAX = 80 << 10


@dataclass
class Crowd:
    """Watchers of one server, half of which read nothing."""

    stub: Any
    stalled: Any
    """The same service, on a connection of its own."""
    seen: list[list[int]] = field(default_factory=list)
    ended_slow: int = 0
    _tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    async def gather(self, count: int) -> None:
        """Starts them. When this returns, the half that reads has received `started`."""
        self.seen = [[] for _ in range(count // 2)]
        ready = asyncio.Semaphore(0)
        for sequences in self.seen:
            self._tasks.append(asyncio.create_task(self._follow(sequences, ready)))
            self._tasks.append(asyncio.create_task(self._stall()))
        for _ in self.seen:
            await ready.acquire()

    async def leave(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, sequences: list[int], ready: asyncio.Semaphore) -> None:
        async for message in self.stub.WatchChanges(pb.WatchChangesRequest()):
            if message.HasField("started"):
                ready.release()
            sequences += [change.sequence for change in message.batch.changes]

    async def _stall(self) -> None:
        """Reads one message and then nothing until the server cuts it off, again and again."""
        while True:
            call = self.stalled.WatchChanges(pb.WatchChangesRequest(earliest=True, max_batch_size=10))
            with suppress(aio.AioRpcError):
                await call.read()
                await asyncio.sleep(STALL_S)
                while await call.read() is not aio.EOF:
                    pass
            self.ended_slow += await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def overload(tmp_path: Path, *, watchers: int, writes: int) -> None:
    with server_process(
        tmp_path, "--knowledge-store-backend", "local", "--stream-write-timeout-s", "1", "--streams-max", "512"
    ) as server:
        async with (
            AsyncClient(server.address()) as client,
            aio.insecure_channel(server.address(), OWN_CONNECTION) as channel,
            aio.insecure_channel(server.address(), SMALL_WINDOW) as other_channel,
        ):
            crowd = Crowd(ChangeServiceStub(channel), ChangeServiceStub(other_channel))
            await write(client, DOCUMENTS * 10)
            await crowd.gather(watchers)
            try:
                await write(client, writes // 10)
                await until(lambda: crowd.ended_slow >= watchers // 2, 60)
                before = resident_kib(server.process.pid)
                await write(client, writes)
                expected = [change.sequence async for change in client.changes.list()][-(writes + writes // 10) :]
                await until(lambda: all(len(each) == len(expected) for each in crowd.seen), 60)
                grown = resident_kib(server.process.pid) - before
            finally:
                await crowd.leave()

        assert all(each == expected for each in crowd.seen)
        assert grown < GROWTH_KIB_MAX, f"{grown} KiB"


async def test_watchers_of_large_records_that_read_nothing_share_a_bounded_memory(tmp_path: Path) -> None:
    watchers, write_timeout_s = 120, 1
    with server_process(
        tmp_path, "--knowledge-store-backend", "local", "--stream-write-timeout-s", str(write_timeout_s)
    ) as server:
        async with (
            AsyncClient(server.address()) as client,
            aio.insecure_channel(server.address(), SMALL_WINDOW) as channel,
        ):
            assert all([r.receipt is not None async for r in client.documents.put_many(large_documents())])
            before = resident_kib(server.process.pid)
            # Each asks for something else, so that they cannot share what is sent.
            watches = [ChangeServiceStub(channel).WatchChanges(large_changes(1000 - i)) for i in range(watchers)]
            for watch in watches:
                first = await watch.read()
                assert isinstance(first, pb.WatchChangesResponse)
                assert first.HasField("started")
            most = await most_resident(server.process.pid, 8 * write_timeout_s)
            assert most - before < UNREAD_KIB_MAX, f"{most - before} KiB"
            ends = {await end_or_last_change(watch) for watch in watches}
            assert SLOW_READER in ends
            assert ends <= {SLOW_READER, CAUGHT_UP}
            await until(lambda: resident_kib(server.process.pid) - before < watchers * 512)


async def test_a_watcher_that_reads_gets_everything_beside_those_that_do_not(tmp_path: Path) -> None:
    with server_process(tmp_path, "--knowledge-store-backend", "local") as server:
        async with (
            AsyncClient(server.address()) as client,
            aio.insecure_channel(server.address(), SMALL_WINDOW) as channel,
            aio.insecure_channel(server.address(), OWN_CONNECTION) as other_channel,
        ):
            assert all([r.receipt is not None async for r in client.documents.put_many(large_documents())])
            stalled = [ChangeServiceStub(channel).WatchChanges(large_changes(1000)) for _ in range(60)]
            for watch in stalled:
                await watch.read()
            watch = ChangeServiceStub(other_channel).WatchChanges(large_changes(1000))
            assert await end_or_last_change(watch) == CAUGHT_UP


def large_changes(batch_size: int) -> pb.WatchChangesRequest:
    return pb.WatchChangesRequest(earliest=True, view=pb.CHANGE_VIEW_FULL, max_batch_size=batch_size)


def large_documents() -> Iterator[Document]:
    for i in range(LARGE_DOCUMENTS):
        yield Document(f"large-{i}", f"large {i} " + "z" * 700_000, scope=SCOPE)


async def most_resident(pid: int, seconds: float) -> int:
    """The peak memory of the process during a period, in KiB."""
    loop = asyncio.get_running_loop()
    most, end = 0, loop.time() + seconds
    while loop.time() < end:
        most = max(most, resident_kib(pid))
        await asyncio.sleep(0.02)
    return most


async def end_or_last_change(watch: Any) -> tuple[grpc.StatusCode, str]:
    """How the watch ended. On a busy machine, one that is read before it is cut off gets every change instead."""
    left = LARGE_DOCUMENTS
    try:
        while left:
            left -= len((await watch.read()).batch.changes)
    except aio.AioRpcError as error:
        return error.code(), reason(error)
    watch.cancel()
    return CAUGHT_UP


async def write(client: AsyncClient, count: int) -> None:
    """Changes the same few documents repeatedly, so that only the log grows."""

    def documents() -> Any:
        for i in range(count):
            yield Document(f"doc-{i % DOCUMENTS}", f"text {i // DOCUMENTS % 2}", scope=SCOPE)

    assert all([result.receipt is not None async for result in client.documents.put_many(documents())])


def resident_kib(pid: int) -> int:
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1])


async def test_memory_stays_flat_while_half_of_forty_watchers_stall(tmp_path: Path) -> None:
    await overload(tmp_path, watchers=40, writes=2_000)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_memory_stays_flat_while_half_of_two_hundred_watchers_stall(tmp_path: Path) -> None:
    await overload(tmp_path, watchers=200, writes=10_000)
