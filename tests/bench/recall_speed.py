"""How long a recall over five kinds takes, beside the search of its largest kind, in turn on one server.

    python -m tests.bench.recall_speed [--memories 60000] [--others 10000] [--questions 100] [--folder FOLDER]

With a folder, the records are stored in the first run alone; `BENCH_CHECKOUT` names another checkout whose server is to
run on them. Processor time is the server's, which a busy machine changes less. Memories, facts and statements are
stored with vectors of topics; the server embeds documents and events. Questions are texts, each asked once by each way,
in an order that alternates.
"""

import random
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import click
from mnemon import Client, Document, EpisodicEvent, Fact, Memory, RecordKind, SemanticMemory, View
from rich.console import Console
from rich.progress import Progress

from tests.bench import machine
from tests.bench.processes import MnemonServer
from tests.bench.texts import written
from tests.bench.vectors import TopicalVectors
from tests.support.server import wait_until

DIMENSION = 384
BATCH = 2_000
WARM = 10
"""So many questions are asked before the measurement."""
BASE = "search of the memories"
RECALLED = ("document", "memory", "fact", "statement", "event")


def store(client: Client, kind: RecordKind, texts: Sequence[str], vectors: Sequence[Sequence[float]]) -> None:
    """Stores texts with their vectors as records of a kind; of documents and events, the server makes them."""
    pairs = zip(texts, vectors, strict=True)
    results: Iterator[Any]
    match kind:
        case RecordKind.DOCUMENT:
            first = texts[0]
            results = client.documents.put_many(
                Document(f"{first[:40]}-{number}", text) for number, text in enumerate(texts)
            )
        case RecordKind.MEMORY:
            results = client.memories.add_many((Memory(text), vector) for text, vector in pairs)
        case RecordKind.FACT:
            results = client.facts.put_many((Fact(("notes",), "", {"content": text}), vector) for text, vector in pairs)
        case RecordKind.SEMANTIC:
            results = client.semantic.add_many(
                SemanticMemory(text, user="ada", embedding=tuple(vector)) for text, vector in pairs
            )
        case _:
            results = client.timeline.add_many(EpisodicEvent("note", text, user="ada") for text in texts)
    for result in results:
        if result.error:
            raise result.error


def fill(client: Client, counts: dict[RecordKind, int], seed: int) -> None:
    """Stores the records."""
    workload, topics = written(seed), TopicalVectors(DIMENSION, seed)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for kind, count in counts.items():
            task = progress.add_task(f"storing {kind}", total=count)
            for first in range(0, count, BATCH):
                some = min(BATCH, count - first)
                store(client, kind, workload.next_texts(some), topics.draw(some, topics.rng).tolist())
                progress.advance(task, some)
    wait_until(lambda: not client.timeline.status().text_pending_count, 1_800.0)


Times = list[tuple[float, float]]
"""Of each question: the time until the answer, and the server's processor time, in milliseconds."""


def in_turn(
    server: MnemonServer, ways: dict[str, Callable[[str], object]], questions: Sequence[str], seed: int
) -> dict[str, Times]:
    """The times of each way. Every question is new to each way, so that no cache answers."""
    rng, times = random.Random(seed), {name: Times() for name in ways}
    for number, question in enumerate(questions):
        names = list(ways)
        rng.shuffle(names)
        for name in names:
            asked = f"{question} {name} {number}"
            used, began = server.processor_s(), perf_counter()
            ways[name](asked)
            times[name].append((1_000 * (perf_counter() - began), 1_000 * (server.processor_s() - used)))
    return times


def measured(server: MnemonServer, client: Client, questions: Sequence[str], seed: int) -> dict[str, Times]:
    """The times of a search, of recalls of one kind, and of a recall of all; the first questions are not counted."""

    def recalled(*kinds: str) -> Callable[[str], object]:
        return lambda text: client.recall(text, kinds=kinds, limit=10, view=View.IDS)

    ways: dict[str, Callable[[str], object]] = {
        BASE: lambda text: client.memories.search(text, limit=10, view=View.IDS),
        **{f"recall of one kind: {kind}": recalled(kind) for kind in RECALLED},
        "recall of all five kinds": recalled(),
    }
    in_turn(server, ways, questions[:WARM], seed)
    return in_turn(server, ways, questions[WARM:], seed)


@click.command()
@click.option("--memories", default=60_000, show_default=True, help="Memories.")
@click.option("--others", default=10_000, show_default=True, help="Records of each other kind.")
@click.option("--questions", "count", default=100, show_default=True, help="Questions, by each way.")
@click.option("--seed", default=11, show_default=True, help="Seed of texts, vectors and the order.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where the records stay; by default they do not.")
def main(*, memories: int, others: int, count: int, seed: int, folder: Path | None) -> None:
    """Measures recalls and searches, and prints a table."""
    kinds = (RecordKind.DOCUMENT, RecordKind.MEMORY, RecordKind.FACT, RecordKind.SEMANTIC, RecordKind.EVENT)
    counts = {kind: memories if kind is RecordKind.MEMORY else others for kind in kinds}
    with tempfile.TemporaryDirectory(prefix="mnemon-bench-") as empty:
        place = folder or Path(empty)
        place.mkdir(parents=True, exist_ok=True)
        server = MnemonServer(place)
        try:
            with Client(server.address, timeout=300.0) as client:
                if not client.memories.count():
                    fill(client, counts, seed)
                server.wait_until_idle()
                times = measured(server, client, written(seed).next_queries(count + WARM), seed)
        finally:
            server.stop()
    click.echo(f"{machine.describe()}\n\n{memories:,} memories, {others:,} of each other kind; {count} questions.\n")
    click.echo("| what | p50, ms | p95, ms | processor, ms | to the search |\n| --- | --- | --- | --- | --- |")
    base = statistics.median(used for _, used in times[BASE])
    for name, each in times.items():
        waited = [wall for wall, _ in each]
        used = statistics.median(used for _, used in each)
        middle, high = statistics.median(waited), statistics.quantiles(waited, n=20)[-1]
        click.echo(f"| {name} | {middle:.1f} | {high:.1f} | {used:.1f} | {used / base:.2f} |")


if __name__ == "__main__":
    main()
