"""Speed as a ratio to the best that the machine could do: the bare model in process.

    python -m tests.bench.speed [--data FOLDER] [--documents 10000] [--output FILE]

Compared operations alternate within one run, on the same texts. Figures are medians over the rounds.
"""

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, perf_counter, sleep

import click
from mnemon import Client, SearchMode, View
from mnemon_server.embedding.base import Embedder
from rich.console import Console
from rich.progress import Progress

from tests.bench.embedders import bare_embedder, sentence_transformers_embedder
from tests.bench.ratios import Row, at_least, rate_row, report, time_row
from tests.bench.serving import serving
from tests.bench.texts import Workload, mixed, written

TEXTS_PER_ROUND = 1_000
TORCH_TEXTS_PER_ROUND = 250
QUERIES_PER_MODE = 40
CREATES_PER_ROUND = 40
PENDING_TIMEOUT_S = 600.0

BULK_GOAL, TORCH_GOAL, SEARCH_GOAL = 0.85, 2.0, 1.6
TEXTS, QUERY = " texts/s", "embedding the query alone"
CREATE_GOAL = 100
"""Creates per second."""


@dataclass(slots=True)
class _Samples:
    """Texts per second, one value per round. Seconds, one value per query. `empty`: a call that does little."""

    bulk: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    torch: list[float] = field(default_factory=list)
    embed: list[float] = field(default_factory=list)
    embed_new: list[float] = field(default_factory=list)
    create: list[float] = field(default_factory=list)
    empty: list[float] = field(default_factory=list)
    search: dict[SearchMode, list[float]] = field(default_factory=lambda: {mode: [] for mode in SearchMode})


class Measurement:
    """One run against one server that has no other load."""

    def __init__(self, client: Client, bare: Embedder, torch: Embedder | None, workload: Workload) -> None:
        self._client, self._bare, self._torch, self._workload = client, bare, torch, workload
        self._samples = _Samples()
        self._indexed = 0

    def warm_up(self) -> None:
        """Triggers everything that is built on first use."""
        for embedder in filter(None, (self._bare, self._torch)):
            embedder.embed(self._workload.next_texts(64))
        self._index(self._workload.next_texts(256))
        self._client.memories.add(*self._workload.next_texts(1))
        for mode in SearchMode:
            self._client.documents.search(*self._workload.next_texts(1), mode=mode)

    def index_round(self) -> None:
        """The same new texts for the bare model and the server, and some of them for sentence-transformers."""
        texts = self._workload.next_texts(TEXTS_PER_ROUND)
        self._wait_until_applied()
        self._samples.bare.append(_rate(self._bare.embed, texts))
        self._samples.bulk.append(_rate(self._index, texts))
        self._wait_until_applied()
        if self._torch is not None:
            self._samples.torch.append(_rate(self._torch.embed, texts[:TORCH_TEXTS_PER_ROUND]))

    def fill(self, count: int) -> None:
        """Indexes more texts until the server holds this many documents."""
        if (missing := count - self._indexed) > 0:
            self._index(self._workload.next_texts(missing))
        self._wait_until_applied()

    def search_round(self) -> None:
        """New queries, each embedded by the bare model and then searched for."""
        for mode in SearchMode:
            for query in self._workload.next_queries(QUERIES_PER_MODE):
                self._samples.embed.append(_seconds(self._bare.embed, [query]))
                self._samples.search[mode].append(_seconds(self._search, query, mode))
                self._samples.empty.append(_seconds(self._client.documents.count))

    def create_round(self) -> None:
        """New memories without vectors, one in flight, each embedded by the bare model before."""
        for text in self._workload.next_texts(CREATES_PER_ROUND):
            self._samples.embed_new.append(_seconds(self._bare.embed, [text]))
            self._samples.create.append(_seconds(self._client.memories.add, text))

    def rows(self) -> list[Row]:
        """The table."""
        samples = self._samples
        rows = [rate_row("index in bulk", samples.bulk, "bare embedder", samples.bare, BULK_GOAL, unit=TEXTS)]
        if samples.torch:
            rows.append(
                rate_row("index in bulk", samples.bulk, "sentence-transformers", samples.torch, TORCH_GOAL, unit=TEXTS)
            )
        else:
            reason = "skipped: sentence-transformers is not installed"
            rows.append(Row("index in bulk", "", "sentence-transformers", reason, f">= {TORCH_GOAL:g}"))
        for mode in (SearchMode.HYBRID, SearchMode.VECTOR, SearchMode.KEYWORD):
            goal = SEARCH_GOAL if mode is SearchMode.HYBRID else None
            rows.append(time_row(f"search, {mode}, p50", samples.search[mode], QUERY, samples.embed, goal))
        created, embedded = 1 / statistics.median(samples.create), 1 / statistics.median(samples.embed_new)
        beside, ratio = f"embedding the text alone: {embedded:.0f}/s", f"{created / embedded:.2f}"
        what, goal_met = "create a memory from its text, one in flight", at_least(created, CREATE_GOAL, "/s")
        rows.append(Row(what, f"{created:.0f}/s", beside, ratio, goal_met))
        rows.append(time_row("a call that only counts, p50", samples.empty, QUERY, samples.embed))
        return rows

    def _index(self, texts: Sequence[str]) -> None:
        documents = ((f"bench-{self._indexed + i}", text) for i, text in enumerate(texts))
        for result in self._client.documents.put_many(documents):
            if result.error:
                raise result.error
        self._indexed += len(texts)

    def _search(self, query: str, mode: SearchMode) -> None:
        self._client.documents.search(query, mode=mode, view=View.STANDARD)

    def _wait_until_applied(self) -> None:
        """Waits for the vector database, which gets documents after the acknowledgement. This is not measured."""
        deadline = monotonic() + PENDING_TIMEOUT_S
        while pending := self._client.documents.status().pending:
            if monotonic() > deadline:
                raise click.ClickException(f"{pending} documents are still to be applied to the vector database")
            sleep(0.05)


