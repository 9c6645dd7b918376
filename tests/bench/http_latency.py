"""How long calls take as JSON over HTTP, beside the same calls over gRPC.

    python -m tests.bench.http_latency [--rounds 3] [--seconds 5] [--per-second 200] [--only create]

Calls begin at fixed times, whether those before them have been answered or not (an open loop), and their time counts
from then. gRPC and HTTP take turns on one server, from a process of its own. Over HTTP, a connection is used again once
its answer has come, and another one is opened if all are in use. Embeddings are by hashing, so that what is measured is
not the model.
"""

import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import numpy as np
from google.protobuf import json_format
from grpc import aio
from mnemon.v1 import episodic_pb2, episodic_pb2_grpc, memory_pb2, memory_pb2_grpc

from tests.bench.machine import describe
from tests.bench.processes import MnemonServer, free_address
from tests.bench.timeline_events import TimelineEvents
from tests.bench.timelines import FLAGS, fill

MEMORIES, EVENTS, USERS, DAYS, SEED = 2_000, 20_000, 40, 90, 11
RATIO_MAX = 2.0
MEMORY, EPISODIC = "mnemon.v1.MemoryService", "mnemon.v1.EpisodicMemoryService"
STUBS = {MEMORY: memory_pb2_grpc.MemoryServiceStub, EPISODIC: episodic_pb2_grpc.EpisodicMemoryServiceStub}

Send = Callable[[int], Awaitable[Any]]


@dataclass(frozen=True)
class Kind:
    """A call, and how its requests are made from a number and the id of a memory."""

    name: str
    service: str
    method: str
    request: Callable[[int, str], Any]


@cache
def _events() -> TimelineEvents:
    return TimelineEvents(EVENTS, USERS, DAYS, SEED)


def _event(number: int, _: str) -> Any:
    return episodic_pb2.RecordEventRequest(event=_events().event(EVENTS + number))


def _window(number: int, _: str) -> Any:
    request = episodic_pb2.QueryWindowRequest(last_days=30, limit=50)
    request.filter.scope.user = _events().user(number)
    return request


def _memory(number: int, _: str = "") -> Any:
    content = f"Memory number {number} is about subject {number % 1000}."
    scope = {"agent": f"agent-{number % 10}", "user": f"user-{number % 100}"}
    return memory_pb2.CreateMemoryRequest(memory={"content": content, "type": "preference", "scope": scope})


def _search(number: int, _: str) -> Any:
    request = memory_pb2.SearchMemoriesRequest(query=f"subject {number % 1000}", limit=5)
    request.filter.scope.user = f"user-{number % 100}"
    return request


KINDS = (
    Kind("create", MEMORY, "CreateMemory", _memory),
    Kind("get", MEMORY, "GetMemory", lambda _, known: memory_pb2.GetMemoryRequest(memory_id=known)),
    Kind(
        "search",
        MEMORY,
        "SearchMemories",
        _search,
    ),
    Kind("event", EPISODIC, "RecordEvent", _event),
    Kind("window", EPISODIC, "QueryWindow", _window),
)


