"""The overhead of a tool over the service below it: CallTool of search_memory and SearchMemories over the same texts.

python -m tests.bench.tools [--facts 2000] [--rounds 5]

Calls alternate on one server, each with a new question. Figures are medians over all questions.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import grpc
from google.protobuf.struct_pb2 import Struct
from mnemon.v1 import common_pb2, facts_pb2, facts_pb2_grpc, memory_pb2, memory_pb2_grpc, tools_pb2, tools_pb2_grpc
from rich.console import Console
from rich.progress import Progress

from tests.bench.processes import MnemonServer
from tests.bench.ratios import report, time_row
from tests.bench.texts import Workload, written

QUESTIONS = 100
RUN = 500
USER, NAMESPACE = "ada", ("user", "ada")
MODELS = {"the default model": (), "a hash in place of the model": ("--embedding-model", "hashing")}


@dataclass(slots=True)
class Samples:
    """Seconds per question."""

    memories: list[float] = field(default_factory=list)
    tool: list[float] = field(default_factory=list)


class Measurement:
    """One server with the same texts as memories and as facts."""

    def __init__(self, address: str, workload: Workload, texts: Sequence[str]) -> None:
        channel = grpc.insecure_channel(address)
        self._memories: Any = memory_pb2_grpc.MemoryServiceStub(channel)
        self._facts: Any = facts_pb2_grpc.FactServiceStub(channel)
        self._tools: Any = tools_pb2_grpc.ToolServiceStub(channel)
        self._workload = workload
        for start in range(0, len(texts), RUN):
            self._store(texts[start : start + RUN])

    def run(self, rounds: int, advance: Callable[[], None]) -> Samples:
        """Calls both, alternating."""
        samples = Samples()
        for _ in range(rounds):
            questions = iter(self._workload.next_queries(2 * QUESTIONS))
            for one, other in zip(questions, questions, strict=True):
                samples.memories.append(_seconds(lambda text=one: self._search_memories(text)))  # type: ignore[misc]
                samples.tool.append(_seconds(lambda text=other: self._call_tool(text)))  # type: ignore[misc]
                advance()
        return samples

    def _store(self, texts: Sequence[str]) -> None:
        scope = common_pb2.Scope(user=USER)
        memories = [memory_pb2.Memory(content=text, scope=scope) for text in texts]
        creates = [memory_pb2.CreateMemoryRequest(memory=memory) for memory in memories]
        list(self._memories.BulkCreateMemories(iter([memory_pb2.BulkCreateMemoriesRequest(requests=creates)])))
        facts = [facts_pb2.Fact(namespace=NAMESPACE, value=_struct(content=text)) for text in texts]
        puts = [facts_pb2.PutFactRequest(fact=fact) for fact in facts]
        list(self._facts.BulkPutFacts(iter([facts_pb2.BulkPutFactsRequest(requests=puts)])))

    def _search_memories(self, text: str) -> None:
        where = memory_pb2.MemoryFilter(scope=common_pb2.Scope(user=USER))
        request = memory_pb2.SearchMemoriesRequest(query=text, filter=where)
        _check(len(self._memories.SearchMemories(request).results))

    def _call_tool(self, text: str) -> None:
        context = tools_pb2.ToolContext(config=_struct(user_id=USER))
        request = tools_pb2.CallToolRequest(tool="search_memory", arguments=_struct(query=text), context=context)
        _check(self._tools.CallTool(request).output.content.count('"key": '))


def _struct(**values: str) -> Struct:
    message = Struct()
    message.update(values)
    return message


def _check(found: int) -> None:
    if found < 10:
        raise AssertionError(f"a search found {found} of 10")


def _seconds(work: Callable[[], None]) -> float:
    begin = perf_counter()
    work()
    return perf_counter() - begin


@click.command()
@click.option("--facts", default=2_000, show_default=True, help="Facts, and as many memories, that are searched.")
@click.option("--rounds", default=5, show_default=True, help=f"Rounds, of {QUESTIONS} questions of both each.")
@click.option("--seed", default=11, show_default=True, help="Seed of the texts.")
@click.option("--output", type=click.Path(path_type=Path), help="File that the table is added to.")
def main(facts: int, rounds: int, seed: int, output: Path | None) -> None:
    """Measures the tools on their own servers."""
    console = Console(stderr=True)
    rows = []
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        for model, flags in MODELS.items():
            task = progress.add_task(f"Asking, {model}", total=rounds * QUESTIONS)
            with tempfile.TemporaryDirectory(prefix="mnemon-bench-") as folder:
                server = MnemonServer(Path(folder), *flags)
                try:
                    workload = written(seed)
                    measurement = Measurement(server.address, workload, workload.next_texts(facts))
                    samples = measurement.run(rounds, lambda task=task: progress.advance(task))  # type: ignore[misc]
                finally:
                    server.stop()
            rows.append(
                time_row(f"CallTool of search_memory, {model}", samples.tool, "SearchMemories", samples.memories)
            )
    note = f"{facts:,} facts and as many memories of the same texts; {rounds * QUESTIONS} questions of both."
    report(rows, "tests.bench.tools", note, output)


if __name__ == "__main__":
    main()
