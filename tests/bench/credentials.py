"""What credentials add to the processor time of a call: API keys, and tokens of an identity provider.

    python -m tests.bench.credentials [--rounds 90] [--only CALL]

Two processes that run the same code differ by up to a tenth, so all servers share this process: one without
authentication, one that ignores the API key it is sent, one with keys and one with tokens. Another process calls them
in turns, in short blocks with 64 calls in flight.

The table shows the mean processor time of a call, and what credentials add to it: the mean difference from the block
without them in the same round, with its standard error, plus the threads that write the audit log. The cost of a key
that the server ignores is gRPC's own share. Threads that write records are excluded: they never see who calls, and
their time varies with the disk by more than a credential costs.
"""

import asyncio
import random
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import AsyncExitStack
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from grpc import aio
from mnemon._authorization import AuthorizedChannel, Credential
from mnemon.v1 import episodic_pb2, episodic_pb2_grpc, memory_pb2, memory_pb2_grpc
from mnemon_server.commands import serving
from mnemon_server.logs import configure_logging

from tests.bench import loads, machine
from tests.bench.timeline_events import TimelineEvents
from tests.bench.vectors import topical_vectors
from tests.support.access import guarded_server, make_key
from tests.support.issuers import SigningKey, trusting_server
from tests.support.server import whole_server

METHODS = ("CreateMemory", "GetMemory", "SearchMemories", "RecordEvent")
PLAIN, IGNORED, KEYED, TOKENED = "without", "API key ignored by the server", "with an API key", "with a JWT"
GOAL = 0.05
CALLS, ROUNDS_MAX, KNOWN, FOUND, SEED = 128, 120, 200, 10, 11
"""More rounds would create enough memories for a thread to start building their graph."""


class Server(NamedTuple):
    """A server that is measured."""

    address: str
    secret: str
    """Sent with each call, unless empty."""
    known: Sequence[str]
    """Ids of memories."""

    def authorized(self, channel: Any) -> Any:
        """A channel whose calls send the secret."""
        return AuthorizedChannel(channel, Credential(self.secret)) if self.secret else channel


def make_calls(server: Server, method: str, first: int) -> None:
    """Makes a block of calls. `first` numbers its first memory or event. Runs in the calling process."""
    _loop().run_until_complete(_make_calls(server, method, first))


async def _make_calls(server: Server, method: str, first: int) -> None:
    episodic = method == "RecordEvent"
    stub_of: Any = episodic_pb2_grpc.EpisodicMemoryServiceStub if episodic else memory_pb2_grpc.MemoryServiceStub
    call = getattr(stub_of(server.authorized(_channel(server.address))), method)
    requests = iter(_requests(server, method, first))

    async def call_one_by_one() -> None:
        for request in requests:
            await call(request)

    await asyncio.gather(*(call_one_by_one() for _ in range(loads.IN_FLIGHT)))


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


@cache
def _channel(address: str) -> aio.Channel:
    return aio.insecure_channel(address)


def _requests(server: Server, method: str, first: int) -> list[Any]:
    numbers, vectors = range(first, first + CALLS), _vectors()[first : first + CALLS]
    match method:
        case "CreateMemory":
            return [*loads.create_requests(vectors, first)]
        case "GetMemory":
            return [memory_pb2.GetMemoryRequest(memory_id=server.known[number % KNOWN]) for number in numbers]
        case "SearchMemories":
            return [memory_pb2.SearchMemoriesRequest(vector=vector.tolist(), limit=FOUND) for vector in vectors]
    events = TimelineEvents(CALLS * (ROUNDS_MAX + 1), 40, 90, SEED)
    return [episodic_pb2.RecordEventRequest(event=events.event(number)) for number in numbers]


@cache
def _vectors() -> Any:
    return topical_vectors(CALLS * (ROUNDS_MAX + 1), 384, SEED)


async def _measure(rounds: int, methods: Sequence[str]) -> dict[str, dict[str, list[Any]]]:
    """What `_processor_us` measures per call, by method and kind of server, for each round."""
    serving.prepare_process()
    serving.interrupt_others(allowed=False)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mnemon-bench-"))
        caller = stack.enter_context(ProcessPoolExecutor(1, get_context("spawn")))
        servers = await _servers(Path(folder), stack)
        serving.interrupt_others(allowed=True)
        serving.leave_out_of_collections()
        return {method: await _in_turns(servers, caller, method, rounds) for method in methods}


