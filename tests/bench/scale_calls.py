"""The calls that the measurement of growth makes."""

import asyncio
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic, perf_counter, sleep
from types import TracebackType
from typing import Any, Self

import grpc
import numpy as np
from grpc import aio
from mnemon.v1 import common_pb2, memory_pb2, memory_pb2_grpc

from tests.bench.processes import MnemonServer
from tests.bench.scale_data import TOPICS, USER_SIZE, Block, Corpus, ExactAnswers, memory_id, memory_number
from tests.bench.scale_report import Figure

GETS, CREATES = 300, 300
WARM_TIMEOUT_S = 600.0
_TAIL = 1_024
"""New vectors that are compared one by one before the graph takes them."""

_CREATED = "created by itself"


class Caller:
    """A client of one server, whose vault has `size` memories."""

    def __init__(self, server: MnemonServer, corpus: Corpus, size: int) -> None:
        self._server, self._corpus, self._size = server, corpus, size
        self._users = max(1, size // USER_SIZE)
        self._channel = grpc.insecure_channel(server.address)
        self._stub = memory_pb2_grpc.MemoryServiceStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._channel.close()

    def count(self) -> int:
        """How many memories are stored."""
        count: int = self._stub.CountMemories(memory_pb2.CountMemoriesRequest()).count
        return count

    def graph_count(self) -> int:
        """How many vectors are in the graph, if there is one."""
        count: int = self._stub.GetStatus(memory_pb2.GetStatusRequest()).index.graph_count
        return count

    def wait_until_warm(self, graph_count: int) -> None:
        """Waits until the vault answers, and its graph has so many vectors."""
        deadline = monotonic() + WARM_TIMEOUT_S
        self.count()
        while self.graph_count() < graph_count - _TAIL:
            assert monotonic() < deadline, "the graph was not loaded in time"
            sleep(0.02)

    def fill(self, blocks: Sequence[Block], advance: Callable[[int], None]) -> Figure:
        """Creates memories in one bulk stream; returns the time of each."""
        used, began = self._server.processor_s(), perf_counter()
        count = asyncio.run(self._fill(blocks, advance))
        return Figure((perf_counter() - began) / count, (self._server.processor_s() - used) / count)

    async def _fill(self, blocks: Sequence[Block], advance: Callable[[int], None]) -> int:
        messages = (message for block in blocks for message in block.messages(self._users))
        count = 0
        async with aio.insecure_channel(self._server.address) as channel:
            async for answer in memory_pb2_grpc.MemoryServiceStub(channel).BulkCreateMemories(messages):
                assert all(result.HasField("receipt") for result in answer.results), answer.results[0]
                count += len(answer.results)
                advance(len(answer.results))
        return count

    def measure_all(self, exact: ExactAnswers) -> dict[str, Figure]:
        """Every call, one at a time. Nothing that it stores stays."""
        by_vector = list(search_requests(self._corpus, text=False))
        figures, answers = {}, []
        figures["search by vector"], answers = self._measure(self._stub.SearchMemories, by_vector)
        found = [[memory_number(match.memory.memory_id) for match in answer.results] for answer in answers]
        figures["recall@10 of it"] = Figure(exact.recall(found), unit="recall")
        for what, call, requests in self._calls():
            figures[what], _ = self._measure(call, requests)
        self._stub.PurgeMemories(memory_pb2.PurgeMemoriesRequest(filter=memory_pb2.MemoryFilter(type=_CREATED)))
        return figures

    def _calls(self) -> Iterator[tuple[str, Any, list[Any]]]:
        """What is measured besides searches by vector."""
        search, numbers = self._stub.SearchMemories, np.random.default_rng(0).integers(self._size, size=GETS).tolist()
        words = list(search_requests(self._corpus, vector=False))
        for request in words:
            request.mode = common_pb2.SEARCH_MODE_KEYWORD
        yield "search by words", search, words
        yield "hybrid search", search, list(search_requests(self._corpus))
        ofuser = list(search_requests(self._corpus))
        for number, request in enumerate(ofuser):
            request.filter.scope.user = f"u{number * 13 % self._users}"
        yield "hybrid search, one user's", search, ofuser
        filtered = list(search_requests(self._corpus, text=False))
        for number, request in enumerate(filtered):
            request.filter.metadata["topic"].int_value = number % TOPICS
        yield "search by vector, filter of 1 %", search, filtered
        counts = [memory_pb2.CountMemoriesRequest(filter=request.filter) for request in filtered]
        yield "count by filter", self._stub.CountMemories, counts
        gets = [memory_pb2.GetMemoryRequest(memory_id=memory_id(number)) for number in numbers]
        yield "get", self._stub.GetMemory, gets
        [block] = self._corpus.blocks(self._size, self._size + CREATES)
        creates = [block.create_request(place, self._users) for place in range(CREATES)]
        for create in creates:
            create.memory.type = _CREATED
        yield "create", self._stub.CreateMemory, creates

    def _measure(self, call: Any, requests: Sequence[Any]) -> tuple[Figure, list[Any]]:
        """The median time of a call, and the mean processor time of the server."""
        times, answers = [], []
        used = self._server.processor_s()
        for request in requests:
            began = perf_counter()
            answers.append(call(request))
            times.append(perf_counter() - began)
        used = self._server.processor_s() - used
        return Figure(float(np.median(times)), used / len(requests)), answers


def search_requests(
    corpus: Corpus, *, text: bool = True, vector: bool = True
) -> Iterator[memory_pb2.SearchMemoriesRequest]:
    """Each query with its text, its vector, or both."""
    for words, numbers in zip(corpus.query_texts, corpus.query_vectors, strict=True):
        yield memory_pb2.SearchMemoriesRequest(query=words if text else "", vector=numbers.tolist() if vector else ())


@contextmanager
def searching_beside(address: str, corpus: Corpus) -> Iterator[list[float]]:
    """Hybrid searches in a process of their own, one at a time. At the end, the list has their times in seconds."""
    spawn = multiprocessing.get_context("spawn")
    stop, (ours, theirs) = spawn.Event(), spawn.Pipe()
    requests = [request.SerializeToString() for request in search_requests(corpus)]
    process = spawn.Process(target=_search_until, args=(address, requests, stop, theirs), daemon=True)
    process.start()
    ours.recv()
    times: list[float] = []
    try:
        yield times
    finally:
        stop.set()
        times += ours.recv()
        process.join()


def _search_until(address: str, requests: list[bytes], stop: Any, pipe: Any) -> None:
    times: list[float] = []
    parsed = [memory_pb2.SearchMemoriesRequest.FromString(request) for request in requests]
    with grpc.insecure_channel(address) as channel:
        stub = memory_pb2_grpc.MemoryServiceStub(channel)
        stub.SearchMemories(parsed[0])
        pipe.send("ready")
        while not stop.is_set():
            began = perf_counter()
            stub.SearchMemories(parsed[len(times) % len(parsed)])
            times.append(perf_counter() - began)
    pipe.send(times)
