"""What credentials add to the processor time of a call: API keys, and tokens of an identity provider.

    python -m tests.bench.credentials [--rounds 120] [--only CALL]

Two processes that run the same code differ by up to a tenth, so all servers share a process: one without
authentication, one that ignores the API key it is sent, one with keys and one with tokens. Another process calls them
in turns, in short blocks with 64 calls in flight. Two servers of a process that run the same code still differ by a
hundredth or two, so several such processes follow one another, each with its servers in another order.

The table shows the mean processor time of a call, and what credentials add to it: the mean difference from the block
without them in the same round, with its standard error, plus the threads that write the audit log. The cost of a key
that the server ignores is gRPC's own share.

Two kinds of threads are treated differently:

- Those of the audit log write the lines of one block during the next ones, and sync a file twice a second, however few
  lines there are. They are measured in a server that is called all the time.
- Those that write records are left out, since they never see who calls, and their time varies with the disk by more
  than a credential costs.
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
from rich.console import Console
from rich.progress import Progress

from tests.bench import loads, machine
from tests.bench.timeline_events import TimelineEvents
from tests.bench.vectors import topical_vectors
from tests.support.access import guarded_server, make_key
from tests.support.issuers import SigningKey, trusting_server
from tests.support.server import whole_server

METHODS = ("CreateMemory", "GetMemory", "SearchMemories", "RecordEvent")
PLAIN, IGNORED, KEYED, TOKENED = "without", "API key ignored by the server", "with an API key", "with a JWT"
GOAL = 0.05
CALLS, KNOWN, FOUND, SEED = 128, 200, 10, 11
ROUNDS, BUSY_BLOCKS = 30, 30
"""Of each process. Many more would create enough memories for a thread to start building their graph."""
NUMBERS = CALLS * (1 + ROUNDS + BUSY_BLOCKS)
LOG_THREADS, RECORD_THREADS = ("uvloop_", "asyncio_"), "records-writer"
"""What the names of threads begin with."""
LOG_WAIT_S = 1.0
"""Lines are written every half second."""


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
    events = TimelineEvents(NUMBERS, 40, 90, SEED)
    return [episodic_pb2.RecordEventRequest(event=events.event(number)) for number in numbers]


@cache
def _vectors() -> Any:
    return topical_vectors(NUMBERS, 384, SEED)


class Figures(NamedTuple):
    """What one process has measured, in microseconds per call."""

    blocks: dict[str, list[Any]]
    """By kind of server: of each block, the time of the process, and that without those threads."""
    log: dict[str, float]
    """By kind of server: the threads that write the audit log."""


def measure(method: str, seed: int) -> Figures:
    """Measures with servers of its own. Runs in a process of its own."""
    configure_logging(log_format="json", level="warning")
    with asyncio.Runner(loop_factory=serving.loop_factory()) as runner:
        return runner.run(_measure(method, random.Random(seed)))


async def _measure(method: str, chance: random.Random) -> Figures:
    serving.prepare_process()
    serving.interrupt_others(allowed=False)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mnemon-bench-"))
        caller = stack.enter_context(ProcessPoolExecutor(1, get_context("spawn")))
        servers = await _servers(Path(folder), stack, chance)
        serving.interrupt_others(allowed=True)
        serving.leave_out_of_collections()
        blocks = await _in_turns(servers, caller, method, chance)
        return Figures(blocks, {kind: await _log_us(servers[kind], caller, method) for kind in (KEYED, TOKENED)})


async def _servers(folder: Path, stack: AsyncExitStack, chance: random.Random) -> dict[str, Server]:
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
    for kind in chance.sample([*made], len(made)):
        starting, shown = made[kind]
        connection = await stack.enter_async_context(starting)
        server = Server(str(connection.server.address), shown, [])
        stub: Any = memory_pb2_grpc.MemoryServiceStub(server.authorized(connection.channel))
        created = [await stub.CreateMemory(each) for each in loads.create_requests(_vectors()[:KNOWN])]
        servers[kind] = server._replace(known=[each.memory.memory_id for each in created])
    return servers


async def _in_turns(
    servers: dict[str, Server], caller: Executor, method: str, chance: random.Random
) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {kind: [] for kind in servers}
    order: list[str] = []
    for number in range(ROUNDS + 1):
        # Every second round reverses the order of the one before.
        order = order[::-1] if number % 2 else chance.sample([*servers], len(servers))
        for kind in order:
            before = _processor_us()
            await asyncio.wrap_future(caller.submit(make_calls, servers[kind], method, number * CALLS))
            if number > 0:  # The first round warms up.
                found[kind].append((_processor_us() - before)[:2] / CALLS)
    return found


async def _log_us(server: Server, caller: Executor, method: str) -> float:
    """Processor time of the threads that write the audit log, per call, in a server that is busy all the time."""
    before = _processor_us()
    for number in range(ROUNDS + 1, ROUNDS + 1 + BUSY_BLOCKS):
        await asyncio.wrap_future(caller.submit(make_calls, server, method, number * CALLS))
    await asyncio.sleep(LOG_WAIT_S)
    return float((_processor_us() - before)[2] / CALLS / BUSY_BLOCKS)


def _processor_us() -> Any:
    """Processor time of this process, of it without the two kinds of threads, and of those of the audit log."""
    # The clocks of other threads, as pthread_getcpuclockid(3) makes them.
    threads = [(each.name, each.native_id) for each in threading.enumerate() if each.native_id]
    used = [(name, time.clock_gettime(~number << 3 | 6)) for name, number in threads]
    log = sum(seconds for name, seconds in used if name.startswith(LOG_THREADS))
    records = sum(seconds for name, seconds in used if name.startswith(RECORD_THREADS))
    whole = time.process_time()
    return np.array([whole, whole - log - records, log]) * 1e6


def _row(method: str, found: Sequence[Figures]) -> str:
    blocks = {kind: np.array([block for each in found for block in each.blocks[kind]]) for kind in found[0].blocks}
    whole_us, cells, verdicts = blocks[PLAIN][:, 0].mean(), [], []
    for kind in (IGNORED, KEYED, TOKENED):
        more = (blocks[kind] - blocks[PLAIN])[:, 1]
        log_us = np.mean([each.log.get(kind, 0.0) for each in found])
        mean, error = more.mean() + log_us, more.std(ddof=1) / len(more) ** 0.5
        cells.append(f"{mean:+.0f} ± {error:.0f} µs, {mean / whole_us:+.1%} ± {error / whole_us:.1%}")
        if kind != IGNORED:
            verdicts.append("met" if mean / whole_us <= GOAL else "missed")
    return f"| {method} | {whole_us:,.0f} µs | {' | '.join(cells)} | <= {GOAL:.0%}: {', '.join(verdicts)} |"


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=120, show_default=True, help=f"Blocks, in {ROUNDS}s.")
@click.option("--only", default="", help="Calls whose name has this in it.")
def main(rounds: int, only: str) -> None:
    """Print what credentials cost."""
    methods, processes = [method for method in METHODS if only in method], -(-rounds // ROUNDS)
    console, found = Console(stderr=True), {}
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("Calling", total=len(methods) * processes)
        for method in methods:
            found[method] = []
            for number in range(processes):
                with ProcessPoolExecutor(1, get_context("spawn")) as process:
                    found[method].append(process.submit(measure, method, SEED + number).result())
                progress.advance(task)
    click.echo(f"{machine.describe()}\n\n    {' '.join(['python -m tests.bench.credentials', *sys.argv[1:]])}\n")
    click.echo(f"{processes * ROUNDS} blocks of {CALLS} calls of each kind, {loads.IN_FLIGHT} in flight.\n")
    click.echo(f"| what | {PLAIN} | {IGNORED} | {KEYED} | {TOKENED} | goal |\n|{' --- |' * 6}")
    for method, figures in found.items():
        click.echo(_row(method, figures))


if __name__ == "__main__":
    main()
