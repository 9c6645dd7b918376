"""How searches, memory and disk grow with the number of vectors: the engine of a vault, and hnswlib alone beside it.

    python -m tests.bench.scale [--sizes 10000,30000,100000,300000,1000000] [--hnswlib-max 300000] [--vectors FILE.npy]
                                [--full-max 200000]

A vault is filled to each size in turn. Times of searches are medians of the processor time of single searches on one
thread, so that busy neighbours hardly count. `--vectors` takes embeddings of real texts; without it, or beyond them,
vectors are drawn around topics.
"""

import shutil
import statistics
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep, thread_time
from typing import Any

import click
import hnswlib
import numpy as np
from mnemon_server.domain.collections import MEMORIES
from mnemon_server.domain.documents import Document
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import Scope, SearchMode
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import DocumentWrite, PassageInput
from mnemon_server.engines.sqlite.scanners import DEFAULT_VECTORS, VectorSettings
from mnemon_server.engines.sqlite_vault import SQLiteVault, VaultSettings
from mnemon_server.services.search.passage_queries import PassageQuery
from mnemon_server.services.search.passage_search import PassageSearch
from rich.console import Console

from tests.bench import machine
from tests.bench.vectors import Vectors, topical_vectors

DIMENSION = 384
USERS = 100
"""A filter by user keeps one record in so many."""

