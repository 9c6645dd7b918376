"""What calls cost while a server embeds all records with a second model, and what the exchange costs.

    python -m tests.bench.shadow_model [--records 100000] [--folder FOLDER]

Callers begin calls at fixed times, whether earlier ones have ended or not. Times without and with the second model are
taken in turns, each from a server that was just started on the same folder. In the last turn, the load goes on until
no vector is missing. Every acknowledged write must be there after the exchange, with a vector of the new model.
"""

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, sleep

import click
import numpy as np
from mnemon import Client, SearchMode, View
from mnemon_server.domain.backup import RECORDS
from mnemon_server.embedding.built_in import MINILM, UNIVERSAL
from mnemon_server.engines.sqlite.schema import open_reader
from mnemon_server.engines.sqlite.upkeep.shadow import progress_of
from mnemon_server.engines.vault_key import VaultKeyFile

from tests.bench import machine
from tests.bench.processes import MnemonServer, clean_environment
from tests.bench.texts import Workload, written

WRITES_PER_S, SEARCHES_PER_S = 5.0, 10.0
CALLERS = 16
POLL_S = 2.0
FORMER = ("--embedding-model", MINILM.name)
SECOND = (*FORMER, "--embedding-shadow-model", UNIVERSAL.name)


@dataclass
class Load:
    """Calls at fixed times, how long each took in milliseconds, and what was acknowledged."""

    workload: Workload
    writes: dict[str, list[float]] = field(default_factory=lambda: {"without": [], "with": []})
    searches: dict[str, list[float]] = field(default_factory=lambda: {"without": [], "with": []})
    acknowledged: list[str] = field(default_factory=list)

    @contextmanager
    def running(self, address: str, turn: str) -> Iterator[None]:
        """Calls as long as the block lasts. An error of a call ends the measurement."""
        stop = threading.Event()
        with Client(address, timeout=60.0) as client, ThreadPoolExecutor(CALLERS) as pool:
            client.documents.search("what is there?", limit=10)
            begun = [
                pool.submit(self._repeat, stop, pool, 1 / WRITES_PER_S, lambda due: self._write(client, turn, due)),
                pool.submit(self._repeat, stop, pool, 1 / SEARCHES_PER_S, lambda due: self._search(client, turn, due)),
            ]
            try:
                yield
            finally:
                stop.set()
            for each in begun:
                for call in each.result():
                    call.result()

    def _repeat(
        self, stop: threading.Event, pool: ThreadPoolExecutor, interval_s: float, call: Callable[[float], None]
    ) -> list[Future[None]]:
        calls, due = list[Future[None]](), perf_counter()
        while not stop.is_set():
            calls.append(pool.submit(call, due))
            due += interval_s
            stop.wait(max(0.0, due - perf_counter()))
        return calls

    def _write(self, client: Client, turn: str, due: float) -> None:
        [text] = self.workload.next_texts(1)
        doc_id = f"w{len(self.acknowledged)}-{due}"
        client.documents.put(doc_id, text)
        self.writes[turn].append(1000 * (perf_counter() - due))
        self.acknowledged.append(doc_id)

    def _search(self, client: Client, turn: str, due: float) -> None:
        [query] = self.workload.next_queries(1)
        client.documents.search(query, limit=10, view=View.IDS)
        self.searches[turn].append(1000 * (perf_counter() - due))


def status(folder: Path) -> dict[str, object]:
    """What `mnemon-server shadow status` says of the only tenant."""
    command = [sys.executable, "-m", "mnemon_server", "shadow", "status", "--json", "--data-dir", str(folder / "data")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean_environment(None))
    [row] = json.loads(done.stdout)
    return dict(row)


def is_complete(folder: Path) -> bool:
    """Whether no vector is missing. Unlike the command, it does not compare the models, which reads all vectors."""
    keys = VaultKeyFile(folder / "data/tenants/default")
    with closing(open_reader(keys.folder / RECORDS, keys)) as connection:
        progress = progress_of(connection)
    return progress is not None and progress.is_complete


