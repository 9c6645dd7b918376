"""Loads on a server: calls in flight, bulk streams, watchers."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from grpc import aio
from mnemon.v1 import changes_pb2, changes_pb2_grpc, memory_pb2, memory_pb2_grpc

IN_FLIGHT = 64
BULK = 200


def create_requests(vectors: Sequence[Any], start: int = 0) -> list[memory_pb2.CreateMemoryRequest]:
    """Memories with their embeddings."""
    return [
        memory_pb2.CreateMemoryRequest(
            memory=memory_pb2.Memory(
                content=f"Memory number {start + i} is about subject {(start + i) % 1000}.",
                type="preference",
                scope={"agent": f"agent-{(start + i) % 10}", "user": f"user-{(start + i) % 100}"},
            ),
            embedding=np.asarray(vector).tolist(),
        )
        for i, vector in enumerate(vectors)
    ]


async def calls_per_second(
    address: str,
    call: Callable[[Any, int], Awaitable[Any]],
    count: int,
    new_stub: Callable[[Any], Any] = memory_pb2_grpc.MemoryServiceStub,
) -> float:
    """Makes `count` calls of a stub, with `IN_FLIGHT` concurrent ones."""
    async with aio.insecure_channel(address) as channel:
        stub = new_stub(channel)
        await channel.channel_ready()
        numbers = iter(range(count))
        started = perf_counter()
        await asyncio.gather(*(_call_all(stub, call, numbers) for _ in range(IN_FLIGHT)))
        return count / (perf_counter() - started)


async def _call_all(stub: Any, call: Callable[[Any, int], Awaitable[Any]], numbers: Iterator[int]) -> None:
    for number in numbers:
        await call(stub, number)


async def create_all(address: str, vectors: Sequence[Any], advance: Callable[[int], None]) -> None:
    """Stores memories through one bulk stream."""
    async with aio.insecure_channel(address) as channel:

        async def requests() -> Any:
            for start in range(0, len(vectors), BULK):
                run = create_requests(vectors[start : start + BULK], start)
                yield memory_pb2.BulkCreateMemoriesRequest(requests=run)

        async for answer in memory_pb2_grpc.MemoryServiceStub(channel).BulkCreateMemories(requests()):
            assert all(result.HasField("receipt") for result in answer.results)
            advance(len(answer.results))


async def bulk_creates_per_second(address: str, vectors: Sequence[Any], start: int = 0) -> float:
    """Stores memories through one bulk stream; the messages are made before."""
    messages = [
        memory_pb2.BulkCreateMemoriesRequest(requests=create_requests(vectors[first : first + BULK], start + first))
        for first in range(0, len(vectors), BULK)
    ]
    async with aio.insecure_channel(address) as channel:
        await channel.channel_ready()
        started = perf_counter()
        async for answer in memory_pb2_grpc.MemoryServiceStub(channel).BulkCreateMemories(iter(messages)):
            assert all(result.HasField("receipt") for result in answer.results)
        return len(vectors) / (perf_counter() - started)


async def backlog_changes_per_second(address: str, count: int) -> float:
    """One watcher reads `count` changes from the start of the log."""
    async with aio.insecure_channel(address) as channel:
        stub = changes_pb2_grpc.ChangeServiceStub(channel)
        started, seen = perf_counter(), 0
        watch = stub.WatchChanges(changes_pb2.WatchChangesRequest(earliest=True, max_batch_size=1000))
        async for message in watch:
            seen += len(message.batch.changes)
            if seen >= count:
                break
        watch.cancel()
        return seen / (perf_counter() - started)


async def live_changes_per_second(address: str, watchers: int, vectors: Sequence[Any]) -> tuple[float, float]:
    """Changes delivered to `watchers` together while memories are created, and creates, both per second."""
    async with aio.insecure_channel(address) as channel:
        stub = changes_pb2_grpc.ChangeServiceStub(channel)
        request = changes_pb2.WatchChangesRequest()
        watches = [stub.WatchChanges(request) for _ in range(watchers)]
        for watch in watches:
            first = await watch.read()
            assert isinstance(first, changes_pb2.WatchChangesResponse)
            assert first.HasField("started")
        readers = [asyncio.create_task(_read(watch, len(vectors))) for watch in watches]
        requests = create_requests(vectors)
        started = perf_counter()
        rate = await calls_per_second(address, lambda stub, i: stub.CreateMemory(requests[i]), len(requests))
        await asyncio.gather(*readers)
        delivered = watchers * len(vectors) / (perf_counter() - started)
        for watch in watches:
            watch.cancel()
        return delivered, rate


async def _read(watch: Any, count: int) -> None:
    seen = 0
    while seen < count:
        seen += len((await watch.read()).batch.changes)
