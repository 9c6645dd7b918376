"""What changing the embedding model of a vault costs, in each direction, with and without its server running.

    python -m tests.bench.reembedding [--records 10000]

Times are processor time of the command. Between the changes, a server with the new model answers searches.
"""

import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import click
from mnemon import Client, SearchMode, View
from mnemon_server.embedding.built_in import MINILM, UNIVERSAL

from tests.bench import machine
from tests.bench.processes import MnemonServer, clean_environment, other_checkout
from tests.bench.texts import written

HEADINGS = ("from", "to", "with the server running", "without, records", "processor time, s", "wall time, s")


@contextmanager
def serving(folder: Path, model: str) -> Iterator[Client]:
    """A client of a server with this model on the folder."""
    server = MnemonServer(folder, "--embedding-model", model)
    try:
        with Client(server.address, timeout=300.0) as client:
            yield client
    finally:
        server.stop()


def reembed(folder: Path, model: str) -> subprocess.CompletedProcess[str]:
    """Runs the command."""
    command = [sys.executable, "-m", "mnemon_server", "reembed", "--data-dir", str(folder / "data")]
    environment = clean_environment(other_checkout())
    return subprocess.run(
        [*command, "--embedding-model", model], capture_output=True, text=True, check=False, env=environment
    )


def change(folder: Path, before: str, after: str, query: str) -> list[str]:
    """Changes the model of a folder; returns the columns of the table."""
    with serving(folder, before) as client:
        count = client.documents.count()
        refused = reembed(folder, after)
        if refused.returncode == 0 or "stop the server" not in refused.stderr:
            raise click.ClickException(f"the command did not refuse: {refused.stdout}{refused.stderr}")
        _check(client, before, count, query)
    used, started = _processor_s(), perf_counter()
    done = reembed(folder, after)
    if done.returncode:
        raise click.ClickException(done.stderr)
    seconds = [_processor_s() - used, perf_counter() - started]
    with serving(folder, after) as client:
        _check(client, after, count, query)
    return [before, after, "refused, nothing changed", f"{count:,}", *(f"{each:.1f}" for each in seconds)]


def _check(client: Client, model: str, count: int, query: str) -> None:
    status = client.documents.status()
    found = client.documents.search(query, mode=SearchMode.VECTOR, limit=10, view=View.IDS)
    if client.documents.count() != count or len(found.results) != 10 or status.embedding_model.name != model:
        raise click.ClickException(f"the vault is not as it was: {status}")


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@click.command()
@click.option("--records", default=10_000, show_default=True, help="Records of the vault.")
def main(records: int) -> None:
    """Changes the model to the other built-in one and back, and prints a table."""
    workload = written(11)
    [query] = workload.next_queries(1)
    with tempfile.TemporaryDirectory(prefix="mnemon-bench-") as name:
        folder = Path(name)
        with serving(folder, MINILM.name) as client:
            documents = ((f"d{number}", text) for number, text in enumerate(workload.next_texts(records)))
            for result in client.documents.put_many(documents):
                if result.error:
                    raise result.error
        rows = [
            change(folder, MINILM.name, UNIVERSAL.name, query),
            change(folder, UNIVERSAL.name, MINILM.name, query),
        ]
    click.echo(f"{machine.describe()}\n\n{workload.description}\n")
    for cells in (HEADINGS, ("---",) * len(HEADINGS), *rows):
        click.echo(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
