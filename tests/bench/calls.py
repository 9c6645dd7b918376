"""What a single call costs: processor time of the server and calls per second, beside a bare echo.

    python -m tests.bench.calls [--rounds 10] [--before CHECKOUT] [--metrics] [--traces] [--only CALL] [--alike 4]
                                [--output FILE]

The servers take turns, round by round. On a busy machine, the lower quartile of the rounds says more than their mean.
There are several servers of each kind: two processes with the same code differ by up to a tenth, whoever calls them. A
share of a few hundredths takes more of them. `tests.bench.credentials` measures the cost of credentials.
"""

import asyncio
import statistics
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import click
import grpc
from grpc import aio
from mnemon.v1 import episodic_pb2, episodic_pb2_grpc, memory_pb2, memory_pb2_grpc

from tests.bench import loads
from tests.bench.processes import EchoServer, MnemonServer, TraceCollector
from tests.bench.ratios import Row, report
from tests.bench.timeline_events import TimelineEvents
from tests.bench.timelines import FLAGS
from tests.bench.vectors import topical_vectors
from tests.support.timeline_messages import bulk

CALLS = 500
EVENTS, USERS, DAYS = 30_000, 40, 90
FOUND = 10
"""A search by a vector, because the cost of the model would hide everything else."""
SEED = 11
SETTLE_S = 0.7
"""What a server does in so long after its answers counts as well."""

EPISODIC = {"RecordEvent", "QueryWindow"}
MEASURED, TRACED = "with metrics", "with traces"
SHARES = {MEASURED: 0.03, TRACED: 0.03}
"""The goals for what kinds add to the processor time of a call: metrics; and the traces of one call in a hundred."""

Call = Callable[[Any, int], Awaitable[Any]]
Server = MnemonServer | EchoServer


class Goal(NamedTuple):
    """What a call is to reach: processor time in milliseconds, and calls per second as a share of the echo's."""

    processor_ms: float | None
    rate: float | None


