"""Searches by vector over gRPC, beside hnswlib, LanceDB and sqlite-vec in process, with the same vectors.

    make bench-vectors ARGS="--memories 100000"

Every query is asked in each way in turn, and every way but hnswlib returns texts. The others run in an environment of
their own, in a process of their own.
"""

import asyncio
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import grpc
import hnswlib
import numpy as np
from mnemon.v1 import memory_pb2, memory_pb2_grpc
from mnemon_server.engines.hnsw import DEFAULT_GRAPH
from rich.console import Console

from tests.bench import loads, machine
from tests.bench.processes import EchoServer, MnemonServer
from tests.bench.vectors import Vectors, topical_vectors

DIMENSION, LIMIT, SEED = 384, 10, 11
OURS, ALONE, EMPTY = "Mnemon, over gRPC", "hnswlib, ids alone", "a call of Mnemon that only counts"
FLOOR = "an echo with ten memories, and hnswlib"
"""What any server with such answers takes at least: a bare call, and the search alone."""
GOALS = {ALONE: 6.0}
"""The highest ratio of our time to that of the other."""

_NUMBER = re.compile(r"number (\d+)")

Search = Callable[[Vectors], tuple[float, list[int]]]
"""Seconds, and the numbers of the vectors that were found."""


class OtherStores:
    """The process with the other stores."""

    def __init__(self, python: Path, vectors: Path, folder: Path) -> None:
        """Starts it; returns once everything is stored."""
        child = [python, "-m", "tests.bench.vector_store_child", vectors, folder]
        self._process = subprocess.Popen(child, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.names: list[str] = self._read()

    def search(self, name: str, query: Vectors) -> tuple[float, list[int]]:
        """Asks one of the stores."""
        assert self._process.stdin is not None
        print(json.dumps([name, query.tolist()]), file=self._process.stdin, flush=True)
        seconds, found = self._read()
        return seconds, found

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise click.ClickException("the process with the other stores ended")
        return json.loads(line)


@click.command()
@click.option("--memories", default=100_000, show_default=True, help="Memories that are searched.")
@click.option("--queries", default=200, show_default=True, help="Searches of each kind.")
@click.option("--python", default=".venv/vectors/bin/python", show_default=True, help="Interpreter with the others.")
def main(memories: int, queries: int, python: str) -> None:
    """Stores the same vectors everywhere, searches them in turn, and prints a table."""
    console = Console(stderr=True)
    drawn = topical_vectors(memories + queries, DIMENSION, SEED)
    stored, asked = drawn[:memories], drawn[memories:]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mnemon-bench-")))
        np.save(folder / "vectors.npy", stored)
        others = OtherStores(Path(python).absolute(), folder / "vectors.npy", folder)
        stack.callback(others.close)
        console.print("the others have stored the vectors")
        server = MnemonServer(folder)
        stack.callback(server.stop)
        asyncio.run(loads.create_all(server.address, stored, lambda _: None))
        ways = {ALONE: _alone(stored), **{name: _through(others, name) for name in others.names}}
        server.wait_until_idle()
        channel = stack.enter_context(grpc.insecure_channel(server.address))
        stub = memory_pb2_grpc.MemoryServiceStub(channel)
        floor = _echoed(stack, folder, stored, ways[ALONE])
        ways = {OURS: lambda query: _ours(stub, query), EMPTY: lambda _: _counted(stub), FLOOR: floor, **ways}
        rows = _measured(ways, stored, asked)
    print(
        machine.describe(), "", f"    {' '.join(['python -m tests.bench.vector_stores', *sys.argv[1:]])}", "", sep="\n"
    )
    print("\n".join(rows))


def _measured(ways: dict[str, Search], stored: Vectors, asked: Vectors) -> list[str]:
    """Asks every query in all ways; returns the lines of the table."""
    answers: dict[str, list[tuple[float, list[int]]]] = {name: [] for name in ways}
    truths = []
    for query in asked:
        truths.append(set(np.argpartition(-np.vecdot(stored, query), LIMIT)[:LIMIT].tolist()))
        for name, way in ways.items():
            answers[name].append(way(query))
    times = {name: 1e3 * statistics.median(seconds for seconds, _ in found) for name, found in answers.items()}
    lines = ["| search | p50 | recall@10 | Mnemon to it | goal |", "| --- | --- | --- | --- | --- |"]
    for name, found in answers.items():
        recall = statistics.mean(len(truth & set(ids)) / LIMIT for truth, (_, ids) in zip(truths, found, strict=True))
        ratio = times[OURS] / times[name]
        goal = f"<= {GOALS[name]:g}: {'met' if ratio <= GOALS[name] else 'missed'}" if name in GOALS else ""
        shown = "" if name == EMPTY else f"{recall:.3f}"
        lines.append(f"| {name} | {times[name]:.2f} ms | {shown} | {ratio:.2f} | {goal} |")
    return lines


def _ours(stub: Any, query: Vectors) -> tuple[float, list[int]]:
    request = memory_pb2.SearchMemoriesRequest(vector=query.tolist(), limit=LIMIT)
    began = perf_counter()
    answer = stub.SearchMemories(request)
    seconds = perf_counter() - began
    numbers = (_NUMBER.search(match.memory.content) for match in answer.results)
    return seconds, [int(number[1]) for number in numbers if number]


def _counted(stub: Any) -> tuple[float, list[int]]:
    request = memory_pb2.CountMemoriesRequest()
    began = perf_counter()
    stub.CountMemories(request)
    return perf_counter() - began, []


def _echoed(stack: ExitStack, folder: Path, stored: Vectors, alone: Search) -> Search:
    """A call of the same size to a server that does nothing, and after it the search."""
    echo = EchoServer(folder)
    stack.callback(echo.stop)
    stub = memory_pb2_grpc.MemoryServiceStub(stack.enter_context(grpc.insecure_channel(echo.address)))
    stub.CreateMemory(loads.create_requests(stored[:1])[0], wait_for_ready=True)

    def search(query: Vectors) -> tuple[float, list[int]]:
        request = memory_pb2.SearchMemoriesRequest(vector=query.tolist(), limit=LIMIT)
        began = perf_counter()
        stub.SearchMemories(request)
        called = perf_counter() - began
        seconds, found = alone(query)
        return called + seconds, found

    return search


def _alone(stored: Vectors) -> Search:
    graph = hnswlib.Index("ip", DIMENSION)
    graph.init_index(len(stored), M=DEFAULT_GRAPH.m, ef_construction=DEFAULT_GRAPH.ef_construction)
    graph.add_items(stored)
    graph.set_ef(DEFAULT_GRAPH.ef_search)

    def search(query: Vectors) -> tuple[float, list[int]]:
        began = perf_counter()
        labels, _ = graph.knn_query(query, k=LIMIT, num_threads=1)
        return perf_counter() - began, labels[0].tolist()

    return search


def _through(others: OtherStores, name: str) -> Search:
    return lambda query: others.search(name, query)


if __name__ == "__main__":
    main()
