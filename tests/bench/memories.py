"""The speed of memories and events, as ratios to baselines of the same run: a bare echo, single commits and hnswlib.

    python -m tests.bench.memories [--memories 100000] [--output FILE]

Compared operations alternate within one run. Figures are medians over the rounds.
"""

import asyncio
import shutil
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

import click
import grpc
import hnswlib
from mnemon.v1 import memory_pb2, memory_pb2_grpc
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import MEMORIES
from mnemon_server.domain.documents import Document
from mnemon_server.engines.hnsw import DEFAULT_GRAPH
from mnemon_server.engines.promises.values import DocumentWrite, PassageInput
from mnemon_server.engines.sqlite_vault import SQLiteVault
from rich.console import Console
from rich.progress import Progress

from tests.bench import loads
from tests.bench.processes import EchoServer, MnemonServer
from tests.bench.ratios import Row, at_least, at_most, rate_row, report, time_row
from tests.bench.vectors import Vectors, topical_vectors

DIMENSION = 384
CALLS = 2_000
BULK_CREATES = 4_000
SINGLE_COMMITS = 500
SEARCHES = 60
GRAPH_TIMEOUT_S = 1_800.0
WATCHERS = 100
TAIL = 1_024
"""New vectors that are compared one by one before the graph takes them."""


@dataclass(slots=True)
class _Samples:
    """Calls per second, one value per round. Seconds, one value per query. Bytes per memory."""

    bulk: list[float] = field(default_factory=list)
    echo_bulk: list[float] = field(default_factory=list)
    create: list[float] = field(default_factory=list)
    get: list[float] = field(default_factory=list)
    echo_create: list[float] = field(default_factory=list)
    echo_get: list[float] = field(default_factory=list)
    single: list[float] = field(default_factory=list)
    search: list[float] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)
    warm_start: list[float] = field(default_factory=list)
    rebuild: list[float] = field(default_factory=list)
    empty_start: list[float] = field(default_factory=list)
    resident: list[float] = field(default_factory=list)
    backlog: list[float] = field(default_factory=list)
    live: list[float] = field(default_factory=list)
    live_creates: list[float] = field(default_factory=list)