async def _servers(folder: Path, stack: AsyncExitStack) -> dict[str, Server]:
    settings = {"bridge_enabled": False, "embedding_model": "all-MiniLM-L6-v2"}
    secret, signing = make_key(folder / "keyed", "writer"), SigningKey("bench", "RS256")
    (folder / "tokened").mkdir()
    made = {
        PLAIN: (whole_server(folder / "plain", **settings), ""),
        IGNORED: (whole_server(folder / "ignored", **settings), secret),
        KEYED: (guarded_server(folder / "keyed", **settings), secret),
        TOKENED: (trusting_server(folder / "tokened", signing, settings=settings), signing.sign()),
    }
    servers = {}
    for kind, (starting, shown) in made.items():
        connection = await stack.enter_async_context(starting)
        server = Server(str(connection.server.address), shown, [])
        stub: Any = memory_pb2_grpc.MemoryServiceStub(server.authorized(connection.channel))
        created = [await stub.CreateMemory(each) for each in loads.create_requests(_vectors()[:KNOWN])]
        servers[kind] = server._replace(known=[each.memory.memory_id for each in created])
    return servers


async def _in_turns(servers: dict[str, Server], caller: Executor, method: str, rounds: int) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {kind: [] for kind in servers}
    for number in range(rounds + 1):
        # Every second round reverses the order of the one before.
        order = random.Random(number // 2).sample([*servers], len(servers))
        for kind in order[:: -1 if number % 2 else 1]:
            before = _processor_us()
            await asyncio.wrap_future(caller.submit(make_calls, servers[kind], method, number * CALLS))
            if number > 0:  # The first round warms up.
                found[kind].append((_processor_us() - before) / CALLS)
    return found


def _processor_us() -> Any:
    """Processor time of this process, of its audit threads, and of everything except audit and record threads."""
    names = {thread.native_id: thread.name for thread in threading.enumerate() if thread.native_id}
    # The clocks of other threads, as pthread_getcpuclockid(3) makes them.
    used = {number: time.clock_gettime(~number << 3 | 6) for number in names}
    logs = sum(used[number] for number, name in names.items() if name.startswith(("uvloop_", "asyncio_")))
    records = sum(used[number] for number, name in names.items() if name == "records-writer")
    whole = time.process_time()
    return np.array([whole, logs, whole - logs - records]) * 1e6


def _row(method: str, found: dict[str, list[Any]]) -> str:
    whole_us, cells, verdicts = np.mean(found[PLAIN], axis=0)[0], [], []
    # The lines of one block are written during another. Two of the servers write some.
    log_us = np.sum([np.sum(found[kind], axis=0)[1] for kind in found]) / len(found[PLAIN]) / 2
    for kind in (IGNORED, KEYED, TOKENED):
        more = np.subtract(found[kind], found[PLAIN])[:, 2] + (0 if kind == IGNORED else log_us)
        mean, error = more.mean(), more.std(ddof=1) / len(more) ** 0.5
        cells.append(f"{mean:+.0f} ± {error:.0f} µs, {mean / whole_us:+.1%} ± {error / whole_us:.1%}")
        if kind != IGNORED:
            verdicts.append("met" if mean / whole_us <= GOAL else "missed")
    return f"| {method} | {whole_us:,.0f} µs | {' | '.join(cells)} | <= {GOAL:.0%}: {', '.join(verdicts)} |"


@click.command()
@click.option("--rounds", type=click.IntRange(2, ROUNDS_MAX), default=90, show_default=True, help="Blocks of each.")
@click.option("--only", default="", help="Calls whose name has this in it.")
def main(rounds: int, only: str) -> None:
    """Print what credentials cost."""
    configure_logging(log_format="json", level="warning")
    with asyncio.Runner(loop_factory=serving.loop_factory()) as runner:
        found = runner.run(_measure(rounds, [method for method in METHODS if only in method]))
    click.echo(f"{machine.describe()}\n\n    {' '.join(['python -m tests.bench.credentials', *sys.argv[1:]])}\n")
    click.echo(f"{rounds} blocks of {CALLS} calls of each kind, {loads.IN_FLIGHT} in flight.\n")
    click.echo(f"| what | {PLAIN} | {IGNORED} | {KEYED} | {TOKENED} | goal |\n|{' --- |' * 6}")
    for method, values in found.items():
        click.echo(_row(method, values))


if __name__ == "__main__":
    main()
