"""What a single call costs: processor time of the server and calls per second, beside a bare echo.

    python -m tests.bench.calls [--rounds 10] [--before CHECKOUT] [--api-key] [--output FILE]

The servers take turns, round by round. On a busy machine, the lower quartile of the rounds says more than their mean.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
import grpc
from grpc import aio
from mnemon._authorization import AuthorizedChannel, Credential
from mnemon.v1 import episodic_pb2, episodic_pb2_grpc, memory_pb2, memory_pb2_grpc

from tests.bench import loads
from tests.bench.processes import EchoServer, MnemonServer
from tests.bench.speed import Row, markdown
from tests.bench.timeline_events import TimelineEvents
from tests.bench.timelines import FLAGS
from tests.bench.vectors import topical_vectors
from tests.support.access import make_key
from tests.support.issuers import SigningKey, publish, write_identities
from tests.support.timeline_messages import bulk

CALLS = 500
EVENTS, USERS, DAYS = 30_000, 40, 90
SEED = 11

KEYED, TOKENED = "with an API key", "with a JWT"

Call = Callable[[Any, int], Awaitable[Any]]
Server = MnemonServer | EchoServer


class Goal(NamedTuple):
    """What a call is to reach: processor time in milliseconds, and calls per second as a share of the echo's."""

    processor_ms: float | None
    rate: float | None


GOALS = {
    "CreateMemory": Goal(0.7, 0.5),
    "GetMemory": Goal(0.4, 0.8),
    "RecordEvent": Goal(None, 0.5),
    "QueryWindow": Goal(0.8, None),
}


@dataclass(slots=True)
class _Samples:
    """One value per round."""

    processor_ms: list[float] = field(default_factory=list)
    per_second: list[float] = field(default_factory=list)

    def low_ms(self) -> float:
        return statistics.quantiles(self.processor_ms, n=4, method="inclusive")[0]

    def shown(self) -> str:
        return f"{self.low_ms():.2f} ms (median {statistics.median(self.processor_ms):.2f}), {self._rate():,.0f}/s"

    def rate_beside(self, other: "_Samples") -> float:
        pairs = zip(self.per_second, other.per_second, strict=True)
        return statistics.median(one / two for one, two in pairs)

    def _rate(self) -> float:
        return statistics.median(self.per_second)


class Measurement:
    """One run, with servers of its own by name; "echo" is the floor, and "now" this checkout."""

    def __init__(self, servers: dict[str, Server], rounds: int, secrets: Mapping[str, str]) -> None:
        """Sends the secret to the servers that have one in `secrets`."""
        self._servers, self._rounds, self._secrets = servers, rounds, secrets
        self._events = TimelineEvents(EVENTS, USERS, DAYS, SEED)
        self._samples = {(what, name): _Samples() for what in GOALS for name in servers}
        self._known = {name: list[str]() for name in servers}

    def run(self) -> list[Row]:
        """Measures everything, and returns the table."""
        for name, server in self._servers.items():
            self._prepare(name, server)
        vectors = topical_vectors(CALLS * self._rounds, 384, SEED)
        for number in range(self._rounds):
            creates = loads.create_requests(vectors[number * CALLS : (number + 1) * CALLS], number * CALLS)
            first = EVENTS + number * CALLS
            events = [self._events.event(place) for place in range(first, first + CALLS)]
            for name, server in self._in_turn(number):
                asyncio.run(self._round(name, server, creates, events))
        return [row for what in GOALS for row in self._rows(what)]

    def _prepare(self, name: str, server: Server) -> None:
        """Stores what the reads of the first round return."""
        requests = loads.create_requests(topical_vectors(CALLS, 384, SEED))
        with grpc.insecure_channel(server.address) as plain:
            channel = self._authorized(name, plain)
            memories = memory_pb2_grpc.MemoryServiceStub(channel)
            created = [memories.CreateMemory(request).memory.memory_id for request in requests]
            # The echo gives no ids. Any will do for it.
            self._known[name] = [memory_id or "0" * 36 for memory_id in created]
            record = episodic_pb2.RecordEventRequest(event=self._events.event(0))
            episodic_pb2_grpc.EpisodicMemoryServiceStub(channel).RecordEvent(record)
        asyncio.run(self._fill(name, server))
        server.wait_until_idle()

    async def _fill(self, name: str, server: Server) -> None:
        async with aio.insecure_channel(server.address) as plain:
            channel = self._authorized(name, plain)
            batches = (bulk(batch) for batch in self._events.batches(0, EVENTS, 1_000))
            async for _ in episodic_pb2_grpc.EpisodicMemoryServiceStub(channel).BulkRecordEvents(batches):
                pass

    def _in_turn(self, number: int) -> list[tuple[str, Server]]:
        """The servers, each round in another order."""
        servers = list(self._servers.items())
        start = number % len(servers)
        return servers[start:] + servers[:start]

    async def _round(
        self, name: str, server: Server, creates: Sequence[Any], events: Sequence[episodic_pb2.EpisodicEvent]
    ) -> None:
        known = self._known[name]
        gets = [memory_pb2.GetMemoryRequest(memory_id=known[number % len(known)]) for number in range(CALLS)]
        records = [episodic_pb2.RecordEventRequest(event=event) for event in events]
        windows = [self._window(number) for number in range(CALLS)]
        memories, episodic = memory_pb2_grpc.MemoryServiceStub, episodic_pb2_grpc.EpisodicMemoryServiceStub
        await self._measure("CreateMemory", name, lambda stub, number: stub.CreateMemory(creates[number]), memories)
        await self._measure("GetMemory", name, lambda stub, number: stub.GetMemory(gets[number]), memories)
        await self._measure("RecordEvent", name, lambda stub, number: stub.RecordEvent(records[number]), episodic)
        await self._measure("QueryWindow", name, lambda stub, number: stub.QueryWindow(windows[number]), episodic)

    def _window(self, number: int) -> episodic_pb2.QueryWindowRequest:
        request = episodic_pb2.QueryWindowRequest(last_days=30, limit=50)
        request.filter.scope.user = self._events.user(number)
        return request

    async def _measure(self, what: str, name: str, call: Call, new_stub: Callable[[Any], Any]) -> None:
        server, samples = self._servers[name], self._samples[what, name]
        before = server.processor_s()
        stub = partial(self._stub, name, new_stub)
        samples.per_second.append(await loads.calls_per_second(server.address, call, CALLS, stub))
        samples.processor_ms.append((server.processor_s() - before) / CALLS * 1e3)

    def _stub(self, name: str, new_stub: Callable[[Any], Any], channel: Any) -> Any:
        return new_stub(self._authorized(name, channel))

    def _authorized(self, name: str, channel: Any) -> Any:
        return AuthorizedChannel(channel, Credential(self._secrets[name])) if name in self._secrets else channel

    def _rows(self, what: str) -> list[Row]:
        echo = self._samples[what, "echo"]
        return [
            Row(
                what if name == "now" else f"{what}, {name}",
                samples.shown(),
                f"echo: {echo.shown()}",
                f"{samples.rate_beside(echo):.2f}",
                _verdict(GOALS[what], samples, echo) if name == "now" else "",
            )
            for name in self._servers
            if name != "echo"
            for samples in [self._samples[what, name]]
        ]