def fill(folder: Path, workload: Workload, records: int) -> None:
    """Adds the missing records."""
    server = MnemonServer(folder, *FORMER)
    try:
        with Client(server.address, timeout=600.0) as client:
            stored = client.documents.count()
            texts = workload.next_texts(records)[stored:]
            for result in client.documents.put_many((f"d{stored + n}", text) for n, text in enumerate(texts)):
                if result.error:
                    raise result.error
        server.wait_until_idle()
    finally:
        server.stop()


def turns(folder: Path, load: Load, rounds: int, seconds: float) -> float:
    """The turns; returns how long the whole embedding took."""
    embedding_s = 0.0
    for number in range(rounds):
        for turn, flags in (("without", FORMER), ("with", SECOND)):
            server = MnemonServer(folder, *flags)
            try:
                with load.running(server.address, turn):
                    began = perf_counter()
                    sleep(seconds)
                    while turn == "with" and number == rounds - 1 and not is_complete(folder):
                        sleep(POLL_S)
                    embedding_s += perf_counter() - began if turn == "with" else 0.0
            finally:
                server.stop()
    return embedding_s


def exchanged(folder: Path, load: Load, records: int) -> float:
    """Starts the server with the new model and checks it; returns the seconds until it answered."""
    began = perf_counter()
    server = MnemonServer(folder, "--embedding-model", UNIVERSAL.name)
    try:
        with Client(server.address, timeout=300.0) as client:
            found = client.documents.search("what is there?", mode=SearchMode.VECTOR, limit=10, view=View.IDS)
            seconds = perf_counter() - began
            stored = {document.doc_id for document in client.documents.list(view=View.IDS)}
            lost = [doc_id for doc_id in load.acknowledged if doc_id not in stored]
            name = client.documents.status().embedding_model.name
            if lost or len(found.results) != 10 or name != UNIVERSAL.name or len(stored) < records:
                raise click.ClickException(f"{len(lost)} acknowledged writes are lost; the model is {name}")
    finally:
        server.stop()
    return seconds


def row(what: str, samples: dict[str, list[float]]) -> str:
    """A row of the table."""
    cells = [what, f"{len(samples['without']):,}", f"{len(samples['with']):,}"]
    for share in (50, 99):
        without, beside = (float(np.percentile(samples[turn], share)) for turn in ("without", "with"))
        cells += [f"{without:.1f}", f"{beside:.1f}", f"{beside / without:.2f}"]
    return f"| {' | '.join(cells)} |"


@click.command()
@click.option("--records", default=100_000, show_default=True, help="Records of the vault.")
@click.option("--rounds", default=3, show_default=True, help="Turns without and with the second model.")
@click.option("--seconds", default=30.0, show_default=True, help="Length of a turn.")
@click.option("--folder", type=click.Path(path_type=Path), help="Keeps the records here, for a later measurement.")
@click.option("--fill-only", is_flag=True, help="Only makes the records.")
def main(records: int, rounds: int, seconds: float, folder: Path | None, *, fill_only: bool) -> None:
    """Embeds a vault with a second model under load, and prints tables."""
    with ExitStack() as stack:
        home = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mnemon-bench-")))
        home.mkdir(exist_ok=True)
        fill(home, written(11), records)
        if fill_only:
            return
        load = Load(written(12))
        embedding_s = turns(home, load, rounds, seconds)
        found = status(home)
        start_s = exchanged(home, load, records)
    click.echo(f"{machine.describe()}\n\n{load.workload.description}\n")
    heading = ("call", "without", "with", "p50, ms", "with", "ratio", "p99, ms", "with", "ratio")
    for cells in (heading, ("---",) * len(heading)):
        click.echo(f"| {' | '.join(cells)} |")
    click.echo(row("write", load.writes))
    click.echo(row("hybrid search", load.searches))
    click.echo(
        f"\n{found['done']:,} passages in {embedding_s:.0f} s; overlap@10 {found['overlap_at_10']:.2f}\n"
        f"{len(load.acknowledged):,} acknowledged writes, none lost; the start with the new model answered the first "
        f"search after {start_s:.1f} s"
    )


if __name__ == "__main__":
    main()