class Measurement:
    """One run, in its own folder."""

    def __init__(self, folder: Path, count: int, rounds: int, seed: int, advance: Callable[[int], None]) -> None:
        self._folder, self._count, self._rounds, self._advance = folder, count, rounds, advance
        self._vectors = topical_vectors(count + SEARCHES * rounds, DIMENSION, seed)
        self._samples = _Samples()
        # So that there is a graph even with few memories.
        self._flags = ("--graph-vectors-min", str(min(DEFAULT_GRAPH.graph_min, count)))

    def run(self) -> list[Row]:
        """Measures everything, and returns the table."""
        self._measure_calls()
        self._measure_bulk()
        self._measure_events()
        self._measure_at_size()
        return self._rows()

    def _measure_calls(self) -> None:
        """Creates and gets, beside an echo of the same messages and single commits of the same writes."""
        folder = _made(self._folder / "calls")
        server, echo = MnemonServer(folder), EchoServer(folder)
        try:
            for number in range(self._rounds):
                vectors = self._vectors[number * CALLS : (number + 1) * CALLS]
                requests = loads.create_requests(vectors, number * CALLS)
                create = _creating(requests)
                self._samples.echo_create.append(asyncio.run(loads.calls_per_second(echo.address, create, CALLS)))
                self._samples.create.append(asyncio.run(loads.calls_per_second(server.address, create, CALLS)))
                get = _getting(server.address)
                self._samples.echo_get.append(asyncio.run(loads.calls_per_second(echo.address, get, CALLS)))
                self._samples.get.append(asyncio.run(loads.calls_per_second(server.address, get, CALLS)))
                self._samples.single.append(_single_commits(_made(folder / f"single-{number}"), vectors))
        finally:
            echo.stop()
            server.stop()

    def _measure_bulk(self) -> None:
        """Creates in bulk, beside an echo of the same messages."""
        folder = _made(self._folder / "bulk")
        server, echo = MnemonServer(folder), EchoServer(folder)
        try:
            for number in range(self._rounds):
                vectors, start = self._vectors[:BULK_CREATES], number * BULK_CREATES
                self._samples.echo_bulk.append(asyncio.run(loads.bulk_creates_per_second(echo.address, vectors, start)))
                self._samples.bulk.append(asyncio.run(loads.bulk_creates_per_second(server.address, vectors, start)))
        finally:
            echo.stop()
            server.stop()

    def _measure_events(self) -> None:
        folder = _made(self._folder / "events")
        server = MnemonServer(folder)
        try:
            asyncio.run(loads.create_all(server.address, self._vectors[: min(50_000, self._count)], lambda _: None))
            for number in range(self._rounds):
                count = min(50_000, self._count)
                self._samples.backlog.append(asyncio.run(loads.backlog_changes_per_second(server.address, count)))
                vectors = self._vectors[number * 500 : (number + 1) * 500]
                delivered, creates = asyncio.run(loads.live_changes_per_second(server.address, WATCHERS, vectors))
                self._samples.live.append(delivered)
                self._samples.live_creates.append(creates)
        finally:
            server.stop()

    def _measure_at_size(self) -> None:
        """Search, start and memory with all memories."""
        folder = _made(self._folder / "size")
        empty = MnemonServer(_made(self._folder / "empty"))
        floor = empty.resident_bytes()
        empty.stop()
        server = MnemonServer(folder, *self._flags)
        started = perf_counter()
        asyncio.run(loads.create_all(server.address, self._vectors[: self._count], self._advance))
        _wait_for_graph(server.address, self._count)
        self._samples.rebuild.append(perf_counter() - started)
        server.stop()
        server = self._started(folder, self._samples.warm_start)
        self._samples.resident.append((server.resident_bytes() - floor) / self._count)
        self._measure_search(server)
        server.stop()
        for _ in range(self._rounds - 1):
            self._started(folder, self._samples.warm_start).stop()
        for _ in range(self._rounds):
            self._started(self._folder / "empty", self._samples.empty_start).stop()
        shutil.rmtree(_index_folder(folder))
        self._samples.rebuild = []
        self._started(folder, self._samples.rebuild).stop()

    def _started(self, folder: Path, samples: list[float]) -> MnemonServer:
        """Starts a server. The time until its graph is complete goes to the samples."""
        started = perf_counter()
        server = MnemonServer(folder, *self._flags)
        _wait_for_graph(server.address, self._count if folder.name == "size" else 0)
        samples.append(perf_counter() - started)
        return server

    def _measure_search(self, server: MnemonServer) -> None:
        """Searches for a vector through the server, and in an hnswlib graph of the same vectors."""
        graph = hnswlib.Index("ip", DIMENSION)
        graph.init_index(self._count, M=DEFAULT_GRAPH.m, ef_construction=DEFAULT_GRAPH.ef_construction)
        graph.add_items(self._vectors[: self._count])
        graph.set_ef(DEFAULT_GRAPH.ef_search)
        queries = self._vectors[self._count :]
        server.wait_until_idle()
        with grpc.insecure_channel(server.address) as channel:
            stub = memory_pb2_grpc.MemoryServiceStub(channel)
            for query in queries:
                request = memory_pb2.SearchMemoriesRequest(vector=query.tolist())
                self._samples.alone.append(_seconds(lambda query=query: graph.knn_query(query, k=10, num_threads=1)))
                self._samples.search.append(_seconds(lambda request=request: stub.SearchMemories(request)))

    def _rows(self) -> list[Row]:
        samples = self._samples
        raw = DIMENSION * 4
        resident = statistics.median(samples.resident)
        return [
            rate_row("create, 64 in flight", samples.create, "echo of the same messages", samples.echo_create, 0.5),
            rate_row(
                "create, 64 in flight", samples.create, "the same writes committed one by one", samples.single, 10
            ),
            rate_row(f"create, {loads.BULK} a message", samples.bulk, "echo of the same messages", samples.echo_bulk),
            _count(f"create, {loads.BULK} a message", samples.bulk, 5_000),
            rate_row("get, 64 in flight", samples.get, "echo of the same messages", samples.echo_get, 0.7),
            time_row(f"search by vector at {self._count:,}, p50", samples.search, "hnswlib alone", samples.alone, 3),
            time_row(f"warm start at {self._count:,}", samples.warm_start, "building the graph", samples.rebuild, 0.1),
            time_row("start with nothing stored", samples.empty_start, "building the graph", samples.rebuild),
            Row(
                f"resident memory of a memory at {self._count:,}",
                f"{resident:.0f} bytes",
                f"its vector: {raw} bytes",
                f"{resident / raw:.2f}",
                at_most(resident / raw, 2),
            ),
            _count("changes of a backlog to one watcher", samples.backlog, 100_000),
            _count(f"changes to {WATCHERS} live watchers together", samples.live, None),
            _count("creates meanwhile", samples.live_creates, None),
        ]


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def _index_folder(folder: Path) -> Path:
    return folder / "data" / "tenants" / "default" / "index" / "memory"


