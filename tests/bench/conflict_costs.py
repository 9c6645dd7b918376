"""What resolving conflicts costs a save: by the default signals, by the relation model, and with a judge.

    python -m tests.bench.conflict_costs [--statements 20000] [--rounds 5]

Each save has a vector and nearly repeats a known statement. The judge is scripted, in a process of its own, so the rest
of the waiting time is that of the operator's model. Medians over rounds, in which the kinds of saves take turns.
"""

import asyncio
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import grpc
from mnemon.v1 import decisions_pb2, rules_pb2, rules_pb2_grpc, semantic_pb2, semantic_pb2_grpc

from tests.bench import machine
from tests.bench.known_statements import KnownStatements
from tests.bench.processes import MnemonServer, OpenAIEndpoint
from tests.bench.semantic import save_all

SAVES = 200
PER_USER = 100
RELATION_RULE = "relation"
HEADINGS = ("a save", "processor time, ms", "to ignored conflicts", "waiting time, ms")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of saves."""

    name: str
    server: MnemonServer
    policy: semantic_pb2.ConflictPolicy
    rule: str = ""
    processor_s: list[float] = field(default_factory=list)
    """For each round, of the server for a save."""
    waiting_s: list[float] = field(default_factory=list)
    """For each save."""

    def save(self, requests: Sequence[Any]) -> None:
        """Saves one by one."""
        before = self.server.processor_s()
        with grpc.insecure_channel(self.server.address) as channel:
            stub = semantic_pb2_grpc.SemanticMemoryServiceStub(channel)
            for request in requests:
                request.rule = self.rule
                started = perf_counter()
                stub.SaveSemanticMemory(request)
                self.waiting_s.append(perf_counter() - started)
        self.processor_s.append((self.server.processor_s() - before) / len(requests))

    def row(self, plain: "Kind") -> tuple[str, ...]:
        """The columns of the table."""
        ratios = (one / other for one, other in zip(self.processor_s, plain.processor_s, strict=True))
        milliseconds = (statistics.median(each) * 1e3 for each in (self.processor_s, self.waiting_s))
        processor, waiting = (f"{each:.2f}" for each in milliseconds)
        return self.name, processor, f"{statistics.median(ratios):.2f}", waiting


def _filled_server(folder: Path, known: KnownStatements, stack: ExitStack, *flags: str) -> MnemonServer:
    folder.mkdir()
    server = MnemonServer(folder, *flags, "--semantic-write-latency-target-ms", "60000")
    stack.callback(server.stop)
    asyncio.run(save_all(server.address, known, lambda _: None))
    rule = rules_pb2.MergeRuleConfig(name=RELATION_RULE)
    rule.detection.signals.append(decisions_pb2.SIGNAL_TYPE_RELATION)
    rule.detection.required_signals.append(decisions_pb2.SIGNAL_TYPE_RELATION)
    with grpc.insecure_channel(server.address) as channel:
        rules_pb2_grpc.RulesServiceStub(channel).RegisterRule(rules_pb2.RegisterRuleRequest(rule=rule))
    server.wait_until_idle()
    return server


@click.command()
@click.option(
    "--statements", default=20_000, show_default=True, help="Statements that are known, a hundred of each user."
)
@click.option("--rounds", default=5, show_default=True, help="Rounds of each kind of saves.")
def main(statements: int, rounds: int) -> None:
    """Measures every kind of saves, and prints a table."""
    known = KnownStatements(statements, statements // PER_USER, seed=11)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mnemon-bench-")))
        endpoint = OpenAIEndpoint(folder)
        stack.callback(endpoint.stop)
        flags = ("--judge-endpoint", endpoint.url, "--judge-model", "scripted", "--judge-calls-per-minute", "1000000")
        alone = _filled_server(folder / "alone", known, stack)
        judged = _filled_server(folder / "judged", known, stack, *flags)
        ignore, resolve = semantic_pb2.CONFLICT_POLICY_IGNORE, semantic_pb2.CONFLICT_POLICY_RESOLVE
        kinds = [
            Kind("conflicts ignored", alone, ignore),
            Kind("resolved, the default rule", alone, resolve),
            Kind("resolved, by the relation model", alone, resolve, RELATION_RULE),
            Kind("resolved, with a judge", judged, resolve, RELATION_RULE),
        ]
        number = known.count
        for round_ in range(rounds + 1):
            for kind in kinds[:: 1 if round_ % 2 else -1]:
                kind.save(known.similar_requests(known.draw(SAVES), number, kind.policy))
                number += SAVES
            if not round_:
                for kind in kinds:
                    kind.processor_s.clear()
                    kind.waiting_s.clear()
    click.echo(f"{machine.describe()}\n\n{statements:,} statements, {PER_USER} of each user; {SAVES} saves a round\n")
    for cells in (HEADINGS, ("---",) * len(HEADINGS), *(kind.row(kinds[0]) for kind in kinds)):
        click.echo(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