QUERIES, LIMIT = 60, 10
IN_FLIGHT = 512
CACHE_BYTES = 512 << 20
HNSW_M, HNSW_EF_CONSTRUCTION, HNSW_EF = 16, 200, 128


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured at one size."""

    size: int
    writes_per_s: float
    search_ms: float
    filtered_ms: float
    recall: float
    hnswlib_ms: float | None
    hnswlib_recall: float | None
    open_s: float
    vectors_mib: float
    resident_mib: float
    disk_bytes: float

    def cells(self) -> list[str]:
        """The columns of the table."""
        ratio = "" if self.hnswlib_ms is None else f"{self.search_ms / self.hnswlib_ms:.1f}"
        alone = "" if self.hnswlib_ms is None else f"{self.hnswlib_ms:.2f} ms, {self.hnswlib_recall:.3f}"
        return [
            f"{self.size:,}",
            f"{self.writes_per_s:,.0f}",
            f"{self.search_ms:.2f} ms",
            f"{self.recall:.3f}",
            alone,
            ratio,
            f"{self.filtered_ms:.2f} ms",
            f"{self.open_s:.2f} s",
            f"{self.vectors_mib:,.0f} MiB",
            f"{self.resident_mib:,.0f} MiB",
            f"{self.disk_bytes:,.0f}",
        ]


HEADINGS = (
    "memories",
    "writes/s",
    "search",
    "recall@10",
    "hnswlib alone, recall@10",
    "ratio",
    "with a filter of 1 %",
    "open",
    "vectors",
    "resident",
    "bytes on disk each",
)


@click.command()
@click.option("--sizes", default="10000,30000,100000,300000,1000000", help="Numbers of memories, ascending.")
@click.option("--hnswlib-max", default=300_000, help="Up to this size, hnswlib alone is measured; it takes minutes.")
@click.option("--vectors", type=click.Path(exists=True, path_type=Path), help="Embeddings, of shape (n, 384).")
@click.option("--full-max", default=DEFAULT_VECTORS.full_max, help="Up to this size, vectors are held in full.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where the vault is created; by default, a new folder.")
def main(sizes: str, hnswlib_max: int, vectors: Path | None, full_max: int, folder: Path | None) -> None:
    """Measures at each size, and prints a table."""
    console = Console(stderr=True)
    counts = [int(size) for size in sizes.split(",")]
    data = _vectors(counts[-1] + QUERIES, vectors)
    queries, stored = data[:QUERIES], data[QUERIES:]
    home = Path(tempfile.mkdtemp(dir=folder))
    rows, alone = [], hnswlib.Index("ip", DIMENSION)
    alone.init_index(max(1, min(hnswlib_max, counts[-1])), M=HNSW_M, ef_construction=HNSW_EF_CONSTRUCTION)
    alone.set_num_threads(1)
    alone.set_ef(HNSW_EF)
    try:
        filled = 0
        for count in counts:
            with closing(_open(home, full_max)) as vault:
                writes_per_s = _fill(vault, stored, filled, count)
            if count <= hnswlib_max:
                alone.add_items(stored[filled:count], np.arange(filled, count))
            filled = count
            began = perf_counter()
            with closing(_open(home, full_max)) as vault:
                _wait_until_warm(vault.collection(MEMORIES))
                open_s = perf_counter() - began
                index = alone if count <= hnswlib_max else None
                rows.append(_measure(vault, home, stored[:count], queries, index, writes_per_s, open_s))
            console.print("  ".join(rows[-1].cells()))
    finally:
        shutil.rmtree(home)
    print(machine.describe() + "\n")
    for cells in (HEADINGS, ("---",) * len(HEADINGS), *(row.cells() for row in rows)):
        print(f"| {' | '.join(cells)} |")


def _vectors(count: int, file: Path | None) -> Vectors:
    real = np.empty((0, DIMENSION), np.float32)
    if file is not None:
        real = np.load(file, mmap_mode="r")[:count].astype(np.float32)
        real = real[np.random.default_rng(0).permutation(len(real))]
    if len(real) == count:
        return real
    return np.concatenate([real, topical_vectors(count - len(real), DIMENSION, 1)])


def _open(home: Path, full_max: int) -> SQLiteVault:
    settings = VaultSettings(VectorSettings(CACHE_BYTES, full_max=full_max))
    return SQLiteVault(home, model_identity="bench/1", dimension=DIMENSION, settings=settings)


def _fill(vault: SQLiteVault, stored: Vectors, start: int, stop: int) -> float:
    """Stores memories from `start` to `stop`; returns how many per second."""
    records = vault.collection(MEMORIES)
    began = perf_counter()
    waiting: deque[Future[Any]] = deque()
    for write in _writes(stored, start, stop):
        waiting.append(records.put_document(write))
        if len(waiting) == IN_FLIGHT:
            waiting.popleft().result()
    for future in waiting:
        future.result()
    rate = (stop - start) / (perf_counter() - began)
    _wait_until_warm(records)
    return rate


def _writes(stored: Vectors, start: int, stop: int) -> Iterator[DocumentWrite]:
    for number in range(start, stop):
        text = f"On day {number} user {number % USERS} said that thing {number * 7 % 9973} is better than the others."
        document = Document(f"m{number}", text, scope=Scope(user=f"u{number % USERS}"))
        yield DocumentWrite(document=document, passages=[PassageInput(0, len(text), stored[number])])


def _wait_until_warm(records: RecordEngine) -> None:
    """Waits until all vectors are in the graph, if there is one or will be one."""
    usage = records.vector_usage()
    while usage.building_count or not usage.warm:
        sleep(0.1)
        usage = records.vector_usage()


def _measure(
    vault: SQLiteVault,
    home: Path,
    stored: Vectors,
    queries: Vectors,
    alone: Any,
    writes_per_s: float,
    open_s: float,
) -> Row:
    records = vault.collection(MEMORIES)
    search = PassageSearch(records, _refuse)
    truth = [set(np.argpartition(-(stored @ query), LIMIT)[:LIMIT].tolist()) for query in queries]
    found: list[set[int]] = []

    def ask(query: Vectors, where: RecordFilter) -> None:
        asked = PassageQuery(vector=query, where=where, mode=SearchMode.VECTOR, limit=LIMIT)
        found.append({int(hit.document.doc_id[1:]) for hit in search.find(asked).hits})

    search_s = _median([lambda query=query: ask(query, RecordFilter()) for query in queries])
    recall = _shared(truth, found[: len(queries)])
    user = RecordFilter(scope=Scope(user="u7"))
    filtered_s = _median([lambda query=query: ask(query, user) for query in queries])
    labels: list[set[int]] = []
    alone_s = None
    if alone is not None:
        alone_s = _median([lambda query=query: labels.append(_labels(alone, query)) for query in queries])
    usage = records.vector_usage()
    row = Row(
        size=len(stored),
        writes_per_s=writes_per_s,
        search_ms=1e3 * search_s,
        filtered_ms=1e3 * filtered_s,
        recall=recall,
        hnswlib_ms=None if alone_s is None else 1e3 * alone_s,
        hnswlib_recall=None if alone_s is None else _shared(truth, labels),
        open_s=open_s,
        vectors_mib=usage.bytes / 2**20,
        resident_mib=_resident_bytes() / 2**20,
        disk_bytes=sum(path.stat().st_size for path in home.rglob("*") if path.is_file()) / len(stored),
    )
    search.close()
    return row


def _labels(index: Any, query: Vectors) -> set[int]:
    labels, _ = index.knn_query(query, k=LIMIT)
    return set(labels[0].tolist())


def _shared(expected: list[set[int]], found: list[set[int]]) -> float:
    """The mean share of the expected that was found."""
    return statistics.mean(len(one & other) / len(one) for one, other in zip(expected, found, strict=True))


def _median(calls: list[Callable[[], Any]]) -> float:
    """The median processor time of a call, in seconds."""
    times = []
    for call in calls:
        began = thread_time()
        call()
        times.append(thread_time() - began)
    return statistics.median(times)


def _refuse(text: str) -> Vectors:
    raise AssertionError(f"queries have vectors: {text}")


def _resident_bytes() -> int:
    """Memory of this process, with the vectors of the benchmark itself."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) << 10


if __name__ == "__main__":
    main()