GOALS = {
    "CreateMemory": Goal(0.7, 0.5),
    "GetMemory": Goal(0.4, 0.8),
    "SearchMemories": Goal(None, None),
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


@dataclass(slots=True)
class Subject:
    """One of the servers that take turns, and what its calls cost."""

    kind: str
    """Those of a kind are alike: "echo" is the floor, and "now" this checkout."""
    server: Server
    known: list[str] = field(default_factory=list)
    """Ids of its memories."""
    samples: dict[str, _Samples] = field(default_factory=lambda: {what: _Samples() for what in GOALS})


class _Cost:
    """What a call of one kind of server costs."""

    def __init__(self, samples: Sequence[_Samples]) -> None:
        """`samples` are those of each server of the kind."""
        self._samples = samples
        low = [each.low_ms() for each in samples]
        self.low_ms, self._apart_ms = statistics.mean(low), max(low) - min(low)
        self._per_second = [
            statistics.mean(rates) for rates in zip(*(each.per_second for each in samples), strict=True)
        ]

    def __str__(self) -> str:
        median = statistics.median(value for each in self._samples for value in each.processor_ms)
        rate = statistics.median(self._per_second)
        return f"{self.low_ms:.3f} ms ± {self._apart_ms / 2:.3f} (median {median:.3f}), {rate:,.0f}/s"

    def rate_beside(self, other: "_Cost") -> float:
        """Calls per second as a share of those of another kind, round by round."""
        pairs = zip(self._per_second, other._per_second, strict=True)
        return statistics.median(one / two for one, two in pairs)


class Measurement:
    """One run, with servers of its own."""

    def __init__(self, subjects: Sequence[Subject], rounds: int, chosen: Sequence[str]) -> None:
        """`chosen` are the calls that are measured."""
        self._subjects, self._rounds, self._chosen = subjects, rounds, chosen
        self._events = TimelineEvents(EVENTS, USERS, DAYS, SEED)

    def run(self) -> list[Row]:
        """Measures everything, and returns the table."""
        # At the same time, since they mostly wait until their indexes are complete.
        with ThreadPoolExecutor() as pool:
            list(pool.map(self._prepare, self._subjects))
        vectors = topical_vectors(CALLS * self._rounds, 384, SEED)
        for number in range(self._rounds):
            creates = loads.create_requests(vectors[number * CALLS : (number + 1) * CALLS], number * CALLS)
            first = EVENTS + number * CALLS
            events = [self._events.event(place) for place in range(first, first + CALLS)]
            for subject in self._in_turn(number):
                asyncio.run(self._round(subject, creates, events))
        return [row for what in self._chosen for row in self._rows(what)]

    def _prepare(self, subject: Subject) -> None:
        """Stores what the reads of the first round return."""
        requests = loads.create_requests(topical_vectors(CALLS, 384, SEED))
        with grpc.insecure_channel(subject.server.address) as channel:
            memories = memory_pb2_grpc.MemoryServiceStub(channel)
            created = [memories.CreateMemory(request).memory.memory_id for request in requests]
            # The echo gives no ids. Any will do for it.
            subject.known = [memory_id or "0" * 36 for memory_id in created]
            record = episodic_pb2.RecordEventRequest(event=self._events.event(0))
            episodic_pb2_grpc.EpisodicMemoryServiceStub(channel).RecordEvent(record)
        if EPISODIC & {*self._chosen}:
            asyncio.run(self._fill(subject))
        subject.server.wait_until_idle()

    async def _fill(self, subject: Subject) -> None:
        async with aio.insecure_channel(subject.server.address) as channel:
            batches = (bulk(batch) for batch in self._events.batches(0, EVENTS, 1_000))
            async for _ in episodic_pb2_grpc.EpisodicMemoryServiceStub(channel).BulkRecordEvents(batches):
                pass

    def _in_turn(self, number: int) -> Iterator[Subject]:
        """The servers, each round in another order."""
        start = number % len(self._subjects)
        yield from self._subjects[start:]
        yield from self._subjects[:start]

    async def _round(
        self, subject: Subject, creates: Sequence[Any], events: Sequence[episodic_pb2.EpisodicEvent]
    ) -> None:
        known = subject.known
        gets = [memory_pb2.GetMemoryRequest(memory_id=known[number % len(known)]) for number in range(CALLS)]
        records = [episodic_pb2.RecordEventRequest(event=event) for event in events]
        windows = [self._window(number) for number in range(CALLS)]
        searches = [memory_pb2.SearchMemoriesRequest(vector=create.embedding, limit=FOUND) for create in creates]
        memories, episodic = memory_pb2_grpc.MemoryServiceStub, episodic_pb2_grpc.EpisodicMemoryServiceStub
        calls: dict[str, Call] = {
            "CreateMemory": lambda stub, number: stub.CreateMemory(creates[number]),
            "GetMemory": lambda stub, number: stub.GetMemory(gets[number]),
            "SearchMemories": lambda stub, number: stub.SearchMemories(searches[number]),
            "RecordEvent": lambda stub, number: stub.RecordEvent(records[number]),
            "QueryWindow": lambda stub, number: stub.QueryWindow(windows[number]),
        }
        for what in self._chosen:
            await _measure(what, subject, calls[what], episodic if what in EPISODIC else memories)

    def _window(self, number: int) -> episodic_pb2.QueryWindowRequest:
        request = episodic_pb2.QueryWindowRequest(last_days=30, limit=50)
        request.filter.scope.user = self._events.user(number)
        return request

    def _rows(self, what: str) -> Iterator[Row]:
        kinds = dict.fromkeys(subject.kind for subject in self._subjects)
        costs = {
            kind: _Cost([subject.samples[what] for subject in self._subjects if subject.kind == kind]) for kind in kinds
        }
        echo = costs.pop("echo")
        for kind, cost in costs.items():
            yield Row(
                what if kind == "now" else f"{what}, {kind}",
                str(cost),
                f"echo: {echo}",
                f"{cost.rate_beside(echo):.2f}",
                _verdict(GOALS[what], cost, echo) if kind == "now" else _share(kind, cost, costs["now"]),
            )


async def _measure(what: str, subject: Subject, call: Call, new_stub: Callable[[Any], Any]) -> None:
    server, samples = subject.server, subject.samples[what]
    before = server.processor_s()
    rate = await loads.calls_per_second(server.address, call, CALLS, new_stub)
    await asyncio.sleep(SETTLE_S)
    samples.per_second.append(rate)
    samples.processor_ms.append((server.processor_s() - before) / CALLS * 1e3)


def _share(kind: str, cost: _Cost, now: _Cost) -> str:
    """The additional cost of servers of another kind, and its limit."""
    share, goal = cost.low_ms / now.low_ms - 1, SHARES.get(kind)
    return f"{share:+.1%}" + (f", <= {goal:.0%}: {'met' if share <= goal else 'missed'}" if goal is not None else "")


def _verdict(goal: Goal, cost: _Cost, echo: _Cost) -> str:
    parts = []
    if goal.processor_ms is not None:
        is_met = cost.low_ms <= goal.processor_ms
        parts.append(f"<= {goal.processor_ms:g} ms: {'met' if is_met else 'missed'}")
    if goal.rate is not None:
        parts.append(f">= {goal.rate:g}: {'met' if cost.rate_beside(echo) >= goal.rate else 'missed'}")
    return ", ".join(parts)


@click.command()
@click.option("--rounds", default=10, show_default=True, help="Rounds of each measurement, at least 2.")
@click.option(
    "--before", type=click.Path(path_type=Path, exists=True), help="Another checkout, measured in the same rounds."
)
@click.option("--metrics", is_flag=True, help="Also a server that measures for Prometheus.")
@click.option("--traces", is_flag=True, help="Also a server that sends the traces of one call in a hundred.")
@click.option("--only", default="", help="Calls whose name has this in it.")
@click.option("--alike", default=2, show_default=True, help="Servers of each kind.")
@click.option("--output", type=click.Path(path_type=Path), help="File that the table is added to.")
def main(rounds: int, before: Path | None, only: str, alike: int, output: Path | None, **extra: bool) -> None:
    """Measures single calls on servers of its own."""
    with tempfile.TemporaryDirectory(prefix="mnemon-bench-") as folder, ExitStack() as stack:
        subjects = [
            subject
            for number in range(alike)
            for subject in _subjects(Path(folder) / str(number), stack, before, extra)
        ]
        rows = Measurement(subjects, rounds, [what for what in GOALS if only in what]).run()
    note = (
        f"{loads.IN_FLIGHT} in flight; {rounds} rounds of {CALLS:,} calls on each of {alike} servers of a kind. "
        "Processor time of the server per call, lower quartile of the rounds, ± half of what alike servers differ by; "
        "and calls a second, median. The ratio is that of calls a second."
    )
    report(rows, "tests.bench.calls", note, output)


def _subjects(folder: Path, stack: ExitStack, before: Path | None, extra: Mapping[str, bool]) -> Iterator[Subject]:
    """Starts one server of each kind, which the stack stops."""

    def started(kind: str, *flags: str, checkout: Path | None = None) -> Server:
        server = MnemonServer(_made(folder / kind), *FLAGS, *flags, checkout=checkout)
        stack.callback(server.stop)
        return server

    if before is not None:
        yield Subject("before", started("before", checkout=before.resolve()))
    yield Subject("now", started("now"))
    if extra["metrics"]:
        yield Subject(MEASURED, started(MEASURED, "--metrics-listen", "127.0.0.1:0"))
    if extra["traces"]:
        collector = TraceCollector(_made(folder / "collector"))
        stack.callback(collector.stop)
        yield Subject(TRACED, started(TRACED, "--trace-endpoint", f"http://{collector.address}"))
    echo = EchoServer(_made(folder / "echo"))
    stack.callback(echo.stop)
    yield Subject("echo", echo)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


if __name__ == "__main__":
    main()