def _creating(requests: list[Any]) -> Callable[[Any, int], Any]:
    return lambda stub, number: stub.CreateMemory(requests[number])


def _getting(address: str) -> Callable[[Any, int], Any]:
    """Gets one memory after another. The echo answers with the newest it was sent."""
    with grpc.insecure_channel(address) as channel:
        page = memory_pb2_grpc.MemoryServiceStub(channel).ListMemories(memory_pb2.ListMemoriesRequest(page_size=1000))
    requests = [memory_pb2.GetMemoryRequest(memory_id=memory.memory_id) for memory in page.memories]
    return lambda stub, number: stub.GetMemory(requests[number % len(requests)])


def _single_commits(folder: Path, vectors: Vectors) -> float:
    """Writes per second, each waiting for the previous one."""
    vault = SQLiteVault(folder, model_identity="bench", dimension=DIMENSION)
    fields = {"personality": "", "type": "preference", "global": False, "decay_policy": "stable"}
    fields |= {"reinforce_time": None, "delete_time": None}
    try:
        records = vault.collection(MEMORIES)
        started = perf_counter()
        for number, vector in enumerate(vectors[:SINGLE_COMMITS]):
            content = f"Memory number {number} is about subject {number % 1000}."
            document = Document(f"memory-{number}", content, fields=fields)
            passages = [PassageInput(0, len(content), vector)]
            write = DocumentWrite(document=document, passages=passages, change=ChangeType.MEMORY_CREATED)
            records.put_document(write).result()
        return SINGLE_COMMITS / (perf_counter() - started)
    finally:
        vault.close()


def _wait_for_graph(address: str, count: int) -> None:
    deadline = monotonic() + GRAPH_TIMEOUT_S
    with grpc.insecure_channel(address) as channel:
        stub = memory_pb2_grpc.MemoryServiceStub(channel)
        while stub.GetStatus(memory_pb2.GetStatusRequest()).index.graph_count < count - TAIL:
            if monotonic() > deadline:
                raise click.ClickException("the graph was not built in time")
            sleep(0.02)


def _seconds(call: Callable[[], object]) -> float:
    started = perf_counter()
    call()
    return perf_counter() - started


def _count(what: str, measured: list[float], goal: float | None) -> Row:
    rate = statistics.median(measured)
    return Row(what, f"{rate:,.0f}/s", "", "", at_least(rate, goal, "/s"))


@click.command()
@click.option("--memories", default=100_000, show_default=True, help="Memories that are searched.")
@click.option("--rounds", default=5, show_default=True, help="Rounds of each measurement.")
@click.option("--seed", default=11, show_default=True, help="Seed of the vectors.")
@click.option("--output", type=click.Path(path_type=Path), help="File that the table is added to.")
def main(memories: int, rounds: int, seed: int, output: Path | None) -> None:
    """Measures memories and events on its own servers."""
    console = Console(stderr=True)
    with (
        tempfile.TemporaryDirectory(prefix="mnemon-bench-") as folder,
        Progress(console=console, disable=not console.is_terminal, transient=True) as progress,
    ):
        task = progress.add_task("Storing", total=memories)
        measurement = Measurement(Path(folder), memories, rounds, seed, lambda done: progress.advance(task, done))
        rows = measurement.run()
    note = (
        f"{memories:,} memories with vectors of {DIMENSION} numbers, made from seed {seed}; medians of {rounds} rounds."
    )
    report(rows, "tests.bench.memories", note, output)


if __name__ == "__main__":
    main()
