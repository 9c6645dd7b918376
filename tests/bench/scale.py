"""How the cost of calls, memory and disk grow with the number of memories: a server with default settings, over gRPC.

    python -m tests.bench.scale [--sizes 10000,30000,100000,300000,1000000] [--folder FOLDER] [--plot FILE.svg]
                                [--hnswlib-max 300000] [--vectors FILE.npy] [--python PYTHON]

Each size has a vault of its own. Queries have their vectors, so nothing is embedded. A cell of the table has the median
time of a call as its caller sees it, and the server's processor time, which says more on a busy machine. With
`--folder`, vaults and results stay there, and another run continues where it stopped. With `--python`, the server
runs in another environment: that of `make serve` has no hnswlib.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter

import click
import hnswlib
import numpy as np
from rich.console import Console
from rich.progress import Progress

from tests.bench.processes import MnemonServer
from tests.bench.scale_calls import Caller, searching_beside
from tests.bench.scale_data import DIMENSION, LIMIT, USER_SIZE, Block, Corpus, ExactAnswers
from tests.bench.scale_report import Figure, Row, draw, tables

HNSW_M, HNSW_EF_CONSTRUCTION, HNSW_EF = 16, 200, 128
BESIDE_SHARE, BESIDE_MAX = 5, 50_000
"""The last fifth of a bulk load, at most so many memories, has searches beside it."""


class Measurement:
    """Measures one size after another, ascending."""

    def __init__(
        self, home: Path, corpus: Corpus, hnswlib_max: int, python: str, advance: Callable[[int], None]
    ) -> None:
        self._home, self._corpus, self._hnswlib_max, self._python = home, corpus, hnswlib_max, python
        self._advance = advance
        self._exact = ExactAnswers(corpus.query_vectors)
        self._exact_count = 0
        self._alone = hnswlib.Index("ip", DIMENSION)
        self._alone.init_index(hnswlib_max, M=HNSW_M, ef_construction=HNSW_EF_CONSTRUCTION)
        self._alone.set_ef(HNSW_EF)

    def measure(self, size: int) -> Row:
        """Fills a vault, if it is not yet filled, and measures calls."""
        result = self._home / str(size) / "result.json"
        if result.exists():
            self._advance(size)
            return Row.from_json(json.loads(result.read_text(encoding="utf-8")))
        result.parent.mkdir(exist_ok=True)
        row = Row(size)
        blocks = self._drawn(size)
        row.figures |= self._filled(result.parent, size, blocks)
        row.figures |= self._started(result.parent, size)
        row.figures |= self._measured_alone(size, blocks)
        result.write_text(json.dumps(row.to_json()), encoding="utf-8")
        return row

    def _drawn(self, size: int) -> list[Block]:
        """All memories. Those that are new since the last size also go to the exact answers."""
        blocks = []
        for block in self._corpus.blocks(0, size):
            blocks.append(block)
            if new := block.since(self._exact_count):
                self._exact.add(new)
        self._exact_count = size
        return blocks

    def _filled(self, folder: Path, size: int, blocks: list[Block]) -> dict[str, Figure]:
        """Fills the vault. Measured is the second half of the load: first alone, then with searches beside it."""
        beside = size - min(size // BESIDE_SHARE, BESIDE_MAX)
        figures: dict[str, Figure] = {}
        with self._serving(folder) as server, Caller(server, self._corpus, size) as caller:
            if caller.count() >= size:
                self._advance(size)
                return figures
            caller.fill(_between(blocks, 0, size // 2), self._advance)
            figures["create in bulk, each"] = caller.fill(_between(blocks, size // 2, beside), self._advance)
            with searching_beside(server.address, self._corpus) as latencies:
                caller.fill(_between(blocks, beside, size), self._advance)
            figures["hybrid search during bulk, p99"] = Figure(float(np.quantile(latencies, 0.99)))
            server.wait_until_idle()
            figures["memory after the load"] = Figure(server.resident_bytes(), unit="MiB")
        return figures

    def _started(self, folder: Path, size: int) -> dict[str, Figure]:
        with self._serving(folder) as server, Caller(server, self._corpus, size) as caller:
            caller.wait_until_warm(0)
            server.wait_until_idle()
            graph_count = caller.graph_count()
        began = perf_counter()
        with self._serving(folder) as server, Caller(server, self._corpus, size) as caller:
            caller.wait_until_warm(graph_count)
            figures = {"warm start": Figure(perf_counter() - began, server.processor_s())}
            server.wait_until_idle()
            figures |= caller.measure_all(self._exact)
            figures["resident memory"] = Figure(server.resident_bytes(), unit="MiB")
        # The write-ahead log is empty now.
        files = (path.stat().st_size for path in (folder / "data").rglob("*") if path.is_file())
        figures["disk, a memory"] = Figure(sum(files) / size, unit="bytes")
        return figures

    def _measured_alone(self, size: int, blocks: list[Block]) -> dict[str, Figure]:
        """Searches by hnswlib, with the same vectors in this process."""
        if size > self._hnswlib_max:
            return {}
        for block in _between(blocks, self._alone.get_current_count(), size):
            self._alone.add_items(block.vectors, np.arange(block.start, block.start + len(block.texts)))
        times, found = [], []
        for query in self._corpus.query_vectors:
            began = perf_counter()
            labels, _ = self._alone.knn_query(query, k=LIMIT, num_threads=1)
            times.append(perf_counter() - began)
            found.append(labels[0].tolist())
        recall = Figure(self._exact.recall(found), unit="recall")
        return {"hnswlib alone": Figure(float(np.median(times))), "hnswlib alone, recall@10": recall}

    @contextmanager
    def _serving(self, folder: Path) -> Iterator[MnemonServer]:
        server = MnemonServer(folder, python=self._python)
        try:
            yield server
        finally:
            server.stop()


def _between(blocks: list[Block], start: int, stop: int) -> list[Block]:
    return [part for block in blocks if (part := block.since(start)) and (part := part.until(stop))]


@click.command()
@click.option("--sizes", default="10000,30000,100000,300000,1000000", help="Numbers of memories, ascending.")
@click.option("--hnswlib-max", default=300_000, help="Up to this size, hnswlib alone is measured; it takes minutes.")
@click.option("--vectors", type=click.Path(exists=True, path_type=Path), help="Embeddings, of shape (n, 384).")
@click.option("--python", default=sys.executable, help="The interpreter of the server's environment.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where vaults and results stay, some GB.")
@click.option("--plot", type=click.Path(path_type=Path), help="File of a plot of cost against size.")
def main(
    sizes: str, hnswlib_max: int, vectors: Path | None, python: str, folder: Path | None, plot: Path | None
) -> None:
    """Measures at each size, and prints tables."""
    counts = sorted(int(size) for size in sizes.split(","))
    home = Path(tempfile.mkdtemp(prefix="mnemon-bench-")) if folder is None else folder
    home.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True)
    rows: list[Row] = []
    try:
        with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
            task = progress.add_task("memories", total=sum(counts))
            measurement = Measurement(home, Corpus(vectors), hnswlib_max, python, partial(progress.advance, task))
            for count in counts:
                rows.append(measurement.measure(count))
                console.print(rows[-1].summary())
    finally:
        if folder is None:
            shutil.rmtree(home)
    note = f"Users of {USER_SIZE} memories each. In parentheses: processor time of the server."
    click.echo(tables(rows, command=" ".join(["python -m tests.bench.scale", *sys.argv[1:]]), note=note))
    if plot is not None:
        draw(rows, plot)


if __name__ == "__main__":
    main()