class HttpClient:
    """Posts JSON over connections that are kept."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.opened = 0

    async def post(self, path: str, body: bytes) -> Any:
        """The answer. Raises ValueError if it is an error."""
        if self._idle:
            reader, writer = self._idle.pop()
        else:
            self.opened += 1
            reader, writer = await asyncio.open_connection(self._host, self._port)
        head = f"POST {path} HTTP/1.1\r\nhost: {self._host}\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        status, *lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        headers = dict(line.lower().split(b": ", 1) for line in lines if line)
        answer = await reader.readexactly(int(headers[b"content-length"]))
        self._idle.append((reader, writer))
        if b" 200 " not in status:
            raise ValueError(answer)
        return json.loads(answer)

    def close(self) -> None:
        """Closes the connections."""
        for _, writer in self._idle:
            writer.close()


async def _milliseconds(send: Send, count: int, per_second: float) -> list[float]:
    """How long each of the calls took, from the time at which it was due."""
    loop, taken = asyncio.get_running_loop(), [0.0] * count
    began = loop.time() + 0.1

    async def one(number: int) -> None:
        try:
            await send(number)
        except (aio.AioRpcError, ValueError, OSError, asyncio.IncompleteReadError) as error:
            raise click.ClickException(
                f"a call failed after {loop.time() - began - number / per_second:.1f} s: {error}"
            ) from error
        taken[number] = (loop.time() - began - number / per_second) * 1000

    tasks = []
    for number in range(count):
        await asyncio.sleep(began + number / per_second - loop.time())
        tasks.append(asyncio.create_task(one(number)))
    await asyncio.gather(*tasks)
    return taken


async def _over_grpc(address: str, kind: Kind, requests: list[Any], per_second: float) -> list[float]:
    async with aio.insecure_channel(address) as channel:
        await channel.channel_ready()
        call = getattr(STUBS[kind.service](channel), kind.method)  # type: ignore[no-untyped-call]
        return await _milliseconds(lambda number: call(requests[number]), len(requests), per_second)


async def _over_http(address: str, kind: Kind, requests: list[Any], per_second: float) -> list[float]:
    bodies = [json.dumps(json_format.MessageToDict(request)).encode() for request in requests]
    client, path = HttpClient(address), f"/{kind.service}/{kind.method}"
    try:
        return await _milliseconds(lambda number: client.post(path, bodies[number]), len(bodies), per_second)
    finally:
        client.close()


TRANSPORTS = {"gRPC": _over_grpc, "JSON": _over_http}


def _turn(
    transport: str, address: str, name: str, known: list[str], first: int, count: int, rate: float
) -> list[float]:
    """A turn of one transport, in the process of the client."""
    kind = next(kind for kind in KINDS if kind.name == name)
    requests = [kind.request(first + number, known[number % len(known)]) for number in range(count)]
    try:
        return asyncio.run(TRANSPORTS[transport](address, kind, requests, rate))
    except click.ClickException as error:
        raise click.ClickException(f"{name} over {transport}: {error.message}") from error


async def _create(address: str) -> list[str]:
    async with aio.insecure_channel(address) as channel:
        stub = memory_pb2_grpc.MemoryServiceStub(channel)  # type: ignore[no-untyped-call]
        return [(await stub.CreateMemory(_memory(number))).memory.memory_id for number in range(MEMORIES)]


@contextmanager
def _serving() -> Iterator[tuple[dict[str, str], list[str]]]:
    """A server with records: its address for each transport, and the ids of its memories."""
    http = free_address()
    with tempfile.TemporaryDirectory(prefix="mnemon-bench-") as folder:
        server = MnemonServer(Path(folder), *FLAGS, "--embedding-model", "hashing", "--http-listen", http)
        try:
            known = asyncio.run(_create(server.address))
            fill(server.address, _events(), lambda _: None)
            server.wait_until_idle()
            click.echo("the server is filled", err=True)
            yield {"gRPC": server.address, "JSON": http}, known
        finally:
            server.stop()


def _row(name: str, taken: dict[str, list[list[float]]]) -> str:
    """A line of the table: the medians over the rounds, and of the ratios of each round."""
    cells, ratios = [], []
    for share in (50, 99):
        each = {transport: [float(np.percentile(one, share)) for one in rounds] for transport, rounds in taken.items()}
        cells += [f"{statistics.median(values):.2f}" for values in each.values()]
        ratios.append(statistics.median(b / a for a, b in zip(each["gRPC"], each["JSON"], strict=True)))
    verdict = "met" if max(ratios) <= RATIO_MAX else "missed"
    return f"| {name} | {' | '.join(cells)} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} | {verdict} |"


def _turns(
    turn: Callable[[str, str, int], list[float]], name: str, rounds: int, count: int
) -> dict[str, list[list[float]]]:
    """The times of a call, round by round, for each transport. Raises ClickException if a call fails."""
    taken: dict[str, list[list[float]]] = {transport: [] for transport in TRANSPORTS}
    for number in range(-1, rounds):
        for place, transport in enumerate(TRANSPORTS if number % 2 else reversed(TRANSPORTS)):
            done = turn(name, transport, MEMORIES + ((number + 1) * len(TRANSPORTS) + place) * count)
            # The first turn of each only warms up.
            if number >= 0:
                taken[transport].append(done)
    return taken


@click.command(help=__doc__)
@click.option("--rounds", default=3, show_default=True, help="Turns of each transport with each call.")
@click.option("--seconds", default=5.0, show_default=True, help="How long a turn is.")
@click.option("--per-second", default=200.0, show_default=True, help="Calls that begin in a second.")
@click.option("--only", default="", help="Calls whose name has this in it.")
def main(rounds: int, seconds: float, per_second: float, only: str) -> None:
    """Prints the table."""
    count, rows = int(seconds * per_second), []
    # gRPC does not survive a fork.
    with _serving() as (addresses, known), ProcessPoolExecutor(1, mp_context=get_context("spawn")) as client:

        def turn(name: str, transport: str, first: int) -> list[float]:
            given = transport, addresses[transport], name, known, first, count, per_second
            done = client.submit(_turn, *given).result()
            click.echo(f"{name} over {transport}: p50 {statistics.median(done):.2f} ms", err=True)
            return done

        for name in (kind.name for kind in KINDS if only in kind.name):
            try:
                rows.append(_row(name, _turns(turn, name, rounds, count)))
            except click.ClickException as error:
                click.echo(error.message, err=True)
                rows.append(f"| {name} | cannot be answered at this rate | | | | | | missed |")
    print(f"{describe()}\n\n    {' '.join(['python -m tests.bench.http_latency', *sys.argv[1:]])}\n")
    print("| call | p50 over gRPC, ms | as JSON | p99 over gRPC, ms | as JSON | p50, ratio | p99, ratio | <= 2 |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