def _seconds(call: Callable[..., object], *arguments: object) -> float:
    started = perf_counter()
    call(*arguments)
    return perf_counter() - started


def _rate(call: Callable[[Sequence[str]], object], texts: Sequence[str]) -> float:
    return len(texts) / _seconds(call, texts)


@click.command()
@click.option("--data", type=click.Path(path_type=Path), help="Folder of conversations to take the texts from.")
@click.option("--documents", default=10_000, show_default=True, help="Documents that are searched.")
@click.option("--rounds", default=5, show_default=True, help="Rounds of each measurement.")
@click.option("--seed", default=11, show_default=True, help="Seed of the texts.")
@click.option("--output", type=click.Path(path_type=Path), help="File that the table is added to.")
def main(data: Path | None, documents: int, rounds: int, seed: int, output: Path | None) -> None:
    """Measures speed on its own server."""
    workload = mixed(data, seed) if data else written(seed)
    if workload is None:
        click.echo(f"skipped: {data} holds no conversations", err=True)
        return
    console = Console(stderr=True)
    with ExitStack() as stack:
        client = stack.enter_context(serving())
        model = client.documents.status().embedding_model
        bare = stack.enter_context(bare_embedder(model))
        torch = stack.enter_context(sentence_transformers_embedder())
        measurement = Measurement(client, bare, torch, workload)
        progress = stack.enter_context(Progress(console=console, disable=not console.is_terminal, transient=True))
        for step in progress.track(_steps(measurement, rounds, documents), total=3 * rounds + 2):
            step()
    note = (
        f"{model.name}, {model.precision}; {workload.description}; medians of {rounds} rounds; {documents:,} documents "
        "are searched, and no query is asked twice."
    )
    report(measurement.rows(), "tests.bench.speed", note, output)


def _steps(measurement: Measurement, rounds: int, documents: int) -> list[Callable[[], None]]:
    return [
        measurement.warm_up,
        *[measurement.index_round] * rounds,
        lambda: measurement.fill(documents),
        *[measurement.search_round] * rounds,
        *[measurement.create_round] * rounds,
    ]


if __name__ == "__main__":
    main()
