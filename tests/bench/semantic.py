"""The speed of semantic memory: searches beside an echo and an exact scan, and saves with and without resolution.

    python -m tests.bench.semantic [--statements 100000] [--users 1000] [--output FILE]

Compared operations alternate within one run, call by call. Figures are medians over calls or rounds.
"""

import asyncio
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

import click
import grpc
from grpc import aio
from mnemon.v1 import decisions_pb2, rules_pb2, rules_pb2_grpc, semantic_pb2, semantic_pb2_grpc
from mnemon_server.engines.hnsw import DEFAULT_GRAPH
from rich.console import Console
from rich.progress import Progress

from tests.bench import loads
from tests.bench.known_statements import DIMENSION, KnownStatements, Search, UserScan, number_of
from tests.bench.processes import EchoServer, MnemonServer
from tests.bench.ratios import Row, at_most, median_ms, met, report, time_row

SEARCHES = 200
IN_FLIGHT_SAVES, SINGLE_SAVES = 1_000, 100
GRAPH_TIMEOUT_S = 1_800.0
SEARCH_GOAL, RESOLVE_GOAL = 2.0, 2.0
IGNORE = semantic_pb2.CONFLICT_POLICY_IGNORE
RESOLVE = semantic_pb2.CONFLICT_POLICY_RESOLVE

_Stub = semantic_pb2_grpc.SemanticMemoryServiceStub


@dataclass(slots=True)
class _Searches:
    """Seconds, one value per call, and the fraction of the expected results found."""

    server: list[float] = field(default_factory=list)
    echo: list[float] = field(default_factory=list)
    scan: list[float] = field(default_factory=list)
    found: int = 0
    expected: int = 0


@dataclass(slots=True)
class _Saves:
    """Saves per second, one value per round. Seconds, one value per call. How often each decision was made."""

    in_flight: dict[int, list[float]] = field(default_factory=lambda: {IGNORE: [], RESOLVE: []})
    single: dict[int, list[float]] = field(default_factory=lambda: {IGNORE: [], RESOLVE: []})
    decided: Counter[str] = field(default_factory=Counter)


