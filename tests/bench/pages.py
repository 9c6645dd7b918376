"""What authenticated pages cost: a vault on the code of this checkout, and of one whose pages were plain, in turn.

    python -m tests.bench.pages CHECKOUT [--rounds 7] [--memories 5000]

Each round runs each phase in a fresh process of either checkout, which goes first by turns. Figures are medians of the
rounds; the ratio is the median of the rounds' ratios. Wall time contains the disk's syncs; processor time does not, and
counts all threads. Cold means that the pages are neither in SQLite's cache nor in that of the system. A warm start is
the median of nine, because a single one varies by more than what the pages cost.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import click

ROOT = Path(__file__).parents[2]

_CHILD = """
import json, os, random, statistics, sys, time
from datetime import UTC, datetime, timedelta
from pathlib import Path
import numpy as np
from mnemon_server.domain.collections import DOCUMENTS
from mnemon_server.domain.documents import Document
from mnemon_server.domain.events import Event
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.engines.promises.events import EventWrite
from mnemon_server.engines.promises.values import DocumentWrite, PassageInput
from mnemon_server.engines.sqlite_vault import SQLiteVault

folder, count, fill = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "fill"
DIMENSION = 384
rng = np.random.default_rng(1)
words = [f"word{number}" for number in range(2_000)]
pick = random.Random(2)
figures = {}

def write(name):
    text = " ".join(pick.choices(words, k=30))
    vector = rng.normal(size=DIMENSION).astype(np.float32)
    vector /= np.linalg.norm(vector)
    return DocumentWrite(document=Document(name, text), passages=[PassageInput(0, len(text), vector)])

def event(number):
    time_ = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
    fields = {"event_id": f"e{number}", "event_type": "conversation", "event_time": time_, "record_time": time_}
    return EventWrite(Event(**fields, content=" ".join(pick.choices(words, k=30))), id_is_new=False)

def measure(name, times, action):
    wall, processor = time.perf_counter(), time.process_time()
    for number in range(times):
        action(number)
    figures[name] = [1e3 * (time.perf_counter() - wall) / times, 1e3 * (time.process_time() - processor) / times]

def measure_starts(name, times):
    samples = []
    for _ in range(times):
        vault.close()
        measure(name, 1, lambda _: opened())
        samples.append(figures[name])
    figures[name] = [statistics.median(each) for each in zip(*samples)]

def opened():
    global vault, records
    vault = SQLiteVault(folder, model_identity=f"bench/{DIMENSION}", dimension=DIMENSION)
    records = vault.collection(DOCUMENTS)

def forget():
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)

def search(_):
    records.search_keywords(" ".join(pick.choices(words, k=3)))

def get(_):
    records.get_documents([f"d{pick.randrange(count)}"])

if fill:
    opened()
    batches = [[write(f"d{first + i}") for i in range(100)] for first in range(0, count, 100)]
    measure("bulk, per 100", len(batches), lambda number: records.put_documents(batches[number]).result())
    singles = [write(f"s{i}") for i in range(300)]
    measure("create", 300, lambda number: records.put_document(singles[number]).result())
    assert vault.events.wait_until_warm(60)
    appended = [event(number) for number in range(300)]
    measure("append", 300, lambda number: vault.events.append([appended[number]]).result())
    vault.close()
else:
    forget()
    measure("start, cold", 1, lambda _: opened())
    measure("get, cold", 300, get)
    measure_starts("start, warm", 9)
    measure("get, warm", 3_000, get)
    measure("search by words, warm", 300, search)
    vault.close()
    forget()
    opened()
    measure("list all, cold", 1, lambda _: records.list_documents(RecordFilter(), limit=count))
    measure("list all, warm", 3, lambda _: records.list_documents(RecordFilter(), limit=count))
    vault.close()
print(json.dumps(figures))
"""


def run(checkout: Path, folder: Path, count: int, phase: str) -> dict[str, list[float]]:
    """The milliseconds of each operation, of wall time and of processor time."""
    paths = os.pathsep.join(str(checkout / each) for each in ("server", "clients/python"))
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(folder), str(count), phase],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise click.ClickException(done.stderr)
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


@click.command()
@click.argument("checkout", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--rounds", default=7, show_default=True)
@click.option("--memories", "count", default=5_000, show_default=True, help="Documents in the vault.")
def main(checkout: Path, rounds: int, count: int) -> None:
    """Compares this checkout with CHECKOUT."""
    samples: dict[str, list[tuple[list[float], list[float]]]] = defaultdict(list)
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            order = [(ROOT, "after"), (checkout, "before")][:: 1 if number % 2 else -1]
            for phase in ("fill", "read"):
                found = {which: run(place, Path(name) / which, count, phase) for place, which in order}
                for operation, figures in found["before"].items():
                    samples[operation].append((figures, found["after"][operation]))
        click.echo(f"round {number + 1} of {rounds}", err=True)
    click.echo("| operation | plain, ms | authenticated, ms | ratio | ratio of processor time |")
    click.echo("| --- | --- | --- | --- | --- |")
    for operation, pairs in samples.items():
        before, after = (statistics.median(pair[side][0] for pair in pairs) for side in (0, 1))
        ratios = [statistics.median(pair[1][kind] / pair[0][kind] for pair in pairs) for kind in (0, 1)]
        click.echo(f"| {operation} | {before:.3g} | {after:.3g} | {ratios[0]:.2f} | {ratios[1]:.2f} |")


if __name__ == "__main__":
    main()
