"""What each embedding model costs: memory and start of the server, and bulk and query speed beside the default model.

    python -m tests.bench.models [--texts 500] [--rounds 5]

Two servers run at a time, the default model and another one, and take the same texts and queries in turn. The folder is
the default model in fp32, as an exporter would write it; the endpoint runs the default model in a process of its own.
Times are processor time: medians over rounds, of the server's process and, in brackets, of the endpoint's.
"""

import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import click
from mnemon import Client, SearchMode, View
from mnemon_server.embedding.built_in import MINILM, MULTILINGUAL
from mnemon_server.embedding.graph_cache import GraphCache
from mnemon_server.embedding.weights import find_model, package_folder
from rich.console import Console
from rich.progress import Progress

from tests.bench import machine
from tests.bench.processes import MnemonServer, OpenAIEndpoint, Process
from tests.bench.texts import Workload, written

QUERIES = 100
DEFAULT = MINILM.name
HEADINGS = (
    "model", "numbers", "memory, MiB", "start, s", "a text of a bulk, ms", "to default", "a query, ms", "to default"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Model:
    """A model, and how a server is told to use it."""

    name: str
    flags: tuple[str, ...]
    endpoint: Process | None = None


@dataclass(slots=True)
class Samples:
    """Seconds of processor time of the server and of its endpoint, for each text or query of a round."""

    bulk: list[tuple[float, float]] = field(default_factory=list)
    query: list[tuple[float, float]] = field(default_factory=list)


class Measured:
    """A server with one model."""

    def __init__(self, model: Model, folder: Path, stack: ExitStack) -> None:
        """Starts it twice, because the first start may have to build a graph."""
        folder.mkdir()
        MnemonServer(folder, *model.flags).stop()
        self.model = model
        self.samples = Samples()
        self._server = MnemonServer(folder, *model.flags)
        stack.callback(self._server.stop)
        self.start_s = self._server.processor_s()
        self._client = stack.enter_context(Client(self._server.address, timeout=300.0))
        self.dimension = self._client.documents.status().embedding_model.dimension
        self.memory_bytes = 0
        self._stored = 0

    def index(self, texts: Sequence[str]) -> None:
        """Stores the texts."""
        documents = ((f"d{self._stored + number}", text) for number, text in enumerate(texts))
        self._stored += len(texts)
        self.samples.bulk.append(self._timed(lambda: self._put(documents), len(texts)))

    def search(self, queries: Sequence[str]) -> None:
        """Asks the queries, one after the other."""
        self.samples.query.append(self._timed(lambda: self._ask(queries), len(queries)))
        self.memory_bytes = self._server.resident_bytes()

    def _put(self, documents: Iterator[tuple[str, str]]) -> None:
        for result in self._client.documents.put_many(documents):
            if result.error:
                raise result.error

    def _ask(self, queries: Sequence[str]) -> None:
        for query in queries:
            self._client.documents.search(query, mode=SearchMode.HYBRID, view=View.IDS)

    def _timed(self, call: Callable[[], None], count: int) -> tuple[float, float]:
        processes = [each for each in (self._server, self.model.endpoint) if each is not None]
        before = [each.processor_s() for each in processes]
        call()
        spent = [(each.processor_s() - start) / count for each, start in zip(processes, before, strict=True)]
        return spent[0], sum(spent[1:])

    def row(self, beside: "Measured") -> list[str]:
        """The columns of the table."""
        return [
            self.model.name,
            str(self.dimension),
            f"{self.memory_bytes / 2**20:.0f}",
            f"{self.start_s:.1f}",
            *_compared(self.samples.bulk, beside.samples.bulk),
            *_compared(self.samples.query, beside.samples.query),
        ]


def _compared(samples: list[tuple[float, float]], beside: list[tuple[float, float]]) -> tuple[str, str]:
    server = statistics.median(own for own, _ in samples)
    endpoint = statistics.median(other for _, other in samples)
    ratio = statistics.median(sum(one) / sum(other) for one, other in zip(samples, beside, strict=True))
    return f"{server * 1e3:.2f}" + (f" (+ {endpoint * 1e3:.2f})" if endpoint else ""), f"{ratio:.2f}"


def written_folder(folder: Path) -> Model | None:
    """The default model in fp32 as a folder with a graph; None if the package of its weights is not installed."""
    if package_folder(MINILM) is None:
        return None
    files = find_model(MINILM, None, folder)
    built = GraphCache(folder / "built", MINILM).build(files, "fp32")
    model = folder / "folder-model"
    model.mkdir()
    shutil.copyfile(built, model / "model.onnx")
    shutil.copyfile(files.tokenizer, model / "tokenizer.json")
    return Model("a folder: the default model in fp32", ("--embedding-model", str(model)))


def measure(model: Model, folder: Path, workload: Workload, texts: int, rounds: int) -> list[list[str]]:
    """The rows of the default model and of another one."""
    folder.mkdir()
    with ExitStack() as stack:
        first = Measured(Model(f"`{DEFAULT}`, the default", ("--embedding-model", DEFAULT)), folder / "first", stack)
        other = Measured(model, folder / "other", stack)
        servers = [first, other]
        for number in range(rounds + 1):
            batch, queries = workload.next_texts(texts), workload.next_queries(QUERIES)
            for server in servers[:: 1 if number % 2 else -1]:
                server.index(batch)
                server.search(queries)
            if not number:
                for server in servers:
                    server.samples = Samples()
        return [first.row(first), other.row(first)]


@click.command()
@click.option("--texts", default=500, show_default=True, help="Texts of a round.")
@click.option("--rounds", default=5, show_default=True, help="Rounds of each model.")
def main(texts: int, rounds: int) -> None:
    """Measures every model, and prints a table."""
    workload = written(11)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mnemon-bench-")))
        endpoint = OpenAIEndpoint(folder)
        stack.callback(endpoint.stop)
        flags = ("--embedding-endpoint", endpoint.url, "--embedding-model", "minilm")
        exported = written_folder(folder)
        if exported is None:
            click.echo(f"skipped: a folder, because {MINILM.package} is not installed", err=True)
        models = [
            Model("`multilingual`", ("--embedding-model", "multilingual")),
            exported,
            Model("an endpoint: the default model", flags, endpoint),
        ]
        found = [model for model in models if model is not None and _is_installed(model)]
        bar = stack.enter_context(Progress(console=Console(stderr=True)))
        pairs = [
            measure(model, folder / str(number), workload, texts, rounds)
            for number, model in enumerate(bar.track(found))
        ]
    click.echo(f"{machine.describe()}\n\n{workload.description}; {texts} texts and {QUERIES} queries a round\n")
    for cells in (HEADINGS, ("---",) * len(HEADINGS), pairs[0][0], *(row for _, row in pairs)):
        click.echo(f"| {' | '.join(cells)} |")


def _is_installed(model: Model) -> bool:
    if "multilingual" in model.flags and package_folder(MULTILINGUAL) is None:
        click.echo(f"skipped: multilingual, because {MULTILINGUAL.package} is not installed", err=True)
        return False
    return True


if __name__ == "__main__":
    main()
