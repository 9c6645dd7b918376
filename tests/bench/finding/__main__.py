"""Recall of the searches that an agent calls, beside plain vectors, plain BM25 and Chroma on the same texts.

    python -m tests.bench.finding [DATA] [--sets chats] [--searches documents,facts] [--json FILE]

The chats with an assistant are always there. DATA is a folder with conversations, as `tests.bench.conversations` reads
them, and a subfolder `xquad`, as `tests.bench.languages` reads it. Every conversation, language and chat is searched
alone. Recall is the mean over questions, with 95 % bootstrap intervals over questions.
"""

import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import click
from mnemon_server.embedding.built_in import MINILM
from mnemon_server.embedding.factory import open_embedder
from rich.console import Console
from rich.progress import Progress

from tests.bench import machine
from tests.bench.finding.searches import LIMIT, SEARCHES, Chroma, Search, Vectors, Words
from tests.bench.finding.sets import SETS, WRITTEN, Collection, load
from tests.bench.metrics import Estimate, estimate, ndcg, recall
from tests.bench.serving import serving
from tests.bench.train_ranker import UNRANKED
from tests.support.chroma_server import ChromaServer

METRICS = ("recall@1", f"recall@{LIMIT}", f"nDCG@{LIMIT}")
PLAIN_VECTORS, PLAIN_WORDS = "plain MiniLM", "plain BM25"
NOT_RERANKED = "documents, not reranked"
WRITERS = ("user", "assistant")
BELOW_MAX = 0.01
"""How much less than a plain search one of the server's may find."""

Rankings = dict[str, dict[str, list[list[str]]]]
"""The ids of the texts that a search found, by the search, the collection and the question."""
Figures = dict[str, dict[str, dict[str, Estimate]]]
"""`METRICS`, by the search and the set."""


def rankings(searches: dict[str, Search], collections: Sequence[Collection], progress: Progress) -> Rankings:
    """Stores every collection for every search, and asks its questions."""
    found: Rankings = {name: {} for name in searches}
    task = progress.add_task("storing and asking", total=len(collections) * len(searches))
    for collection in collections:
        for name, search in searches.items():
            progress.update(task, description=f"{collection.name}: {name}")
            search.store(collection)
            found[name][collection.name] = search.find(collection)
            progress.advance(task)
    return found


def figures(found: Rankings, collections: Sequence[Collection]) -> Figures:
    """The recall of each search, on the sets and on their parts."""
    parts = dict(_parts(collections))
    return {
        search: {
            part: estimate(
                [[row] for collection in members for row in _measured(collection, ranked[collection.name], writer)],
                names=METRICS,
            )
            for part, (members, writer) in parts.items()
        }
        for search, ranked in found.items()
    }


def _parts(collections: Sequence[Collection]) -> Iterator[tuple[str, tuple[list[Collection], str]]]:
    """The rows of the table: a name, the collections, and the writer of the texts that count; empty for all."""
    for name in dict.fromkeys(each.set for each in collections):
        members = [each for each in collections if each.set == name]
        yield name, (members, "")
        for writer in WRITERS:
            if any(text.writer == writer for each in members for text in each.texts):
                yield f"{name}: {writer}'s", (members, writer)
        if name == "languages":
            yield from ((f"{name}: {each.name}", ([each], "")) for each in members)


def _measured(collection: Collection, ranked: Sequence[Sequence[str]], writer: str) -> Iterator[tuple[float, ...]]:
    kept = {text.id for text in collection.texts if writer in ("", text.writer)}
    for question, ranking in zip(collection.questions, ranked, strict=True):
        if relevant := question.evidence & kept:
            yield recall(ranking, relevant, 1), recall(ranking, relevant, LIMIT), ndcg(ranking, relevant, LIMIT)


def below(measured: Figures) -> list[str]:
    """Where a search of the server finds less than a plain one."""
    return [
        f"{part}: {search} {row[metric].mean:.3f}, {plain} {measured[plain][part][metric].mean:.3f}"
        for search in SEARCHES
        for part, row in measured.get(search, {}).items()
        for metric in (_shown(part),)
        for plain in (PLAIN_VECTORS, PLAIN_WORDS)
        if row[metric].mean < measured[plain][part][metric].mean - BELOW_MAX
    ]