class Measurement:
    """One run, in its own folder."""

    def __init__(self, folder: Path, known: KnownStatements, rounds: int, advance: Callable[[int], None]) -> None:
        self._folder, self._known, self._rounds, self._advance = folder, known, rounds, advance
        self._scan = UserScan(known)
        self._searches = {False: _Searches(), True: _Searches()}
        self._saves = _Saves()
        self._next_number = known.count

    def run(self) -> list[Row]:
        """Measures everything, and returns the table."""
        # So that there is a graph even with few statements, and no save is throttled on a slow machine.
        flags = ("--graph-vectors-min", str(min(DEFAULT_GRAPH.graph_min, self._known.count)))
        server = MnemonServer(self._folder, *flags, "--semantic-write-latency-target-ms", "60000")
        echo = EchoServer(self._folder)
        try:
            asyncio.run(save_all(server.address, self._known, self._advance))
            _wait_for_graph(server.address, self._known.count)
            server.wait_until_idle()
            with grpc.insecure_channel(server.address) as channel, grpc.insecure_channel(echo.address) as floor:
                self._measure_searches(_Stub(channel), _Stub(floor))
                rules_pb2_grpc.RulesServiceStub(channel).RegisterRule(_merging_rule())
                for number in range(self._rounds):
                    self._save_in_flight(server.address, (IGNORE, RESOLVE) if number % 2 else (RESOLVE, IGNORE))
                    self._save_one_by_one(_Stub(channel))
        finally:
            echo.stop()
            server.stop()
        return self._rows()

    def _measure_searches(self, server: Any, echo: Any) -> None:
        """The same search through the echo, as a scan here, and through the server, alternating."""
        echo.SaveSemanticMemory(self._known.save_request(0))
        for number in range(self._rounds * SEARCHES + 20):
            for narrow, samples in self._searches.items():
                search = self._known.search(narrow=narrow)
                self._search(search, server, echo, samples if number >= 20 else _Searches())

    def _search(self, search: Search, server: Any, echo: Any, samples: _Searches) -> None:
        request = search.request()
        echoed, _ = _timed(lambda: echo.SearchSimilar(request))
        scanned, expected = _timed(lambda: self._scan.nearest(search))
        served, answer = _timed(lambda: server.SearchSimilar(request))
        samples.echo.append(echoed)
        samples.scan.append(scanned)
        samples.server.append(served)
        samples.found += len({number_of(match.memory) for match in answer.results} & set(expected))
        samples.expected += len(expected)

    def _save_in_flight(self, address: str, policies: Sequence[semantic_pb2.ConflictPolicy]) -> None:
        for policy in policies:
            requests = self._new_requests(policy, IN_FLIGHT_SAVES)

            async def save(stub: Any, number: int, requests: Sequence[Any] = requests) -> None:
                self._note(await stub.SaveSemanticMemory(requests[number]))

            rate = asyncio.run(loads.calls_per_second(address, save, len(requests), _Stub))
            self._saves.in_flight[policy].append(rate)

    def _save_one_by_one(self, server: Any) -> None:
        requests = [self._new_requests(policy, SINGLE_SAVES) for policy in self._saves.single]
        for turn in zip(*requests, strict=True):
            for request in turn:
                seconds, answer = _timed(lambda request=request: server.SaveSemanticMemory(request))
                self._saves.single[request.conflict_policy].append(seconds)
                self._note(answer)

    def _new_requests(self, policy: semantic_pb2.ConflictPolicy, count: int) -> list[Any]:
        """Saves that conflict with known statements."""
        count = min(count, self._known.count // 10)
        first, self._next_number = self._next_number, self._next_number + count
        return self._known.similar_requests(self._known.draw(count), first, policy)

    def _note(self, answer: semantic_pb2.SaveSemanticMemoryResponse) -> None:
        if answer.HasField("decision"):
            action = decisions_pb2.ArbitrationAction.Name(answer.decision.arbitration.action)
            self._saves.decided[action.removeprefix("ARBITRATION_ACTION_").lower()] += 1

    def _rows(self) -> list[Row]:
        size = f"{self._known.count:,} of {self._known.users:,} users"
        saves, single = self._saves.in_flight, self._saves.single
        return [
            *_search_rows(f"search among {size}, by user", self._searches[False]),
            *_search_rows("the same, by user, persona and time", self._searches[True]),
            time_row(
                "time of a save with resolve, 64 in flight",
                [1 / rate for rate in saves[RESOLVE]],
                "with ignore",
                [1 / rate for rate in saves[IGNORE]],
                RESOLVE_GOAL,
            ),
            time_row("the same, one by one", single[RESOLVE], "with ignore", single[IGNORE], RESOLVE_GOAL),
        ]

    def note(self) -> str:
        """The conditions of the measurement, in words."""
        resolved = len(self._saves.single[RESOLVE]) + self._rounds * min(IN_FLIGHT_SAVES, self._known.count // 10)
        decided = ", ".join(f"{count:,} {action}" for action, count in self._saves.decided.most_common())
        return (
            f"{self._known.count:,} statements with vectors of {DIMENSION} numbers; {self._rounds} rounds of "
            f"{SEARCHES} searches of each kind, and of saves. Decisions of {resolved:,} saves with resolve: {decided}."
        )


def _merging_rule() -> rules_pb2.RegisterRuleRequest:
    """Half of the statements have this persona. Without it, importance would decide nearly all of them."""
    rule = rules_pb2.MergeRuleConfig(name="merging", conditions=rules_pb2.RuleConditions(personas=["persona-1"]))
    rule.arbitration.priority_importance = False
    rule.arbitration.priority_recency = False
    rule.arbitration.priority_source = False
    return rules_pb2.RegisterRuleRequest(rule=rule)


async def save_all(address: str, known: KnownStatements, advance: Callable[[int], None]) -> None:
    """Stores all statements through one bulk stream; `advance` gets the number of each step."""
    async with aio.insecure_channel(address) as channel:

        async def requests() -> Any:
            for start in range(0, known.count, loads.BULK):
                run = [known.save_request(number) for number in range(start, min(start + loads.BULK, known.count))]
                yield semantic_pb2.BulkSaveSemanticMemoriesRequest(requests=run)

        async for answer in _Stub(channel).BulkSaveSemanticMemories(requests()):
            for result in answer.results:
                if not result.HasField("saved"):
                    raise click.ClickException(f"a statement was not saved: {result.error}")
            advance(len(answer.results))


def _wait_for_graph(address: str, count: int) -> None:
    deadline = monotonic() + GRAPH_TIMEOUT_S
    with grpc.insecure_channel(address) as channel:
        stub = _Stub(channel)
        while stub.GetIndexStatus(semantic_pb2.GetIndexStatusRequest()).graph_count < count - DEFAULT_GRAPH.tail_max:
            if monotonic() > deadline:
                raise click.ClickException("the graph was not built in time")
            sleep(0.05)


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    started = perf_counter()
    result = call()
    return perf_counter() - started, result


def _search_rows(what: str, samples: _Searches) -> list[Row]:
    floor = [echo + scan for echo, scan in zip(samples.echo, samples.scan, strict=True)]
    parts = f"echo {median_ms(samples.echo)} + scan in NumPy {median_ms(samples.scan)}"
    ratio = statistics.median(samples.server) / statistics.median(floor)
    recall = samples.found / samples.expected
    return [
        Row(f"{what}, p50", median_ms(samples.server), parts, f"{ratio:.2f}", at_most(ratio, SEARCH_GOAL)),
        Row("recall of that", f"{recall:.4f}", "the scan", "", f"1: {met(recall, 1.0)}"),
    ]


@click.command()
@click.option("--statements", default=100_000, show_default=True, help="Statements that are known.")
@click.option("--users", default=1_000, show_default=True, help="Users that they are of.")
@click.option("--rounds", default=5, show_default=True, help="Rounds of each measurement.")
@click.option("--seed", default=11, show_default=True, help="Seed of everything.")
@click.option("--output", type=click.Path(path_type=Path), help="File that the table is added to.")
def main(statements: int, users: int, rounds: int, seed: int, output: Path | None) -> None:
    """Measures semantic memory on its own server."""
    console = Console(stderr=True)
    with (
        tempfile.TemporaryDirectory(prefix="mnemon-bench-") as folder,
        Progress(console=console, disable=not console.is_terminal, transient=True) as progress,
    ):
        task = progress.add_task("Storing", total=statements)
        known = KnownStatements(statements, users, seed)
        measurement = Measurement(Path(folder), known, rounds, lambda done: progress.advance(task, done))
        rows = measurement.run()
    report(rows, "tests.bench.semantic", measurement.note(), output)


if __name__ == "__main__":
    main()