def _verdict(goal: Goal, samples: _Samples, echo: _Samples) -> str:
    parts = []
    if goal.processor_ms is not None:
        is_met = samples.low_ms() <= goal.processor_ms
        parts.append(f"<= {goal.processor_ms:g} ms: {'met' if is_met else 'missed'}")
    if goal.rate is not None:
        parts.append(f">= {goal.rate:g}: {'met' if samples.rate_beside(echo) >= goal.rate else 'missed'}")
    return ", ".join(parts)


@click.command()
@click.option("--rounds", default=10, show_default=True, help="Rounds of each measurement, at least 2.")
@click.option(
    "--before", type=click.Path(path_type=Path, exists=True), help="Another checkout, measured in the same rounds."
)
@click.option("--api-key", is_flag=True, help="Also a server with authentication, whose callers have a key.")
@click.option("--jwt", is_flag=True, help="Also a server whose callers have a token of an identity provider.")
@click.option("--output", type=click.Path(path_type=Path), help="File that the table is added to.")
def main(rounds: int, before: Path | None, output: Path | None, *, api_key: bool, jwt: bool) -> None:
    """Measures single calls on servers of its own."""
    with tempfile.TemporaryDirectory(prefix="mnemon-bench-") as folder, ExitStack() as stack:
        servers: dict[str, Server] = {}
        if before is not None:
            servers["before"] = MnemonServer(_made(Path(folder) / "before"), *FLAGS, checkout=before.resolve())
            stack.callback(servers["before"].stop)
        servers["now"] = MnemonServer(_made(Path(folder) / "now"), *FLAGS)
        stack.callback(servers["now"].stop)
        secrets = {}
        if api_key:
            guarded = _made(Path(folder) / KEYED)
            secrets[KEYED] = make_key(guarded / "data", "writer")
            servers[KEYED] = MnemonServer(guarded, *FLAGS, "--authentication", "api_key")
            stack.callback(servers[KEYED].stop)
        if jwt:
            guarded, key = _made(Path(folder) / TOKENED), SigningKey("bench", "RS256")
            publish(guarded, key)
            secrets[TOKENED] = key.sign(exp=int(time.time()) + 86_400)
            flags = ("--authentication", "jwt", "--identity-file", str(write_identities(guarded, "jwks.json")))
            servers[TOKENED] = MnemonServer(guarded, *FLAGS, *flags)
            stack.callback(servers[TOKENED].stop)
        servers["echo"] = EchoServer(Path(folder))
        stack.callback(servers["echo"].stop)
        rows = Measurement(servers, rounds, secrets).run()
    note = (
        f"{loads.IN_FLIGHT} in flight; {rounds} rounds of {CALLS:,} calls. Processor time of the server per call, "
        "lower quartile of the rounds, and calls a second, median. The ratio is that of calls a second."
    )
    table = markdown(rows, command=" ".join(["python -m tests.bench.calls", *sys.argv[1:]]), note=note)
    click.echo(table)
    if output:
        with output.open("a", encoding="utf-8") as file:
            file.write(f"\n{table}")


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


if __name__ == "__main__":
    main()