def _shown(part: str) -> str:
    """The metric of the table: among 240 paragraphs, ten results nearly always hold the right one."""
    return METRICS[0] if part.startswith("languages") else METRICS[1]


def table(measured: Figures) -> list[str]:
    """The lines of the table."""
    lines = [["set", "metric", *measured], ["---"] * (len(measured) + 2)]
    for part in next(iter(measured.values())):
        metric = _shown(part)
        lines.append([part, metric, *(str(row[part][metric]) for row in measured.values())])
    return [f"| {' | '.join(cells)} |" for cells in lines]


def measure(
    collections: Sequence[Collection], names: Sequence[str], address: str | None, vectors_kept: Path | None = None
) -> tuple[str, Figures]:
    """The server's model, and what the named searches and the plain ones find."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mnemon-bench-")))
        progress = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
        with serving(address, folder=folder) as client:
            model = client.documents.status().embedding_model
            own = {name: SEARCHES[name](client) for name in names}
            found = rankings({**own}, collections, progress)
        if address is None and "documents" in names:
            with serving(folder=folder, settings=UNRANKED) as client:
                unranked = own["documents"].through(client)
                found[NOT_RERANKED] = {each.name: unranked.find(each) for each in collections}
        chroma = stack.enter_context(ChromaServer(folder / "chroma" / "data"))
        minilm = open_embedder(MINILM.name, precision="int8", model_dir=None, cache_dir=folder)
        stack.callback(minilm.close)
        vectors = Vectors(minilm, vectors_kept)
        plain = {PLAIN_VECTORS: vectors, PLAIN_WORDS: Words(), "Chroma": Chroma((chroma.host, chroma.port), vectors)}
        found |= rankings(plain, collections, progress)
    return f"{model.name}, {model.precision}", figures(found, collections)


@click.command()
@click.argument("data", type=click.Path(path_type=Path, exists=True), required=False)
@click.option("--sets", default=",".join(SETS), show_default=True, help="Names of sets, separated by commas.")
@click.option("--searches", default=",".join(SEARCHES), show_default=True, help="Names of searches of the server.")
@click.option("--questions", "questions_max", default=300, show_default=True, help="Most questions of a language.")
@click.option(
    "--written",
    type=click.Choice(WRITTEN),
    default=WRITTEN[0],
    show_default=True,
    help="How messages are stored: the text alone, or the author in front; usually, chats alone.",
)
@click.option("--address", help="Measure a server that runs already; by default one is started.")
@click.option(
    "--vectors",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="A folder that keeps the plain vectors for further runs.",
)
@click.option("--json", "output", type=click.Path(path_type=Path), help="Also writes all figures to this file.")
def main(
    data: Path | None,
    sets: str,
    searches: str,
    questions_max: int,
    written: str,
    address: str | None,
    vectors: Path | None,
    output: Path | None,
) -> None:
    """Measures every search on every set, and prints a table."""
    chosen, names = _listed("--sets", sets, SETS), _listed("--searches", searches, SEARCHES)
    collections = load(chosen, data, written=written, questions_max=questions_max)
    if not collections:
        click.echo("skipped: these texts are missing", err=True)
        return
    model, measured = measure(collections, names, address, vectors)
    texts, questions = (
        sum(len(part) for part in parts)
        for parts in zip(*((each.texts, each.questions) for each in collections), strict=True)
    )
    click.echo(f"{machine.describe()}\n\n{texts:,} texts, {questions:,} questions; {model}\n")
    click.echo("\n".join(table(measured)))
    click.echo(
        "\n".join(["", f"Less than a plain search by more than {BELOW_MAX}:", *(below(measured) or ["nowhere"])])
    )
    if output is not None:
        stored = {
            search: {part: {name: asdict(value) for name, value in row.items()} for part, row in rows.items()}
            for search, rows in measured.items()
        }
        output.write_text(
            json.dumps(
                {"machine": machine.describe(), "model": model, "figures": stored, "below": below(measured)}, indent=1
            )
            + "\n",
            encoding="utf-8",
        )


def _listed(option: str, given: str, known: Iterable[str]) -> list[str]:
    names = given.split(",")
    if unknown := set(names) - set(known):
        raise click.BadParameter(f"{', '.join(sorted(unknown))}: must be of {', '.join(known)}", param_hint=option)
    return names


if __name__ == "__main__":
    main()
