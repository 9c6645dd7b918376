"""Speed as a ratio to the best that the machine could do: the bare model in process.

    python -m tests.bench.speed [--data FOLDER] [--documents 10000] [--output FILE]

Compared operations alternate within one run, on the same texts. Figures are medians over the rounds.
"""

import statistics
import sys
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

from tests.bench import machine
from tests.bench.embedders import bare_embedder, sentence_transformers_embedder
from tests.bench.serving import serving
from tests.bench.texts import Workload, mixed, written

TEXTS_PER_ROUND = 1_000
TORCH_TEXTS_PER_ROUND = 250
QUERIES_PER_MODE = 40
CREATES_PER_ROUND = 40
PENDING_TIMEOUT_S = 600.0

BULK_GOAL, TORCH_GOAL, SEARCH_GOAL = 0.85, 2.0, 1.6
CREATE_GOAL = 100
"""Creates per second."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: the measurement, the baseline and their ratio."""

    what: str
    measured: str
    beside: str
    ratio: str
    goal: str = ""


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
        rows = [_rate_row("index in bulk", samples.bulk, "bare embedder", samples.bare, BULK_GOAL)]
        if samples.torch:
            rows.append(_rate_row("index in bulk", samples.bulk, "sentence-transformers", samples.torch, TORCH_GOAL))
        else:
            reason = "skipped: sentence-transformers is not installed"
            rows.append(Row("index in bulk", "", "sentence-transformers", reason, f">= {TORCH_GOAL:g}"))
        for mode in (SearchMode.HYBRID, SearchMode.VECTOR, SearchMode.KEYWORD):
            goal = SEARCH_GOAL if mode is SearchMode.HYBRID else None
            rows.append(_latency_row(f"search, {mode}, p50", samples.search[mode], samples.embed, goal))
        rows.append(_create_row(samples.create, samples.embed_new))
        rows.append(_latency_row("a call that only counts, p50", samples.empty, samples.embed, None))
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


def _rate_row(what: str, measured: list[float], beside_what: str, beside: list[float], goal: float) -> Row:
    ratio = statistics.median(one / other for one, other in zip(measured, beside, strict=True))
    return Row(
        what,
        f"{statistics.median(measured):.0f} texts/s",
        f"{beside_what}: {statistics.median(beside):.0f} texts/s",
        f"{ratio:.2f}",
        f">= {goal:g}: {'met' if ratio >= goal else 'missed'}",
    )


def _latency_row(what: str, measured: list[float], beside: list[float], goal: float | None) -> Row:
    ratio = statistics.median(measured) / statistics.median(beside)
    return Row(
        what,
        f"{statistics.median(measured) * 1e3:.1f} ms",
        f"embedding the query alone: {statistics.median(beside) * 1e3:.1f} ms",
        f"{ratio:.2f}",
        "" if goal is None else f"<= {goal:g}: {'met' if ratio <= goal else 'missed'}",
    )


def _create_row(created: list[float], embedded: list[float]) -> Row:
    measured, beside = 1 / statistics.median(created), 1 / statistics.median(embedded)
    return Row(
        "create a memory from its text, one in flight",
        f"{measured:.0f}/s",
        f"embedding the text alone: {beside:.0f}/s",
        f"{measured / beside:.2f}",
        f">= {CREATE_GOAL}/s: {'met' if measured >= CREATE_GOAL else 'missed'}",
    )


def markdown(rows: Sequence[Row], *, command: str, note: str) -> str:
    """The table with the commands to reproduce it."""
    lines = ["| what | over gRPC | beside | ratio | goal |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {row.what} | {row.measured} | {row.beside} | {row.ratio} | {row.goal} |" for row in rows]
    return "\n".join([machine.describe(), "", f"    {command}", "", note, "", *lines, ""])


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
    table = markdown(measurement.rows(), command=_command(), note=note)
    click.echo(table)
    if output:
        with output.open("a", encoding="utf-8") as file:
            file.write(f"\n{table}")


def _steps(measurement: Measurement, rounds: int, documents: int) -> list[Callable[[], None]]:
    return [
        measurement.warm_up,
        *[measurement.index_round] * rounds,
        lambda: measurement.fill(documents),
        *[measurement.search_round] * rounds,
        *[measurement.create_round] * rounds,
    ]


def _command() -> str:
    return " ".join(["python -m tests.bench.speed", *sys.argv[1:]])


if __name__ == "__main__":
    main()
