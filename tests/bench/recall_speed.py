"""How long a recall over five kinds takes, beside the search of its largest kind, in turn on one server.

    python -m tests.bench.recall_speed [--memories 60000] [--others 10000] [--questions 100]

Memories, facts and statements are stored with vectors of topics; the server embeds documents and events. Questions are
texts, each asked once by each way, in an order that alternates.
"""

import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any

import click
from mnemon import Client, Document, EpisodicEvent, Fact, Memory, RecordKind, SemanticMemory, View
from rich.console import Console
from rich.progress import Progress

from tests.bench import machine
from tests.bench.serving import serving
from tests.bench.texts import written
from tests.bench.vectors import TopicalVectors
from tests.support.server import wait_until

DIMENSION = 384
BATCH = 2_000


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


def fill(client: Client, counts: dict[RecordKind, int], seed: int) -> list[str]:
    """Stores the records; returns questions about them."""
    workload, topics = written(seed), TopicalVectors(DIMENSION, seed)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for kind, count in counts.items():
            task = progress.add_task(f"storing {kind}", total=count)
            for first in range(0, count, BATCH):
                some = min(BATCH, count - first)
                store(client, kind, workload.next_texts(some), topics.draw(some, topics.rng).tolist())
                progress.advance(task, some)
    wait_until(lambda: not client.timeline.status().text_pending_count, 1_800.0)
    return workload.next_queries(1_000)


def in_turn(ways: dict[str, Callable[[str], object]], questions: Sequence[str], seed: int) -> dict[str, list[float]]:
    """The milliseconds of each question by each way. Every question is new to each way, so that no cache answers."""
    rng, times = random.Random(seed), {name: list[float]() for name in ways}
    for number, question in enumerate(questions):
        names = list(ways)
        rng.shuffle(names)
        for name in names:
            asked = f"{question} {name} {number}"
            began = perf_counter()
            ways[name](asked)
            times[name].append(1_000 * (perf_counter() - began))
    return times


@click.command()
@click.option("--memories", default=60_000, show_default=True, help="Memories.")
@click.option("--others", default=10_000, show_default=True, help="Records of each other kind.")
@click.option("--questions", "count", default=100, show_default=True, help="Questions, by each way.")
@click.option("--seed", default=11, show_default=True, help="Seed of texts, vectors and the order.")
def main(*, memories: int, others: int, count: int, seed: int) -> None:
    """Measures recalls and searches, and prints a table."""
    kinds = (RecordKind.DOCUMENT, RecordKind.MEMORY, RecordKind.FACT, RecordKind.SEMANTIC, RecordKind.EVENT)
    counts = {kind: memories if kind is RecordKind.MEMORY else others for kind in kinds}
    with serving() as client:
        questions = fill(client, counts, seed)
        ways: dict[str, Callable[[str], object]] = {
            "search of the memories": lambda text: client.memories.search(text, limit=10, view=View.IDS),
            "recall of all five kinds": lambda text: client.recall(text, limit=10, view=View.IDS),
        }
        in_turn(ways, questions[count : count + 10], seed)
        times = in_turn(ways, questions[:count], seed)
    click.echo(f"{machine.describe()}\n\n{memories:,} memories, {others:,} of each other kind; {count} questions.\n")
    click.echo("| what | p50, ms | p95, ms | to the search of the memories |\n| --- | --- | --- | --- |")
    base = statistics.median(times["search of the memories"])
    for name, each in times.items():
        middle, high = statistics.median(each), statistics.quantiles(each, n=20)[-1]
        click.echo(f"| {name} | {middle:.1f} | {high:.1f} | {middle / base:.2f} |")


if __name__ == "__main__":
    main()
